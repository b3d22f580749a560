/* options_process.c - rows of the option table: half_close, timeouts, size_limits and log. */
#include "config/option_rows.h"

static const char *const half_close_names[] = {
    [HALF_CLOSE_END] = "end", [HALF_CLOSE_ALLOW] = "allow", NULL};
static const char *const level_names[] = {[LEVEL_ERROR] = "error",
                                          [LEVEL_WARN] = "warn",
                                          [LEVEL_INFO] = "info",
                                          [LEVEL_DEBUG] = "debug",
                                          NULL};
static const char *const format_names[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json", NULL};
static const char *const access_names[] = {
#define X(name, word, is_json) word,
    ACCESS_FORMATS(X)
#undef X
        NULL};

/* clang-format off */
static const struct option rows[] = {
    {.path = "half_close", .type = &type_enum, OF(half_close), .fallback = "end",
     .names = half_close_names,
     .help = "handling of a client that closes its sending side while its request is in flight"},

    {.path = "state_directory", .type = &type_directory, OF(state_directory),
     .fallback = "$STATE_DIRECTORY", .low = 1, .high = 2048, .flags = DERIVED,
     SET(policy, state_directory),
     .help = "directory in which weir keeps the last keys of tokens by URL over a restart"},

    {.path = "timeouts", .type = &type_section, .fallback = "",
     .help = "timeouts of client connections"},
    {.path = "timeouts.request_header", .type = &type_duration, OF(timeouts.request_header_us),
     .fallback = "10s", .low = MS(10), .high = HOURS(1),
     .help = "maximum time to receive the complete request header (10ms to 1h)"},
    {.path = "timeouts.request_body", .type = &type_duration, OF(timeouts.request_body_us),
     .fallback = "30s", .low = MS(10), .high = HOURS(1),
     .help = "maximum time between two reads of the request body (10ms to 1h)"},
    {.path = "timeouts.body_min_rate", .type = &type_number, OF(timeouts.body_min_rate),
     .fallback = "100", .high = 1 << 30,
     .help = "minimum rate of the request body in bytes per second, measured over request_body"},
    {.path = "timeouts.keepalive", .type = &type_duration, OF(timeouts.keepalive_us),
     .fallback = "75s", .low = MS(10), .high = HOURS(24), .flags = DERIVED,
     .help = "maximum time between two requests on one connection (10ms to 1d)"},
    {.path = "timeouts.tunnel", .type = &type_duration, OF(timeouts.tunnel_us), .fallback = "1h",
     .low = MS(10), .high = HOURS(24 * 31), .flags = DERIVED,
     .help = "maximum time without data in either direction of an upgraded connection, such as a "
             "WebSocket (10ms to 31d)"},
    {.path = "timeouts.send", .type = &type_duration, OF(timeouts.send_us), .fallback = "60s",
     .low = MS(10), .high = HOURS(24), .flags = DERIVED,
     .help = "maximum time between two writes of a response to the client (10ms to 1d)"},
    {.path = "timeouts.send_min_rate", .type = &type_number, OF(timeouts.send_min_rate),
     .fallback = "100", .high = 1 << 30,
     .help = "minimum rate in bytes per second at which a client takes a response, measured over "
             "send while weir holds unsent bytes"},
    {.path = "timeouts.idle", .type = &type_duration, OF(timeouts.idle_us), .fallback = "none",
     .low = MS(10), .high = HOURS(24), .flags = DERIVED, SET(policy, timeouts.idle_us),
     .help = "value of timeouts.keepalive, timeouts.tunnel and timeouts.send if they are not set "
             "(10ms to 1d)"},
    {.path = "timeouts.exchange", .type = &type_duration, OF(timeouts.exchange_us),
     .fallback = "0s", .high = HOURS(24),
     .help = "maximum time from the request header to the last byte of the response (at most 1d)"},
    {.path = "timeouts.linger", .type = &type_duration, OF(timeouts.linger_us), .fallback = "30s",
     .high = HOURS(1),
     .help = "maximum time to read and discard request content that arrives after the response "
             "(at most 1h)"},
    {.path = "timeouts.drain", .type = &type_duration, OF(timeouts.drain_us), .fallback = "0s",
     .high = HOURS(1),
     .help = "time between SIGTERM and the closing of the listeners (0 to 1h)"},
    {.path = "timeouts.shutdown", .type = &type_duration, OF(timeouts.shutdown_us),
     .fallback = "30s", .high = HOURS(24),
     .help = "maximum time for requests in flight when weir stops (0 to 1d)"},

    {.path = "size_limits", .type = &type_section, .fallback = "",
     .help = "maximum sizes of messages, and maximum numbers of connections"},
    {.path = "size_limits.request_header", .type = &type_size, OF(size_limits.request_header),
     .fallback = "16k", .low = KIB(1), .high = KIB(64),
     .help = "maximum size of a request header (1k to 64k)"},
    {.path = "size_limits.request_body", .type = &type_size, OF(size_limits.request_body),
     .fallback = "0", .high = INT64_C(1) << 53,
     .help = "maximum size of a request body"},
    {.path = "size_limits.response_header", .type = &type_size, OF(size_limits.response_header),
     .fallback = "64k", .low = KIB(1), .high = KIB(64),
     .help = "maximum size of a response header (1k to 64k)"},
    {.path = "size_limits.connections", .type = &type_count, OF(size_limits.connections),
     .fallback = "10000", .high = 10000000,
     .help = "maximum number of client connections, divided equally among the workers"},
    {.path = "size_limits.connections_per_ip", .type = &type_count,
     OF(size_limits.connections_per_ip), .fallback = "a quarter of connections", .high = 10000000,
     .flags = DERIVED,
     .help = "maximum number of client connections from one address, across all workers"},
    {.path = "size_limits.memory", .type = &type_size, OF(size_limits.memory),
     .fallback = "a quarter of the memory", .low = MIB(16), .high = INT64_C(1) << 50,
     .flags = DERIVED, SET(policy, size_limits.memory),
     .help = "maximum memory of all buffers of the process (at least 16m)"},
    {.path = "size_limits.inspected_content", .type = &type_size,
     OF(size_limits.inspected_content), .fallback = "64k", .low = KIB(1), .high = MIB(1),
     .help = "maximum size of request content that is read before the decision (1k to 1m)"},
    {.path = "size_limits.requests_per_client", .type = &type_count,
     OF(size_limits.requests_per_client), .fallback = "1000", .high = 10000000,
     .help = "maximum number of requests under way of one client address, across all workers"},
    {.path = "size_limits.handshakes_per_ip", .type = &type_count,
     OF(size_limits.handshakes_per_ip), .fallback = "500", .high = 100000,
     .help = "maximum number of TLS handshakes per second from one address, across all workers"},

    {.path = "http2", .type = &type_section, .fallback = "",
     .help = "bounds of HTTP/2 connections"},
    {.path = "http2.max_concurrent_streams", .type = &type_count, OF(http2.max_concurrent_streams),
     .fallback = "100", .low = 1, .high = 10000,
     .help = "maximum number of requests in flight on one connection (1 to 10000)"},
    {.path = "http2.initial_window", .type = &type_size, OF(http2.initial_window),
     .fallback = "64k", .low = KIB(1), .high = MIB(16),
     .help = "content of one request that a client may send while the server does not read it "
             "(1k to 16m)"},
    {.path = "http2.max_header_list", .type = &type_size, OF(http2.max_header_list),
     .fallback = "32k", .low = KIB(1), .high = KIB(64),
     .help = "maximum size of the header fields of a request (1k to 64k)"},
    {.path = "http2.resets_per_second", .type = &type_count, OF(http2.resets_per_second),
     .fallback = "100", .low = 1, .high = 100000,
     .help = "maximum rate at which a client may reset streams of one connection (1 to 100000)"},

    {.path = "log", .type = &type_section, .fallback = "",
     .help = "log of events and requests"},
    {.path = "log.level", .type = &type_enum, OF(log.level), .fallback = "info",
     .names = level_names,
     .help = "minimum severity of logged events: error, warn, info or debug"},
    {.path = "log.format", .type = &type_enum, OF(log.format), .fallback = "text",
     .names = format_names,
     .help = "format of events"},
    {.path = "log.access", .type = &type_enum, OF(log.access), .fallback = "json",
     .names = access_names,
     .help = "format of the access log, which has one line per request"},
    {.path = "log.sample", .type = &type_number, OF(log.sample), .fallback = "0", .high = 1000000,
     .help = "maximum number of access lines of rejections per second and worker; 0: no maximum"},
    {.path = "log.file", .type = &type_log_file, OF(log.file), .fallback = "stderr", .low = 1,
     .high = 4096,
     .help = "absolute path of the log file, or stderr"},
};
/* clang-format on */

const struct option_group options_process = {rows, COUNT_OF(rows)};
