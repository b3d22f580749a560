/* causes.c - names and texts of enum http2_cause. Compiled also without libnghttp2. */

#include "http2/session.h"

const char http2_preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

#define FLOOD(frames) "too many " frames

const char *const http2_cause_name[HTTP2_CAUSE_COUNT] = {
    [LIMIT_RESETS] = "resets",
    [LIMIT_SETTINGS] = "settings",
    [LIMIT_PINGS] = "pings",
    [LIMIT_PRIORITIES] = "priorities",
    [LIMIT_WINDOW_UPDATES] = "window_updates",
    [LIMIT_EMPTY_FRAMES] = "empty_frames",
    [LIMIT_OTHER_FRAMES] = "other_frames",
    [LIMIT_SMALL_WINDOWS] = "small_windows",
    [HTTP2_CONTINUATIONS] = "continuations",
    [HTTP2_HEADER_LIST] = "header_list",
    [HTTP2_MALFORMED] = "malformed",
    [HTTP2_TOO_MANY_STREAMS] = "too_many_streams",
    [HTTP2_PROTOCOL_ERROR] = "protocol_error",
    [HTTP2_NO_PING_RESPONSE] = "no_ping_response",
    [HTTP2_NO_MEMORY] = "no_memory"};

const char *const http2_cause_text[HTTP2_CAUSE_COUNT] = {
    [LIMIT_RESETS] = "more resets than http2.resets_per_second",
    [LIMIT_SETTINGS] = FLOOD("SETTINGS frames"),
    [LIMIT_PINGS] = FLOOD("PING frames"),
    [LIMIT_PRIORITIES] = FLOOD("PRIORITY frames"),
    [LIMIT_WINDOW_UPDATES] = FLOOD("WINDOW_UPDATE frames"),
    [LIMIT_EMPTY_FRAMES] = FLOOD("empty DATA frames"),
    [LIMIT_OTHER_FRAMES] = FLOOD("frames of unknown types"),
    [LIMIT_SMALL_WINDOWS] = FLOOD("windows of a few bytes"),
    [HTTP2_CONTINUATIONS] = FLOOD("CONTINUATION frames"),
    [HTTP2_HEADER_LIST] = "a header list of more than twice http2.max_header_list",
    [HTTP2_MALFORMED] = "a malformed message",
    [HTTP2_TOO_MANY_STREAMS] = "more streams than http2.max_concurrent_streams",
    [HTTP2_PROTOCOL_ERROR] = "a violation of the protocol",
    [HTTP2_NO_PING_RESPONSE] = "no response to a PING",
    [HTTP2_NO_MEMORY] = "no memory"};
