/* http2_cases.h - frames of clients, and the result according to RFC 9113, RFC 7541 (HPACK), RFC
 * 8441 and RFC 9218. A name begins with the section; sections without an RFC are of RFC 9113.
 *
 * An implementation may treat a stream error as a connection error (RFC 9113 section 5.4.2). The
 * cases contain the behaviour of libnghttp2. */
#ifndef WEIR_TESTS_HTTP2_CASES_H
#define WEIR_TESTS_HTTP2_CASES_H

#include "http2_peer.h"

enum outcome { OUTCOME_ACCEPTED = 1, OUTCOME_STREAM_ERROR, OUTCOME_CONNECTION_ERROR };

enum {
    STEP_FIELDS = -1,
    STEP_UNANSWERED = -2,
    STEP_CONTENT = -3,
    STEP_EVENT = -4,
    STEPS_MAX = 8,
    PRIORITY = 0x20
};

/* A frame, or a step of one of the negative types. */
struct http2_step {
    int type;
    unsigned flags, stream;
    const char *payload; /* NULL: the case ends */
    size_t n;
};

struct http2_case {
    const char *name;
    struct http2_step steps[STEPS_MAX];
    enum outcome outcome;
    unsigned code; /* of RST_STREAM or GOAWAY */
};

/* clang-format off */
#define F(type, flags, stream, payload) { NGHTTP2_##type, flags, stream, payload, sizeof payload - 1 }
/* HEADERS with "name=value|..." */
#define FIELDS(flags, stream, fields) { STEP_FIELDS, flags, stream, fields, 0 }
/* HEADERS with a whole header section in these bytes of HPACK */
#define BLOCK(stream, bytes) F(HEADERS, END_STREAM | END_HEADERS, stream, bytes)
/* weir does not respond: the stream stays open */
#define UNANSWERED { STEP_UNANSWERED, 0, 0, "", 0 }
/* weir has sent this many bytes of content so far */
#define CONTENT(bytes) { STEP_CONTENT, 0, bytes, "", 0 }
/* the session has reported this */
#define EVENT(text) { STEP_EVENT, 0, 0, text, 0 }
/* clang-format on */

#define GET1   FIELDS(END_STREAM, 1, PEER_GET)
#define POST1  FIELDS(0, 1, PEER_POST)
#define HALF   ":method=GET|:scheme=https|:authority=a.test"
#define TARGET "\x82\x87\x84\x41\x06" /* GET, https, "/", :authority of 6 bytes: */
#define RAW    TARGET "a.test"

#define ACCEPTED(name, ...)                                                                        \
    {                                                                                              \
        name, {__VA_ARGS__}, OUTCOME_ACCEPTED, 0                                                   \
    }
#define STREAM_ERROR(name, code, ...)                                                              \
    {                                                                                              \
        name, {__VA_ARGS__}, OUTCOME_STREAM_ERROR, NGHTTP2_##code                                  \
    }
#define CONNECTION_ERROR(name, code, ...)                                                          \
    {                                                                                              \
        name, {__VA_ARGS__}, OUTCOME_CONNECTION_ERROR, NGHTTP2_##code                              \
    }
#define MALFORMED(name, fields) STREAM_ERROR(name, PROTOCOL_ERROR, FIELDS(END_STREAM, 1, fields))
#define BAD_BLOCK(name, bytes)  CONNECTION_ERROR(name, COMPRESSION_ERROR, BLOCK(1, bytes))

static const char http2_zeros[16385];
#define ZEROS(type, flags, stream, n)                                                              \
    {                                                                                              \
        NGHTTP2_##type, flags, stream, http2_zeros, n                                              \
    }

