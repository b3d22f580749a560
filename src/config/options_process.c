/* options_process.c - rows of the option table: half_close, timeouts, size_limits and log. */
#include "config/option_rows.h"

static const char *const half_close_names[] = {[HALF_CLOSE_END] = "end", [HALF_CLOSE_ALLOW] = "allow", NULL};
static const char *const level_names[] = {
    [LEVEL_ERROR] = "error", [LEVEL_WARN] = "warn", [LEVEL_INFO] = "info", [LEVEL_DEBUG] = "debug", NULL};
static const char *const format_names[] = {[LOG_TEXT] = "text", [LOG_JSON] = "json", NULL};
static const char *const access_names[] = {
    [ACCESS_OFF] = "off", [ACCESS_JSON] = "json", [ACCESS_COMBINED] = "combined", NULL};

static bool idle_is_written(const void *policy)
{
    return ((const struct policy *)policy)->timeouts.idle_us != 0;
}

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"half_close", &type_enum, OF(half_close), "end", 0, 0, 0, half_close_names, NULL,
     "a client that closes its sending side while its request is under way: end (it has left), allow (it "
     "waits for the answer)"},

    {"timeouts", &type_section, 0, "", 0, 0, 0, NULL, NULL, "how long clients may take"},
    {"timeouts.request_header", &type_duration, OF(timeouts.request_header_us), "10s", MS(10), HOURS(1), 0,
     NULL, NULL, "for the whole head of a request"},
    {"timeouts.request_body", &type_duration, OF(timeouts.request_body_us), "30s", MS(10), HOURS(1), 0, NULL,
     NULL, "between two pieces of a request's body"},
    {"timeouts.body_min_rate", &type_number, OF(timeouts.body_min_rate), "100", 0, 1 << 30, 0, NULL, NULL,
     "bytes a second that a body must come with, over request_body; 0: none"},
    {"timeouts.keepalive", &type_duration, OF(timeouts.keepalive_us), "75s", MS(10), HOURS(24), DERIVED, NULL,
     NULL, "between two requests on one connection"},
    {"timeouts.tunnel", &type_duration, OF(timeouts.tunnel_us), "1h", MS(10), HOURS(24 * 31), DERIVED, NULL,
     NULL, "without a byte in either direction of an upgraded connection, such as a WebSocket"},
    {"timeouts.send", &type_duration, OF(timeouts.send_us), "60s", MS(10), HOURS(24), DERIVED, NULL, NULL,
     "between two pieces of an answer that a client takes"},
    {"timeouts.idle", &type_duration, OF(timeouts.idle_us), "none", MS(10), HOURS(24), DERIVED, NULL,
     idle_is_written, "in place of keepalive, tunnel and send where they are not given"},
    {"timeouts.exchange", &type_duration, OF(timeouts.exchange_us), "0s", 0, HOURS(24), 0, NULL, NULL,
     "from a request's head to the last byte of its answer; tunnels excepted; 0: any time"},
    {"timeouts.linger", &type_duration, OF(timeouts.linger_us), "30s", 0, HOURS(1), 0, NULL, NULL,
     "how long content that comes after an answer is read and dropped, so that the client sees the answer"},
    {"timeouts.drain", &type_duration, OF(timeouts.drain_us), "0s", 0, HOURS(1), 0, NULL, NULL,
     "accepting connections after SIGTERM, while /readyz is 503"},
    {"timeouts.shutdown", &type_duration, OF(timeouts.shutdown_us), "30s", 0, HOURS(24), 0, NULL, NULL,
     "for requests under way when weir is told to stop"},

    {"size_limits", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "how large messages may be, and how many connections"},
    {"size_limits.request_header", &type_size, OF(size_limits.request_header), "16k", KIB(1), KIB(64), 0,
     NULL, NULL, "of a request's head"},
    {"size_limits.request_body", &type_size, OF(size_limits.request_body), "0", 0, INT64_C(1) << 53, 0, NULL,
     NULL, "of a request's body; 0: any"},
    {"size_limits.response_header", &type_size, OF(size_limits.response_header), "64k", KIB(1), KIB(64), 0,
     NULL, NULL, "of a response's head, which has at most 1000 fields"},
    {"size_limits.connections", &type_count, OF(size_limits.connections), "10000", 0, 10000000, 0, NULL, NULL,
     "clients connected at the same time; 0: any"},
    {"size_limits.connections_per_ip", &type_count, OF(size_limits.connections_per_ip),
     "a quarter of connections", 0, 10000000, DERIVED, NULL, NULL,
     "the same from one address, trusted proxies excepted; 0: any"},

    {"http2", &type_section, 0, "", 0, 0, 0, NULL, NULL, "bounds of HTTP/2 connections"},
    {"http2.max_concurrent_streams", &type_count, OF(http2.max_concurrent_streams), "100", 1, 10000, 0, NULL,
     NULL, "requests at the same time on one connection"},
    {"http2.initial_window", &type_size, OF(http2.initial_window), "64k", KIB(1), MIB(16), 0, NULL, NULL,
     "content of a request that a client may send before its server reads on"},
    {"http2.max_header_list", &type_size, OF(http2.max_header_list), "32k", KIB(1), KIB(64), 0, NULL, NULL,
     "of a request's fields, each counted with 32 bytes more (RFC 9113 section 6.5.2)"},
    {"http2.resets_per_second", &type_count, OF(http2.resets_per_second), "100", 1, 100000, 0, NULL, NULL,
     "streams that a connection may reset, twice as many at once; more end it"},

    {"log", &type_section, 0, "", 0, 0, 0, NULL, NULL, "what is written where"},
    {"log.level", &type_enum, OF(log.level), "info", 0, 0, 0, level_names, NULL,
     "how much weir says of itself"},
    {"log.format", &type_enum, OF(log.format), "text", 0, 0, 0, format_names, NULL,
     "how events are written: text, or json, an object each"},
    {"log.access", &type_enum, OF(log.access), "json", 0, 0, 0, access_names, NULL,
     "a line for every request, and its form"},
    {"log.file", &type_text, OF(log.file), "stderr", 1, 4096, 0, NULL, NULL,
     "a path, or stderr: the journal, under systemd"},
};
/* clang-format on */

const struct option_group options_process = {rows, COUNT_OF(rows)};
