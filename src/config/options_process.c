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
#define X(name, word) word,
    ACCESS_FORMATS(X)
#undef X
        NULL};

static bool idle_is_written(const void *policy)
{
    return ((const struct policy *)policy)->timeouts.idle_us != 0;
}

static bool memory_is_written(const void *policy)
{
    return ((const struct policy *)policy)->size_limits.memory != 0;
}

/* clang-format off: path, type, member, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"half_close", &type_enum, OF(half_close), "end", 0, 0, 0, half_close_names, NULL,
     "handling of a client that closes its sending side while its request is in flight"},

    {"timeouts", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL, "timeouts of client connections"},
    {"timeouts.request_header", &type_duration, OF(timeouts.request_header_us), "10s", MS(10),
     HOURS(1), 0, NULL, NULL, "maximum time to receive the complete request header (10ms to 1h)"},
    {"timeouts.request_body", &type_duration, OF(timeouts.request_body_us), "30s", MS(10), HOURS(1),
     0, NULL, NULL, "maximum time between two reads of the request body (10ms to 1h)"},
    {"timeouts.body_min_rate", &type_number, OF(timeouts.body_min_rate), "100", 0, 1 << 30, 0, NULL,
     NULL, "minimum rate of the request body in bytes per second, measured over request_body"},
    {"timeouts.keepalive", &type_duration, OF(timeouts.keepalive_us), "75s", MS(10), HOURS(24),
     DERIVED, NULL, NULL, "maximum time between two requests on one connection (10ms to 1d)"},
    {"timeouts.tunnel", &type_duration, OF(timeouts.tunnel_us), "1h", MS(10), HOURS(24 * 31),
     DERIVED, NULL, NULL,
     "maximum time without data in either direction of an upgraded connection, such as a "
     "WebSocket (10ms to 31d)"},
    {"timeouts.send", &type_duration, OF(timeouts.send_us), "60s", MS(10), HOURS(24), DERIVED, NULL,
     NULL, "maximum time between two writes of a response to the client (10ms to 1d)"},
    {"timeouts.send_min_rate", &type_number, OF(timeouts.send_min_rate), "100", 0, 1 << 30, 0, NULL,
     NULL,
     "minimum rate in bytes per second at which a client takes a response, measured over send "
     "while "
     "weir holds unsent bytes"},
    {"timeouts.idle", &type_duration, OF(timeouts.idle_us), "none", MS(10), HOURS(24), DERIVED,
     NULL, idle_is_written,
     "value of timeouts.keepalive, timeouts.tunnel and timeouts.send if they are not set (10ms "
     "to 1d)"},
    {"timeouts.exchange", &type_duration, OF(timeouts.exchange_us), "0s", 0, HOURS(24), 0, NULL,
     NULL, "maximum time from the request header to the last byte of the response (at most 1d)"},
    {"timeouts.linger", &type_duration, OF(timeouts.linger_us), "30s", 0, HOURS(1), 0, NULL, NULL,
     "maximum time to read and discard request content that arrives after the response (at most "
     "1h)"},
    {"timeouts.drain", &type_duration, OF(timeouts.drain_us), "0s", 0, HOURS(1), 0, NULL, NULL,
     "time between SIGTERM and the closing of the listeners (0 to 1h)"},
    {"timeouts.shutdown", &type_duration, OF(timeouts.shutdown_us), "30s", 0, HOURS(24), 0, NULL,
     NULL, "maximum time for requests in flight when weir stops (0 to 1d)"},

    {"size_limits", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL,
     "maximum sizes of messages, and maximum numbers of connections"},
    {"size_limits.request_header", &type_size, OF(size_limits.request_header), "16k", KIB(1),
     KIB(64), 0, NULL, NULL, "maximum size of a request header (1k to 64k)"},
    {"size_limits.request_body", &type_size, OF(size_limits.request_body), "0", 0, INT64_C(1) << 53,
     0, NULL, NULL, "maximum size of a request body"},
    {"size_limits.response_header", &type_size, OF(size_limits.response_header), "64k", KIB(1),
     KIB(64), 0, NULL, NULL, "maximum size of a response header (1k to 64k)"},
    {"size_limits.connections", &type_count, OF(size_limits.connections), "10000", 0, 10000000, 0,
     NULL, NULL, "maximum number of client connections, divided equally among the workers"},
    {"size_limits.connections_per_ip", &type_count, OF(size_limits.connections_per_ip),
     "a quarter of connections", 0, 10000000, DERIVED, NULL, NULL,
     "maximum number of client connections from one address, across all workers"},
    {"size_limits.memory", &type_size, OF(size_limits.memory), "a quarter of the memory", MIB(16),
     INT64_C(1) << 50, DERIVED, NULL, memory_is_written,
     "maximum memory of all buffers of the process (at least 16m)"},
    {"size_limits.requests_per_client", &type_count, OF(size_limits.requests_per_client), "1000", 0,
     10000000, 0, NULL, NULL,
     "maximum number of requests under way of one client address, across all workers"},

    {"http2", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL, "bounds of HTTP/2 connections"},
    {"http2.max_concurrent_streams", &type_count, OF(http2.max_concurrent_streams), "100", 1, 10000,
     0, NULL, NULL, "maximum number of requests in flight on one connection (1 to 10000)"},
    {"http2.initial_window", &type_size, OF(http2.initial_window), "64k", KIB(1), MIB(16), 0, NULL,
     NULL,
     "content of one request that a client may send while the server does not read it (1k to "
     "16m)"},
    {"http2.max_header_list", &type_size, OF(http2.max_header_list), "32k", KIB(1), KIB(64), 0,
     NULL, NULL, "maximum size of the header fields of a request (1k to 64k)"},
    {"http2.resets_per_second", &type_count, OF(http2.resets_per_second), "100", 1, 100000, 0, NULL,
     NULL, "maximum rate at which a client may reset streams of one connection (1 to 100000)"},

    {"log", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL, "log of events and requests"},
    {"log.level", &type_enum, OF(log.level), "info", 0, 0, 0, level_names, NULL,
     "minimum severity of logged events: error, warn, info or debug"},
    {"log.format", &type_enum, OF(log.format), "text", 0, 0, 0, format_names, NULL,
     "format of events"},
    {"log.access", &type_enum, OF(log.access), "json", 0, 0, 0, access_names, NULL,
     "format of the access log, which has one line per request"},
    {"log.file", &type_text, OF(log.file), "stderr", 1, 4096, 0, NULL, NULL,
     "path of the log file, or stderr"},
};
/* clang-format on */

const struct option_group options_process = {rows, COUNT_OF(rows)};