static const struct http2_case http2_cases[] = {
    /* 4: frames and field sections */
    ACCEPTED("4.1 unknown frame type", {0x77, 0xff, 0, "abc", 3}, GET1),
    ACCEPTED("4.1 unknown frame type on an open stream", POST1, {0x77, 0, 1, "abc", 3},
             F(DATA, END_STREAM, 1, "abc")),
    ACCEPTED("4.1 unknown flags", FIELDS(END_STREAM | 0x80 | 0x40, 1, PEER_GET)),
    ACCEPTED("4.1 unknown flags of PING", F(PING, 0xfe, 0, "12345678"), GET1),
    ACCEPTED("4.1 reserved bit of the stream id", FIELDS(END_STREAM, 0x80000001, PEER_GET)),
    ACCEPTED("4.2 DATA of 2^14 bytes", POST1, ZEROS(DATA, END_STREAM, 1, 16384)),
    CONNECTION_ERROR("4.2 DATA above 2^14 bytes", FRAME_SIZE_ERROR, POST1,
                     ZEROS(DATA, END_STREAM, 1, 16385)),
    CONNECTION_ERROR("4.2 HEADERS above 2^14 bytes", FRAME_SIZE_ERROR,
                     ZEROS(HEADERS, END_STREAM | END_HEADERS, 1, 16385)),
    CONNECTION_ERROR("4.2 CONTINUATION above 2^14 bytes", FRAME_SIZE_ERROR,
                     F(HEADERS, END_STREAM, 1, RAW), ZEROS(CONTINUATION, END_HEADERS, 1, 16385)),
    CONNECTION_ERROR("4.2 unknown frame above 2^14 bytes", FRAME_SIZE_ERROR,
                     {0x77, 0, 0, http2_zeros, 16385}),
    ACCEPTED("4.3 a block in four fragments", F(HEADERS, END_STREAM, 1, "\x82"),
             F(CONTINUATION, 0, 1, "\x87"), F(CONTINUATION, 0, 1, "\x84\x41"),
             F(CONTINUATION, END_HEADERS, 1,
               "\x06"
               "a.test")),
    ACCEPTED("4.3 empty fragments", F(HEADERS, END_STREAM, 1, ""), F(CONTINUATION, 0, 1, ""),
             F(CONTINUATION, END_HEADERS, 1, RAW)),
    ACCEPTED("4.3 the table applies to all streams", BLOCK(1, RAW "\x40\1x\1y"),
             BLOCK(3, "\x82\x87\x84\xbf\xbe")),
    CONNECTION_ERROR("4.3 invalid header block", COMPRESSION_ERROR,
                     BLOCK(1, "\xff\xff\xff\xff\xff\xff\xff")),
    CONNECTION_ERROR("4.3 truncated block", COMPRESSION_ERROR, BLOCK(1, "\x82\x41\x0a")),
    CONNECTION_ERROR("4.3 invalid block of trailers", COMPRESSION_ERROR, POST1, BLOCK(1, "\x80")),

    /* 5: streams */
    CONNECTION_ERROR("5.1 idle: DATA", PROTOCOL_ERROR, F(DATA, 0, 1, "abc")),
    CONNECTION_ERROR("5.1 idle: WINDOW_UPDATE", PROTOCOL_ERROR, F(WINDOW_UPDATE, 0, 1, "\0\0\0\1")),
    CONNECTION_ERROR("5.1 idle: RST_STREAM", PROTOCOL_ERROR, F(RST_STREAM, 0, 1, "\0\0\0\1")),
    CONNECTION_ERROR("5.1 idle: CONTINUATION", PROTOCOL_ERROR,
                     F(CONTINUATION, END_HEADERS, 1, RAW)),
    ACCEPTED("5.1 idle: PRIORITY", F(PRIORITY, 0, 7, "\0\0\0\1\1"), GET1),
    CONNECTION_ERROR("5.1 half-closed: DATA", STREAM_CLOSED, UNANSWERED, GET1,
                     F(DATA, 0, 1, "abc")),
    CONNECTION_ERROR("5.1 half-closed: HEADERS", STREAM_CLOSED, UNANSWERED, GET1,
                     FIELDS(END_STREAM, 1, "a=b")),
    CONNECTION_ERROR("5.1 half-closed: CONTINUATION", PROTOCOL_ERROR, UNANSWERED, GET1,
                     F(CONTINUATION, END_HEADERS, 1, "\x82")),
    ACCEPTED("5.1 half-closed: WINDOW_UPDATE", UNANSWERED, GET1,
             F(WINDOW_UPDATE, 0, 1, "\0\0\0\1")),
    ACCEPTED("5.1 half-closed: PRIORITY", UNANSWERED, GET1, F(PRIORITY, 0, 1, "\0\0\0\3\1")),
    ACCEPTED("5.1 half-closed: RST_STREAM", UNANSWERED, GET1, F(RST_STREAM, 0, 1, "\0\0\0\x08"),
             EVENT("closed 1 cut;")),
    CONNECTION_ERROR("5.1 closed: DATA", STREAM_CLOSED, GET1, F(DATA, 0, 1, "abc")),
    CONNECTION_ERROR("5.1 closed: HEADERS", STREAM_CLOSED, GET1, FIELDS(END_STREAM, 1, PEER_GET)),
    ACCEPTED("5.1 closed: WINDOW_UPDATE", GET1, F(WINDOW_UPDATE, 0, 1, "\0\0\0\1")),
    ACCEPTED("5.1 closed: RST_STREAM", GET1, F(RST_STREAM, 0, 1, "\0\0\0\x08")),
    ACCEPTED("5.1 closed: PRIORITY", GET1, F(PRIORITY, 0, 1, "\0\0\0\3\1")),
    CONNECTION_ERROR("5.1 closed: CONTINUATION", PROTOCOL_ERROR, GET1,
                     F(CONTINUATION, END_HEADERS, 1, "\x82")),
    CONNECTION_ERROR("5.1 reset: DATA", STREAM_CLOSED, UNANSWERED, POST1,
                     F(RST_STREAM, 0, 1, "\0\0\0\x08"), F(DATA, 0, 1, "abc")),
    CONNECTION_ERROR("5.1 reset: HEADERS", STREAM_CLOSED, UNANSWERED, POST1,
                     F(RST_STREAM, 0, 1, "\0\0\0\x08"), FIELDS(END_STREAM, 1, "a=b")),
    ACCEPTED("5.1 reset: RST_STREAM", UNANSWERED, POST1, F(RST_STREAM, 0, 1, "\0\0\0\x08"),
             F(RST_STREAM, 0, 1, "\0\0\0\x08")),
    STREAM_ERROR("5.1 reset by weir", PROTOCOL_ERROR, FIELDS(0, 1, HALF), F(DATA, 0, 1, "abc"),
                 FIELDS(END_STREAM, 1, "a=b"), FIELDS(END_STREAM, 3, PEER_GET), EVENT("request 3")),
    CONNECTION_ERROR("5.1.1 even stream id", PROTOCOL_ERROR, FIELDS(END_STREAM, 2, PEER_GET)),
    CONNECTION_ERROR("5.1.1 stream 0", PROTOCOL_ERROR, FIELDS(END_STREAM, 0, PEER_GET)),
    CONNECTION_ERROR("5.1.1 lower stream id", PROTOCOL_ERROR, FIELDS(END_STREAM, 5, PEER_GET),
                     FIELDS(END_STREAM, 3, PEER_GET)),
    CONNECTION_ERROR("5.1.1 DATA on a skipped stream", PROTOCOL_ERROR,
                     FIELDS(END_STREAM, 5, PEER_GET), F(DATA, 0, 3, "abc")),
    CONNECTION_ERROR("5.1.1 DATA on an idle stream", PROTOCOL_ERROR,
                     FIELDS(END_STREAM, 5, PEER_GET), F(DATA, 0, 7, "abc")),
    ACCEPTED("5.3 HEADERS with a priority",
             F(HEADERS, END_STREAM | END_HEADERS | PRIORITY, 1, "\0\0\0\0\x10" RAW)),
    ACCEPTED("5.3 exclusive priority below an idle stream",
             F(HEADERS, END_STREAM | END_HEADERS | PRIORITY, 1, "\x80\0\0\7\xff" RAW)),
    CONNECTION_ERROR("5.3 HEADERS that depends on itself", PROTOCOL_ERROR,
                     F(HEADERS, END_STREAM | END_HEADERS | PRIORITY, 1, "\0\0\0\1\x10" RAW)),
    ACCEPTED("5.5 PRIORITY_UPDATE (RFC 9218)", {0x10, 0, 0, "\0\0\0\1u=1", 7}, GET1),
    ACCEPTED("5.5 ALTSVC (RFC 7838)", {0x0a, 0, 0, "\0\0", 2}, GET1),
    ACCEPTED("5.5 ORIGIN (RFC 8336)", {0x0c, 0, 0, "", 0}, GET1),

    /* 6.1 DATA */
    CONNECTION_ERROR("6.1 stream 0", PROTOCOL_ERROR, F(DATA, 0, 0, "abc")),
    CONNECTION_ERROR("6.1 padding as long as the frame", PROTOCOL_ERROR, POST1,
                     F(DATA, PADDED, 1,
                       "\x04"
                       "abc")),
    CONNECTION_ERROR("6.1 padding longer than the frame", PROTOCOL_ERROR, POST1,
                     F(DATA, PADDED, 1,
                       "\xff"
                       "abc")),
    CONNECTION_ERROR("6.1 padding without its length", PROTOCOL_ERROR, POST1,
                     F(DATA, PADDED, 1, "")),
    ACCEPTED("6.1 padding", POST1,
             F(DATA, PADDED | END_STREAM, 1,
               "\x02"
               "abc")),
    ACCEPTED("6.1 padding alone", POST1, F(DATA, PADDED | END_STREAM, 1, "\3\0\0\0"),
             EVENT("end 1;")),
    ACCEPTED("6.1 padding of no bytes", POST1,
             F(DATA, PADDED | END_STREAM, 1,
               "\0"
               "abc"),
             EVENT("content 1 ")),
    ACCEPTED("6.1 empty", POST1, F(DATA, END_STREAM, 1, ""), EVENT("end 1;")),

    /* 6.2 HEADERS */
    CONNECTION_ERROR("6.2 padding as long as the frame", PROTOCOL_ERROR,
                     F(HEADERS, PADDED | END_HEADERS, 1, "\x03\x82")),
    CONNECTION_ERROR("6.2 padding without its length", PROTOCOL_ERROR,
                     F(HEADERS, PADDED | END_HEADERS, 1, "")),
    CONNECTION_ERROR("6.2 too short for its priority", FRAME_SIZE_ERROR,
                     F(HEADERS, PRIORITY | END_HEADERS, 1, "\0\0\0\3")),
    CONNECTION_ERROR("6.2 padding into the priority", PROTOCOL_ERROR,
                     F(HEADERS, PADDED | PRIORITY | END_HEADERS, 1, "\x04\0\0\0\3\1\0\0")),
    ACCEPTED("6.2 padding", F(HEADERS, PADDED | END_STREAM | END_HEADERS, 1, "\2" RAW "\0\0")),
    ACCEPTED("6.2 padding and a priority", F(HEADERS, PADDED | PRIORITY | END_STREAM | END_HEADERS,
                                             1, "\2\0\0\0\0\1" RAW "\0\0")),
    STREAM_ERROR("6.2 empty", PROTOCOL_ERROR, F(HEADERS, END_STREAM | END_HEADERS, 1, "")),

    /* 6.3 PRIORITY, 6.4 RST_STREAM */
    CONNECTION_ERROR("6.3 4 bytes", FRAME_SIZE_ERROR, F(PRIORITY, 0, 1, "1234")),
    CONNECTION_ERROR("6.3 6 bytes", FRAME_SIZE_ERROR, F(PRIORITY, 0, 1, "123456")),
    CONNECTION_ERROR("6.3 stream 0", PROTOCOL_ERROR, F(PRIORITY, 0, 0, "\0\0\0\1\1")),
    ACCEPTED("6.3 depends on itself", F(PRIORITY, 0, 1, "\0\0\0\1\1"), GET1),
    CONNECTION_ERROR("6.4 3 bytes", FRAME_SIZE_ERROR, POST1, F(RST_STREAM, 0, 1, "123")),
    CONNECTION_ERROR("6.4 5 bytes", FRAME_SIZE_ERROR, POST1, F(RST_STREAM, 0, 1, "12345")),
    CONNECTION_ERROR("6.4 stream 0", PROTOCOL_ERROR, F(RST_STREAM, 0, 0, "1234")),
    ACCEPTED("6.4 open stream", POST1, F(RST_STREAM, 0, 1, "\0\0\0\x08"), EVENT("closed 1 cut;")),

    /* 6.5 SETTINGS */
    CONNECTION_ERROR("6.5 on a stream", PROTOCOL_ERROR, F(SETTINGS, 0, 1, "")),
    CONNECTION_ERROR("6.5 5 bytes", FRAME_SIZE_ERROR, F(SETTINGS, 0, 0, "12345")),
    CONNECTION_ERROR("6.5 7 bytes", FRAME_SIZE_ERROR, F(SETTINGS, 0, 0, "\0\4\0\0\0\1\0")),
    CONNECTION_ERROR("6.5 acknowledgement with a payload", FRAME_SIZE_ERROR,
                     F(SETTINGS, ACK, 0, "\0\1\0\0\0\0")),
    ACCEPTED("6.5 unknown setting", F(SETTINGS, 0, 0, "\x7f\1\0\0\0\1"), GET1),
    ACCEPTED("6.5 empty", F(SETTINGS, 0, 0, ""), GET1),
    ACCEPTED("6.5.2 HEADER_TABLE_SIZE of 0", F(SETTINGS, 0, 0, "\0\1\0\0\0\0"), GET1),
    ACCEPTED("6.5.2 HEADER_TABLE_SIZE of 2^32-1", F(SETTINGS, 0, 0, "\0\1\xff\xff\xff\xff"), GET1),
    ACCEPTED("6.5.2 ENABLE_PUSH of 0", F(SETTINGS, 0, 0, "\0\2\0\0\0\0"), GET1),
    ACCEPTED("6.5.2 ENABLE_PUSH of 1", F(SETTINGS, 0, 0, "\0\2\0\0\0\1"), GET1),
    CONNECTION_ERROR("6.5.2 ENABLE_PUSH of 2", PROTOCOL_ERROR, F(SETTINGS, 0, 0, "\0\2\0\0\0\2")),
    ACCEPTED("6.5.2 MAX_CONCURRENT_STREAMS of 0", F(SETTINGS, 0, 0, "\0\3\0\0\0\0"), GET1),
    ACCEPTED("6.5.2 INITIAL_WINDOW_SIZE of 2^31-1", F(SETTINGS, 0, 0, "\0\4\x7f\xff\xff\xff"),
             GET1),
    CONNECTION_ERROR("6.5.2 INITIAL_WINDOW_SIZE of 2^31", FLOW_CONTROL_ERROR,
                     F(SETTINGS, 0, 0, "\0\4\x80\0\0\0")),
    ACCEPTED("6.5.2 MAX_FRAME_SIZE of 2^14", F(SETTINGS, 0, 0, "\0\5\0\0\x40\0"), GET1),
    ACCEPTED("6.5.2 MAX_FRAME_SIZE of 2^24-1", F(SETTINGS, 0, 0, "\0\5\0\xff\xff\xff"), GET1),
    CONNECTION_ERROR("6.5.2 MAX_FRAME_SIZE below 2^14", PROTOCOL_ERROR,
                     F(SETTINGS, 0, 0, "\0\5\0\0\x3f\xff")),
    CONNECTION_ERROR("6.5.2 MAX_FRAME_SIZE of 2^24", PROTOCOL_ERROR,
                     F(SETTINGS, 0, 0, "\0\5\1\0\0\0")),
    ACCEPTED("6.5.2 MAX_HEADER_LIST_SIZE of 0", F(SETTINGS, 0, 0, "\0\6\0\0\0\0"), GET1),
    CONNECTION_ERROR("6.5.2 ENABLE_CONNECT_PROTOCOL of 2 (RFC 8441)", PROTOCOL_ERROR,
                     F(SETTINGS, 0, 0, "\0\x08\0\0\0\2")),
    CONNECTION_ERROR("6.5.2 NO_RFC7540_PRIORITIES of 2 (RFC 9218)", PROTOCOL_ERROR,
                     F(SETTINGS, 0, 0, "\0\x09\0\0\0\2")),
    ACCEPTED("6.5.3 values apply in their order", F(SETTINGS, 0, 0, "\0\4\0\0\0\4\0\4\0\0\0\1"),
             GET1, CONTENT(1)),
    CONNECTION_ERROR("6.5.3 acknowledgement of nothing", PROTOCOL_ERROR, F(SETTINGS, ACK, 0, "")),

    /* 6.6 PUSH_PROMISE, 6.7 PING, 6.8 GOAWAY */
    CONNECTION_ERROR("6.6 of a client", PROTOCOL_ERROR, POST1,
                     F(PUSH_PROMISE, END_HEADERS, 1, "\0\0\0\2\x82")),
    CONNECTION_ERROR("6.6 of a client, stream 0", PROTOCOL_ERROR,
                     F(PUSH_PROMISE, END_HEADERS, 0, "\0\0\0\2\x82")),
    CONNECTION_ERROR("6.7 on a stream", PROTOCOL_ERROR, F(PING, 0, 1, "12345678")),
    CONNECTION_ERROR("6.7 7 bytes", FRAME_SIZE_ERROR, F(PING, 0, 0, "1234567")),
    CONNECTION_ERROR("6.7 9 bytes", FRAME_SIZE_ERROR, F(PING, 0, 0, "123456789")),
    ACCEPTED("6.7 with content", F(PING, 0, 0, "12345678"), GET1),
    ACCEPTED("6.7 acknowledgement of nothing", F(PING, ACK, 0, "12345678"), GET1),
    CONNECTION_ERROR("6.8 on a stream", PROTOCOL_ERROR, F(GOAWAY, 0, 1, "12345678")),
    CONNECTION_ERROR("6.8 7 bytes", FRAME_SIZE_ERROR, F(GOAWAY, 0, 0, "\0\0\0\0\0\0\0")),
    ACCEPTED("6.8 requests continue", UNANSWERED, GET1, F(GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0")),
    ACCEPTED("6.8 debug data", UNANSWERED, GET1, F(GOAWAY, 0, 0, "\0\0\0\0\0\0\0\0because")),

    /* 6.9 WINDOW_UPDATE and windows */
    CONNECTION_ERROR("6.9 0 on a stream", PROTOCOL_ERROR, POST1,
                     F(WINDOW_UPDATE, 0, 1, "\0\0\0\0")),
    CONNECTION_ERROR("6.9 0", PROTOCOL_ERROR, F(WINDOW_UPDATE, 0, 0, "\0\0\0\0")),
    CONNECTION_ERROR("6.9 3 bytes", FRAME_SIZE_ERROR, F(WINDOW_UPDATE, 0, 0, "123")),
    CONNECTION_ERROR("6.9 5 bytes", FRAME_SIZE_ERROR, F(WINDOW_UPDATE, 0, 0, "12345")),
    ACCEPTED("6.9 reserved bit", F(WINDOW_UPDATE, 0, 0, "\x80\0\0\1"), GET1),
    CONNECTION_ERROR("6.9.1 window above 2^31-1", FLOW_CONTROL_ERROR,
                     F(WINDOW_UPDATE, 0, 0, "\x7f\xff\xff\xff")),
    ACCEPTED("6.9.1 window of 2^31-1", F(WINDOW_UPDATE, 0, 0, "\x7f\xff\0\0"), GET1),
    STREAM_ERROR("6.9.1 stream window above 2^31-1", FLOW_CONTROL_ERROR, POST1,
                 F(WINDOW_UPDATE, 0, 1, "\x7f\xff\xff\xff")),
    ACCEPTED("6.9.1 stream window of 2^31-1", UNANSWERED, POST1,
             F(WINDOW_UPDATE, 0, 1, "\x7f\xff\0\0")),
    ACCEPTED("6.9.1 no window, no content", F(SETTINGS, 0, 0, "\0\4\0\0\0\0"), GET1, CONTENT(0)),
    ACCEPTED("6.9.1 a window of 1", F(SETTINGS, 0, 0, "\0\4\0\0\0\1"), GET1, CONTENT(1)),
    ACCEPTED("6.9.1 a window that grows", F(SETTINGS, 0, 0, "\0\4\0\0\0\1"), GET1, CONTENT(1),
             F(WINDOW_UPDATE, 0, 1, "\0\0\0\2"), CONTENT(3)),
    ACCEPTED("6.9.1 the window of another stream", F(SETTINGS, 0, 0, "\0\4\0\0\0\1"), GET1,
             FIELDS(END_STREAM, 3, PEER_GET), CONTENT(2), F(WINDOW_UPDATE, 0, 3, "\0\0\0\2"),
             CONTENT(4)),
    ACCEPTED("6.9.2 a higher initial window applies to open streams",
             F(SETTINGS, 0, 0, "\0\4\0\0\0\1"), GET1, F(SETTINGS, 0, 0, "\0\4\0\0\0\4"),
             CONTENT(4)),
    ACCEPTED("6.9.2 a lower one makes windows negative", F(SETTINGS, 0, 0, "\0\4\0\0\0\3"), GET1,
             CONTENT(3), F(SETTINGS, 0, 0, "\0\4\0\0\0\1"), F(WINDOW_UPDATE, 0, 1, "\0\0\0\2"),
             CONTENT(3), F(WINDOW_UPDATE, 0, 1, "\0\0\0\1"), CONTENT(4)),
    /* a connection error in the standard; libnghttp2 resets the stream */
    STREAM_ERROR("6.9.2 an initial window that makes a window exceed 2^31-1", FLOW_CONTROL_ERROR,
                 UNANSWERED, POST1, F(WINDOW_UPDATE, 0, 1, "\x7f\xff\0\0"),
                 F(SETTINGS, 0, 0, "\0\4\0\1\0\0")),

    /* 6.10 CONTINUATION, 7 error codes */
    CONNECTION_ERROR("6.10 without HEADERS", PROTOCOL_ERROR,
                     F(CONTINUATION, END_HEADERS, 1, "\x82")),
    CONNECTION_ERROR("6.10 after END_HEADERS", PROTOCOL_ERROR, POST1,
                     F(CONTINUATION, END_HEADERS, 1, "\x82")),
    CONNECTION_ERROR("6.10 after CONTINUATION with END_HEADERS", PROTOCOL_ERROR,
                     F(HEADERS, 0, 1, "\x82\x87\x84\x41"),
                     F(CONTINUATION, END_HEADERS, 1, "\6a.test"),
                     F(CONTINUATION, END_HEADERS, 1, "\x87")),
    CONNECTION_ERROR("6.10 after DATA", PROTOCOL_ERROR, POST1, F(DATA, 0, 1, "abc"),
                     F(CONTINUATION, END_HEADERS, 1, "\x82")),
    CONNECTION_ERROR("6.10 stream 0", PROTOCOL_ERROR, F(HEADERS, END_STREAM, 1, "\x82"),
                     F(CONTINUATION, END_HEADERS, 0, "\x87")),
    CONNECTION_ERROR("6.10 another stream", PROTOCOL_ERROR, F(HEADERS, END_STREAM, 1, "\x82"),
                     F(CONTINUATION, END_HEADERS, 3, "\x87")),
    CONNECTION_ERROR("6.10 PING before it", PROTOCOL_ERROR, F(HEADERS, END_STREAM, 1, "\x82"),
                     F(PING, 0, 0, "12345678")),
    CONNECTION_ERROR("6.10 DATA before it", PROTOCOL_ERROR, F(HEADERS, 0, 1, "\x82"),
                     F(DATA, 0, 1, "abc")),
    CONNECTION_ERROR("6.10 HEADERS before it", PROTOCOL_ERROR, F(HEADERS, 0, 1, "\x82"),
                     F(HEADERS, END_HEADERS, 1, "\x87")),
    CONNECTION_ERROR("6.10 PRIORITY before it", PROTOCOL_ERROR, F(HEADERS, 0, 1, "\x82"),
                     F(PRIORITY, 0, 1, "\0\0\0\3\1")),
    CONNECTION_ERROR("6.10 WINDOW_UPDATE before it", PROTOCOL_ERROR, F(HEADERS, 0, 1, "\x82"),
                     F(WINDOW_UPDATE, 0, 0, "\0\0\0\1")),
    CONNECTION_ERROR("6.10 RST_STREAM before it", PROTOCOL_ERROR, F(HEADERS, 0, 1, "\x82"),
                     F(RST_STREAM, 0, 1, "\0\0\0\x08")),
    CONNECTION_ERROR("6.10 SETTINGS before it", PROTOCOL_ERROR, F(HEADERS, 0, 1, "\x82"),
                     F(SETTINGS, 0, 0, "")),
    CONNECTION_ERROR("6.10 unknown frame before it", PROTOCOL_ERROR, F(HEADERS, 0, 1, "\x82"),
                     {0x77, 0, 0, "abc", 3}),
    ACCEPTED("7 unknown code in RST_STREAM", POST1, F(RST_STREAM, 0, 1, "\x7f\0\0\xff"),
             EVENT("closed 1 cut;")),
    ACCEPTED("7 unknown code in GOAWAY", UNANSWERED, GET1, F(GOAWAY, 0, 0, "\0\0\0\0\x7f\0\0\xff")),

    /* 8.1 framing of messages */
    ACCEPTED("8.1 content", POST1, F(DATA, 0, 1, "abc"), F(DATA, END_STREAM, 1, "def")),
    ACCEPTED("8.1 trailers", POST1, FIELDS(END_STREAM, 1, "a=b"), EVENT("end 1;a: b\r\n")),
    STREAM_ERROR("8.1 trailers without END_STREAM", PROTOCOL_ERROR, POST1, FIELDS(0, 1, "a=b")),
    STREAM_ERROR("8.1 pseudo-field in trailers", PROTOCOL_ERROR, POST1,
                 FIELDS(END_STREAM, 1, ":path=/")),
    STREAM_ERROR("8.1 second header section", PROTOCOL_ERROR, POST1,
                 FIELDS(END_STREAM, 1, PEER_GET)),
    CONNECTION_ERROR("8.1 DATA behind trailers", STREAM_CLOSED, UNANSWERED, POST1,
                     FIELDS(END_STREAM, 1, "a=b"), F(DATA, END_STREAM, 1, "abc")),
    ACCEPTED("8.1.1 length of content in two frames", FIELDS(0, 1, PEER_POST "|content-length=6"),
             F(DATA, 0, 1, "abc"), F(DATA, END_STREAM, 1, "def")),
    ACCEPTED("8.1.1 length without the padding", FIELDS(0, 1, PEER_POST "|content-length=1"),
             F(DATA, PADDED | END_STREAM, 1,
               "\x02"
               "abc")),
    ACCEPTED("8.1.1 length of 0", FIELDS(END_STREAM, 1, PEER_POST "|content-length=0")),
    STREAM_ERROR("8.1.1 content of another length", PROTOCOL_ERROR,
                 FIELDS(0, 1, PEER_POST "|content-length=4"), F(DATA, END_STREAM, 1, "abc")),
    STREAM_ERROR("8.1.1 more content than the length", PROTOCOL_ERROR,
                 FIELDS(0, 1, PEER_POST "|content-length=2"), F(DATA, 0, 1, "abc")),
    STREAM_ERROR("8.1.1 more content than the length, in two frames", PROTOCOL_ERROR,
                 FIELDS(0, 1, PEER_POST "|content-length=4"), F(DATA, 0, 1, "abc"),
                 F(DATA, END_STREAM, 1, "def")),
    MALFORMED("8.1.1 length without content", PEER_POST "|content-length=2"),
    STREAM_ERROR("8.1.1 trailers end before the length", PROTOCOL_ERROR,
                 FIELDS(0, 1, PEER_POST "|content-length=2"), FIELDS(END_STREAM, 1, "a=b")),
    STREAM_ERROR("8.1.1 length with a sign", PROTOCOL_ERROR,
                 FIELDS(0, 1, PEER_POST "|content-length=+3"), F(DATA, END_STREAM, 1, "abc")),
    STREAM_ERROR("8.1.1 two lengths", PROTOCOL_ERROR,
                 FIELDS(0, 1, PEER_POST "|content-length=3|content-length=4"),
                 F(DATA, END_STREAM, 1, "abc")),
    STREAM_ERROR("8.1.1 length of 2^64", PROTOCOL_ERROR,
                 FIELDS(0, 1, PEER_POST "|content-length=18446744073709551616"),
                 F(DATA, END_STREAM, 1, "abc")),

    /* 8.2 fields */
    MALFORMED("8.2.1 upper-case letter", PEER_GET "|aBc=d"),
    MALFORMED("8.2.1 space in a name", PEER_GET "|a b=c"),
    MALFORMED("8.2.1 colon in a name", PEER_GET "|a:b=c"),
    MALFORMED("8.2.1 CR LF in a name", PEER_GET "|a\r\nb=c"),
    MALFORMED("8.2.1 control character in a name", PEER_GET "|a\x01=c"),
    MALFORMED("8.2.1 DEL in a name", PEER_GET "|a\x7f=c"),
    MALFORMED("8.2.1 byte above 0x7f in a name", PEER_GET "|a\xe4=c"),
    MALFORMED("8.2.1 LF in a value", PEER_GET "|a=b\nc"),
    MALFORMED("8.2.1 CR in a value", PEER_GET "|a=b\rc"),
    STREAM_ERROR("8.2.1 NUL in a value", PROTOCOL_ERROR, BLOCK(1, RAW "\0\1a\3b\0c")),
    STREAM_ERROR("8.2.1 NUL in a name", PROTOCOL_ERROR, BLOCK(1, RAW "\0\3a\0b\1c")),
    STREAM_ERROR("8.2.1 empty name", PROTOCOL_ERROR, BLOCK(1, RAW "\0\0\1c")),
    MALFORMED("8.2.1 space at the start of a value", PEER_GET "|a= b"),
    MALFORMED("8.2.1 space at the end of a value", PEER_GET "|a=b "),
    MALFORMED("8.2.1 tab at the start of a value", PEER_GET "|a=\tb"),
    MALFORMED("8.2.1 tab at the end of a value", PEER_GET "|a=b\t"),
    ACCEPTED("8.2.1 tab inside a value", FIELDS(END_STREAM, 1, PEER_GET "|a=b\tc")),
    ACCEPTED("8.2.1 byte above 0x7f in a value", FIELDS(END_STREAM, 1, PEER_GET "|a=\xe4")),
    ACCEPTED("8.2.1 empty value", FIELDS(END_STREAM, 1, PEER_GET "|a=")),
    STREAM_ERROR("8.2.1 upper-case letter in trailers", PROTOCOL_ERROR, POST1,
                 FIELDS(END_STREAM, 1, "aBc=d")),
    STREAM_ERROR("8.2.1 CR in a value of trailers", PROTOCOL_ERROR, POST1,
                 FIELDS(END_STREAM, 1, "a=b\rc")),
    MALFORMED("8.2.2 connection", PEER_GET "|connection=x"),
    MALFORMED("8.2.2 keep-alive", PEER_GET "|keep-alive=timeout"),
    MALFORMED("8.2.2 proxy-connection", PEER_GET "|proxy-connection=close"),
    MALFORMED("8.2.2 transfer-encoding", PEER_GET "|transfer-encoding=chunked"),
    MALFORMED("8.2.2 transfer-encoding: identity", PEER_GET "|transfer-encoding=identity"),
    MALFORMED("8.2.2 upgrade", PEER_GET "|upgrade=websocket"),
    MALFORMED("8.2.2 te", PEER_GET "|te=gzip"),
    MALFORMED("8.2.2 te among others", PEER_GET "|te=trailers, gzip"),
    ACCEPTED("8.2.2 te: trailers", FIELDS(END_STREAM, 1, PEER_GET "|te=trailers")),
    STREAM_ERROR("8.2.2 transfer-encoding in trailers", PROTOCOL_ERROR, POST1,
                 FIELDS(END_STREAM, 1, "transfer-encoding=chunked")),
    STREAM_ERROR("8.2.2 connection in trailers", PROTOCOL_ERROR, POST1,
                 FIELDS(END_STREAM, 1, "connection=close")),
    ACCEPTED("8.2.3 cookies in pieces", FIELDS(END_STREAM, 1, PEER_GET "|cookie=a|x=1|cookie=b")),

    /* 8.3 control data, 8.5 CONNECT */
    MALFORMED("8.3 unknown pseudo-field", PEER_GET "|:unknown=a"),
    MALFORMED("8.3 response pseudo-field", PEER_GET "|:status=200"),
    MALFORMED("8.3 upper-case pseudo-field", HALF "|:Path=/"),
    MALFORMED("8.3 pseudo-field after a field", "a=b|" PEER_GET),
    MALFORMED("8.3.1 no :method", ":scheme=https|:authority=a.test|:path=/"),
    MALFORMED("8.3.1 no :scheme", ":method=GET|:authority=a.test|:path=/"),
    MALFORMED("8.3.1 no :path", HALF),
    MALFORMED("8.3.1 two :method", PEER_GET "|:method=GET"),
    MALFORMED("8.3.1 two :scheme", PEER_GET "|:scheme=https"),
    MALFORMED("8.3.1 two :authority", PEER_GET "|:authority=a.test"),
    MALFORMED("8.3.1 two :path", PEER_GET "|:path=/"),
    MALFORMED("8.3.1 empty :path", HALF "|:path="),
    MALFORMED("8.3.1 :path without a slash", HALF "|:path=a"),
    MALFORMED("8.3.1 :path with a space", HALF "|:path=/a b"),
    MALFORMED("8.3.1 :path with CR LF", HALF "|:path=/ HTTP/1.1\r\na: b"),
    MALFORMED("8.3.1 :path of * for GET", HALF "|:path=*"),
    MALFORMED("8.3.1 :method with a space", ":method=G T|:scheme=https|:authority=a.test|:path=/"),
    MALFORMED("8.3.1 empty :method", ":method=|:scheme=https|:authority=a.test|:path=/"),
    MALFORMED("8.3.1 Host differs", PEER_GET "|host=b.test"),
    ACCEPTED("8.3.1 Host is the same", FIELDS(END_STREAM, 1, PEER_GET "|host=a.test")),
    ACCEPTED("8.3.1 Host alone",
             FIELDS(END_STREAM, 1, ":method=GET|:scheme=https|:path=/|host=a.test")),
    ACCEPTED("8.3.1 OPTIONS *",
             FIELDS(END_STREAM, 1, ":method=OPTIONS|:scheme=https|:authority=a.test|:path=*")),
#if NGHTTP2_VERSION_NUM >= 0x014000 /* 1.64.0 refuses it before weir does */
    MALFORMED("8.3.1 user information", ":method=GET|:scheme=https|:authority=u@a.test|:path=/"),
#else
    ACCEPTED("8.3.1 user information", /* answered with 400 */
             FIELDS(END_STREAM, 1, ":method=GET|:scheme=https|:authority=u@a.test|:path=/"),
             EVENT("refused 1 400;")),
#endif
    ACCEPTED("8.5 CONNECT", FIELDS(END_STREAM, 1, ":method=CONNECT|:authority=a.test:1"),
             EVENT("refused 1 501;")),
    MALFORMED("8.5 CONNECT with :path", ":method=CONNECT|:authority=a.test:1|:path=/"),
    MALFORMED("8.5 CONNECT with :scheme", ":method=CONNECT|:authority=a.test:1|:scheme=https"),
    MALFORMED("8.5 CONNECT without :authority", ":method=CONNECT"),
    STREAM_ERROR("RFC 8441 4 extended CONNECT", PROTOCOL_ERROR,
                 FIELDS(0, 1,
                        ":method=CONNECT|:protocol=websocket|:scheme=https|:authority=a.test|"
                        ":path=/")),
    MALFORMED("RFC 8441 4 :protocol without CONNECT", PEER_GET "|:protocol=websocket"),

    /* RFC 7541: HPACK */
    BAD_BLOCK("RFC 7541 2.3.3 index of an empty table", RAW "\xbf"),
    BAD_BLOCK("RFC 7541 2.3.3 index of no entry", "\xc0"),
    BAD_BLOCK("RFC 7541 2.3.3 name index of no entry", RAW "\x7f\x01\1c"),
    ACCEPTED("RFC 7541 4.2 table size 0", BLOCK(1, "\x20" RAW)),
    ACCEPTED("RFC 7541 4.2 two table sizes", BLOCK(1, "\x20\x3f\xe1\x1f" RAW "\x40\1x\1y\xbe")),
    CONNECTION_ERROR("RFC 7541 4.2 table size after a field", COMPRESSION_ERROR,
                     BLOCK(1, RAW "\x20")),
    CONNECTION_ERROR("RFC 7541 4.3 an entry that was evicted", COMPRESSION_ERROR,
                     BLOCK(1, RAW "\x40\1x\1y"), BLOCK(3, "\x20\x82\x87\x84\xbe")),
    ACCEPTED("RFC 7541 4.4 an entry larger than the table", BLOCK(1, "\x3f\x01" RAW "\x40\1x\1y")),
    CONNECTION_ERROR("RFC 7541 4.4 ... is not in the table", COMPRESSION_ERROR,
                     BLOCK(1, "\x3f\x01" RAW "\x40\1x\1y\xbe")),
    ACCEPTED("RFC 7541 5.1 an integer in two bytes",
             BLOCK(1, RAW "\0\1a\x7f\0"
                          "0123456789012345678901234567890123456789012345678901234567890123456789"
                          "012345678901234567890123456789012345678901234567890123456")),
    BAD_BLOCK("RFC 7541 5.1 an integer above 2^32", RAW "\xff\xff\xff\xff\xff\xff\x0f"),
    BAD_BLOCK("RFC 7541 5.1 a string length above 2^32", RAW "\0\1a\x7f\xff\xff\xff\xff\xff\x0f"),
    BAD_BLOCK("RFC 7541 5.2 truncated name", RAW "\0\5a"),
    BAD_BLOCK("RFC 7541 5.2 truncated value", RAW "\0\1a\5b"),
    ACCEPTED("RFC 7541 5.2 Huffman code", BLOCK(1, "\x82\x87\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a"
                                                   "\x6b\xa0\xab\x90\xf4\xff")),
    BAD_BLOCK("RFC 7541 5.2 padding of 8 bits", "\x82\x87\x84\x41\x8d\xf1\xe3\xc2\xe5\xf2\x3a\x6b"
                                                "\xa0\xab\x90\xf4\xff\xff"),
    BAD_BLOCK("RFC 7541 5.2 padding of zeros", RAW "\0\1a\x81\x18"), /* "a" and 000 */
    BAD_BLOCK("RFC 7541 5.2 end of string", RAW "\0\1a\x84\xff\xff\xff\xff"),
    BAD_BLOCK("RFC 7541 6.1 index 0", RAW "\x80"),
    ACCEPTED("RFC 7541 6.2.1 literal that is indexed", BLOCK(1, RAW "\x40\1x\1y\xbe")),
    ACCEPTED("RFC 7541 6.2.2 literal that is not indexed", BLOCK(1, "\x82\x87\x04\2/a\x01\6a.test"),
             EVENT("request 1 GET /a none;")),
    ACCEPTED("RFC 7541 6.2.3 literal that is never indexed",
             BLOCK(1, "\x82\x87\x14\2/a\x11\6a.test"), EVENT("request 1 GET /a none;")),
    BAD_BLOCK("RFC 7541 6.3 table size above the setting", "\x3f\xe2\x1f" RAW),
    ACCEPTED("RFC 7541 C.3 three requests", BLOCK(1, "\x82\x86\x84\x41\x0fwww.example.com"),
             BLOCK(3, "\x82\x86\x84\xbe\x58\x08no-cache"),
             BLOCK(5, "\x82\x87\x85\xbf\x40\x0a"
                      "custom-key\x0c"
                      "custom-value"),
             EVENT("request 5 GET /index.html none;")),
    ACCEPTED("RFC 7541 C.4 three requests with Huffman code",
             BLOCK(1, "\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"),
             BLOCK(3, "\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf"),
             BLOCK(5, "\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9"
                      "\x5b\xb8\xe8\xb4\xbf"),
             EVENT("request 5 GET /index.html none;")),
};

#endif
