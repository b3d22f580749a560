/* options_upstreams.c - rows of the option table: upstreams and resolver. */
#include "config/option_rows.h"

#define UPSTREAM(m) MEMBER(upstream, m)
#define HEALTH(m)   MEMBER(upstream_health, m)
#define RETRY(m)    MEMBER(upstream, retry.m)
#define EJECT(m)    MEMBER(upstream, eject.m)

/* In the order of enum retry_on. */
static const char *const retry_names[] = {"connect", "reset", "timeout", "502", "503", "504", NULL};

static const char *const protocol_names[] = {
    [UPSTREAM_HTTP1] = "http1", [UPSTREAM_HTTP2] = "http2", [UPSTREAM_AUTO] = "auto", NULL};

/* clang-format off */
static const struct option rows[] = {
    {.path = "upstreams", .type = &type_upstreams, .low = 1, .high = UPSTREAMS_MAX,
     .flags = REQUIRED, UNSET(policy, rate_limit_service.is_alone),
     .help = "upstreams by name (at most 256)"},
    {.path = "upstreams.NAME.servers", .type = &type_servers, .low = 1, .high = SERVERS_MAX,
     .flags = REQUIRED,
     .help = "servers of the upstream (at most 64): host:port or unix:/path"},
    {.path = "upstreams.NAME.protocol", .type = &type_enum, UPSTREAM(protocol),
     .fallback = "http1", .names = protocol_names,
     .help = "HTTP version: http1, http2 (with tls by ALPN, else with prior knowledge), or auto "
             "(with tls: HTTP/2 if the server offers it)"},
    {.path = "upstreams.NAME.connect_timeout", .type = &type_duration,
     UPSTREAM(connect_timeout_us), .fallback = "1s", .low = MS(1), .high = SEC(60),
     .help = "maximum time to connect to a server (1ms to 1m)"},
    {.path = "upstreams.NAME.response_timeout", .type = &type_duration,
     UPSTREAM(response_timeout_us), .fallback = "30s", .low = MS(1), .high = HOURS(24),
     .help = "maximum time to wait for the response header, and between two reads of the "
             "response body (1ms to 1d)"},
    {.path = "upstreams.NAME.forwarded", .type = &type_bool, UPSTREAM(forwarded),
     .fallback = "false",
     .help = "if true, weir adds Forwarded (RFC 7239) with for, host and proto to requests, in "
             "addition to X-Forwarded-*"},
    {.path = "upstreams.NAME.client_certificate_header", .type = &type_own_header,
     UPSTREAM(certificate_header), .fallback = "", .low = 1, .high = 128,
     .help = "request header with the subject of the client's certificate, such as "
             "X-Client-Certificate-Subject"},
    {.path = "upstreams.NAME.tls", .type = &type_client_tls, UPSTREAM(tls), .fallback = "",
     .help = "true or a map enables TLS 1.2 and newer to the servers"},
    {.path = "upstreams.NAME.tls.verify", .type = &type_bool, CLIENT_TLS(verify),
     .fallback = "true",
     .help = "if false, weir accepts any certificate, which allows man-in-the-middle attacks"},
    {.path = "upstreams.NAME.tls.ca", .type = &type_text, CLIENT_TLS(ca), .fallback = "", .low = 1,
     .high = 4096,
     .help = "path of a PEM file with the trusted certificate authorities, instead of those of "
             "the system"},
    {.path = "upstreams.NAME.tls.server_name", .type = &type_text, CLIENT_TLS(server_name),
     .fallback = "", .low = 1, .high = HOST_NAME_BYTES_MAX,
     .help = "Host name or address that the certificate must match"},
    {.path = "upstreams.NAME.tls.certificate", .type = &type_text, CLIENT_TLS(certificate),
     .fallback = "", .low = 1, .high = 4096,
     .help = "path of a PEM file with a client certificate, for servers that request one"},
    {.path = "upstreams.NAME.tls.key", .type = &type_text, CLIENT_TLS(key), .fallback = "",
     .low = 1, .high = 4096,
     .help = "path of a PEM file with the private key of the client certificate"},
    {.path = "upstreams.NAME.health", .type = &type_health, UPSTREAM(health), .fallback = "",
     .applies = upstream_has_health,
     .help = "active health checks"},
    {.path = "upstreams.NAME.health.path", .type = &type_health_path, HEALTH(path), .fallback = "",
     .low = 1, .high = 1024,
     .help = "path that is requested with GET; either path or grpc is required"},
    {.path = "upstreams.NAME.health.grpc", .type = &type_text, HEALTH(grpc), .fallback = "",
     .high = HEALTH_SERVICE_MAX,
     .help = "name of a gRPC service, or \"\" for the whole server: the gRPC health checking "
             "protocol is used, and the server is healthy while it reports SERVING; requires "
             "protocol: http2"},
    {.path = "upstreams.NAME.health.host", .type = &type_text, HEALTH(host), .fallback = "",
     .low = 1, .high = HOST_NAME_BYTES_MAX + 6,
     .help = "value of the Host header"},
    {.path = "upstreams.NAME.health.interval", .type = &type_duration, HEALTH(interval_us),
     .fallback = "5s", .low = MS(10), .high = HOURS(1),
     .help = "time between two checks of a server (10ms to 1h)"},
    {.path = "upstreams.NAME.health.timeout", .type = &type_duration, HEALTH(timeout_us),
     .fallback = "2s", .low = MS(10), .high = SEC(60),
     .help = "maximum time of a check, including the connection setup (10ms to 1m)"},
    {.path = "upstreams.NAME.health.status", .type = &type_statuses, HEALTH(statuses),
     .fallback = "[ 2xx, 3xx ]", .low = 1, .high = STATUSES_MAX,
     .help = "statuses of a successful check, such as 204 or 2xx, or all"},
    {.path = "upstreams.NAME.health.unhealthy", .type = &type_count, HEALTH(unhealthy),
     .fallback = "3", .low = 1, .high = 100,
     .help = "number of consecutive failed checks after which a server is unhealthy (1 to 100)"},
    {.path = "upstreams.NAME.health.healthy", .type = &type_count, HEALTH(healthy),
     .fallback = "2", .low = 1, .high = 100,
     .help = "number of consecutive successful checks after which a server is healthy again (1 "
             "to 100)"},
    {.path = "upstreams.NAME.retry", .type = &type_section, .fallback = "",
     .help = "retries on another server of the upstream"},
    {.path = "upstreams.NAME.retry.on", .type = &type_words, RETRY(on),
     .fallback = "[ connect, reset ]", .names = retry_names,
     .help = "failures after which weir tries another server"},
    {.path = "upstreams.NAME.retry.tries", .type = &type_count, RETRY(tries), .fallback = "2",
     .low = 1, .high = 10,
     .help = "maximum number of servers that a request is sent to, including the first (1 to 10)"},
    {.path = "upstreams.NAME.retry.budget", .type = &type_share, RETRY(budget), .fallback = "20%",
     .high = SHARE_WHOLE,
     .help = "maximum number of retries per worker in 10 seconds, as a share of its requests to "
             "this upstream"},
    {.path = "upstreams.NAME.retry.budget_min", .type = &type_count, RETRY(budget_min),
     .fallback = "10", .high = 1000000,
     .help = "number of retries per worker in 10 seconds that are allowed in addition to budget "
             "(0 to 1000000)"},
    {.path = "upstreams.NAME.eject", .type = &type_section, .fallback = "",
     .help = "passive health checks: a server gets no requests for some time after requests to "
             "it failed"},
    {.path = "upstreams.NAME.eject.failures", .type = &type_count, EJECT(failures),
     .fallback = "5", .high = 1000,
     .help = "number of consecutive failed requests that eject a server (1 to 1000)"},
    {.path = "upstreams.NAME.eject.failure_rate", .type = &type_share, EJECT(failure_rate),
     .fallback = "25%", .high = SHARE_WHOLE,
     .help = "share of failed requests within eject.window that ejects a server"},
    {.path = "upstreams.NAME.eject.requests", .type = &type_count, EJECT(requests),
     .fallback = "20", .low = 1, .high = 1000000,
     .help = "minimum number of requests within eject.window for eject.failure_rate to apply (1 "
             "to 1000000)"},
    {.path = "upstreams.NAME.eject.window", .type = &type_duration, EJECT(window_us),
     .fallback = "10s", .low = MS(100), .high = HOURS(1),
     .help = "period over which requests and failures are counted (100ms to 1h)"},
    {.path = "upstreams.NAME.eject.status", .type = &type_statuses, EJECT(statuses),
     .fallback = "[]", .high = STATUSES_MAX,
     .help = "response statuses that count as failures, such as 503 or 5xx"},
    {.path = "upstreams.NAME.eject.time", .type = &type_duration, EJECT(time_us),
     .fallback = "10s", .low = MS(10), .high = HOURS(1),
     .help = "duration of an ejection (10ms to 1h)"},
    {.path = "upstreams.NAME.eject.at_most", .type = &type_share, EJECT(at_most),
     .fallback = "50%", .high = SHARE_WHOLE,
     .help = "maximum share of the servers that failures may eject, rounded down, but at least "
             "one server"},

    {.path = "resolver", .type = &type_section, .fallback = "",
     .help = "resolution of host names of upstream servers and of redis.address"},
    {.path = "resolver.nameservers", .type = &type_nameservers, OF(resolver), .fallback = "[]",
     .high = NAMESERVERS_MAX,
     .help = "addresses of nameservers (at most 8), with a port if it is not 53"},
    {.path = "resolver.timeout", .type = &type_duration, OF(resolver.timeout_us), .fallback = "5s",
     .low = MS(10), .high = SEC(60),
     .help = "maximum time to resolve a name, with three tries (10ms to 1m)"},
    {.path = "resolver.min_ttl", .type = &type_duration, OF(resolver.min_ttl_us), .fallback = "1s",
     .low = MS(10), .high = HOURS(24),
     .help = "minimum time for which a response is cached, if its TTL is shorter (10ms to 1d)"},
    {.path = "resolver.max_ttl", .type = &type_duration, OF(resolver.max_ttl_us), .fallback = "5m",
     .low = MS(10), .high = HOURS(24),
     .help = "maximum time for which a response is cached, if its TTL is longer (10ms to 1d)"},
    {.path = "resolver.ipv6", .type = &type_bool, OF(resolver.ipv6), .fallback = "true",
     .help = "if true, weir resolves IPv6 addresses as well"},
};
/* clang-format on */

const struct option_group options_upstreams = {rows, COUNT_OF(rows)};
