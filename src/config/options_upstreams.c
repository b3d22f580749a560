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

/* clang-format off: path, type, member, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"upstreams", &type_upstreams, WHOLE, NULL, 1, UPSTREAMS_MAX, REQUIRED, NULL, NULL,
     "upstreams by name (at most 256)"},
    {"upstreams.NAME.servers", &type_servers, WHOLE, NULL, 1, SERVERS_MAX, REQUIRED, NULL, NULL,
     "servers of the upstream (at most 64): host:port or unix:/path"},
    {"upstreams.NAME.protocol", &type_enum, UPSTREAM(protocol), "http1", 0, 0, 0, protocol_names,
     NULL,
     "HTTP version: http1, http2 (with tls by ALPN, else with prior knowledge), or auto (with tls: "
     "HTTP/2 if the server offers it)"},
    {"upstreams.NAME.connect_timeout", &type_duration, UPSTREAM(connect_timeout_us), "1s", MS(1),
     SEC(60), 0, NULL, NULL, "maximum time to connect to a server (1ms to 1m)"},
    {"upstreams.NAME.response_timeout", &type_duration, UPSTREAM(response_timeout_us), "30s", MS(1),
     HOURS(24), 0, NULL, NULL,
     "maximum time to wait for the response header, and between two reads of the response body "
     "(1ms to 1d)"},
    {"upstreams.NAME.forwarded", &type_bool, UPSTREAM(forwarded), "false", 0, 0, 0, NULL, NULL,
     "if true, weir adds Forwarded (RFC 7239) with for, host and proto to requests, in addition "
     "to X-Forwarded-*"},
    {"upstreams.NAME.tls", &type_client_tls, UPSTREAM(tls), "", 0, 0, 0, NULL, NULL,
     "true or a map enables TLS 1.2 and newer to the servers"},
    {"upstreams.NAME.tls.verify", &type_bool, CLIENT_TLS(verify), "true", 0, 0, 0, NULL, NULL,
     "if false, weir accepts any certificate, which allows man-in-the-middle attacks"},
    {"upstreams.NAME.tls.ca", &type_text, CLIENT_TLS(ca), "", 1, 4096, 0, NULL, NULL,
     "path of a PEM file with the trusted certificate authorities, instead of those of the "
     "system"},
    {"upstreams.NAME.tls.server_name", &type_text, CLIENT_TLS(server_name), "", 1,
     HOST_NAME_BYTES_MAX, 0, NULL, NULL, "Host name or address that the certificate must match"},
    {"upstreams.NAME.tls.certificate", &type_text, CLIENT_TLS(certificate), "", 1, 4096, 0, NULL,
     NULL, "path of a PEM file with a client certificate, for servers that request one"},
    {"upstreams.NAME.tls.key", &type_text, CLIENT_TLS(key), "", 1, 4096, 0, NULL, NULL,
     "path of a PEM file with the private key of the client certificate"},
    {"upstreams.NAME.health", &type_health, UPSTREAM(health), "", 0, 0, 0, NULL,
     upstream_has_health, "active health checks"},
    {"upstreams.NAME.health.path", &type_health_path, HEALTH(path), "", 1, 1024, 0, NULL, NULL,
     "path that is requested with GET; either path or grpc is required"},
    {"upstreams.NAME.health.grpc", &type_text, HEALTH(grpc), "", 0, HEALTH_SERVICE_MAX, 0, NULL,
     NULL,
     "name of a gRPC service, or \"\" for the whole server: the gRPC health checking protocol is "
     "used, and the server is healthy while it reports SERVING; requires protocol: http2"},
    {"upstreams.NAME.health.host", &type_text, HEALTH(host), "", 1, HOST_NAME_BYTES_MAX + 6, 0,
     NULL, NULL, "value of the Host header"},
    {"upstreams.NAME.health.interval", &type_duration, HEALTH(interval_us), "5s", MS(10), HOURS(1),
     0, NULL, NULL, "time between two checks of a server (10ms to 1h)"},
    {"upstreams.NAME.health.timeout", &type_duration, HEALTH(timeout_us), "2s", MS(10), SEC(60), 0,
     NULL, NULL, "maximum time of a check, including the connection setup (10ms to 1m)"},
    {"upstreams.NAME.health.status", &type_statuses, HEALTH(statuses), "[ 2xx, 3xx ]", 1,
     STATUSES_MAX, 0, NULL, NULL, "statuses of a successful check, such as 204 or 2xx, or all"},
    {"upstreams.NAME.health.unhealthy", &type_count, HEALTH(unhealthy), "3", 1, 100, 0, NULL, NULL,
     "number of consecutive failed checks after which a server is unhealthy (1 to 100)"},
    {"upstreams.NAME.health.healthy", &type_count, HEALTH(healthy), "2", 1, 100, 0, NULL, NULL,
     "number of consecutive successful checks after which a server is healthy again (1 to 100)"},
    {"upstreams.NAME.retry", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL,
     "retries on another server of the upstream"},
    {"upstreams.NAME.retry.on", &type_words, RETRY(on), "[ connect, reset ]", 0, 0, 0, retry_names,
     NULL, "failures after which weir tries another server"},
    {"upstreams.NAME.retry.tries", &type_count, RETRY(tries), "2", 1, 10, 0, NULL, NULL,
     "maximum number of servers that a request is sent to, including the first (1 to 10)"},
    {"upstreams.NAME.retry.budget", &type_share, RETRY(budget), "20%", 0, SHARE_WHOLE, 0, NULL,
     NULL,
     "maximum number of retries per worker in 10 seconds, as a share of its requests to this "
     "upstream"},
    {"upstreams.NAME.retry.budget_min", &type_count, RETRY(budget_min), "10", 0, 1000000, 0, NULL,
     NULL,
     "number of retries per worker in 10 seconds that are allowed in addition to budget (0 to "
     "1000000)"},
    {"upstreams.NAME.eject", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL,
     "passive health checks: a server gets no requests for some time after requests to it failed"},
    {"upstreams.NAME.eject.failures", &type_count, EJECT(failures), "5", 0, 1000, 0, NULL, NULL,
     "number of consecutive failed requests that eject a server (1 to 1000)"},
    {"upstreams.NAME.eject.failure_rate", &type_share, EJECT(failure_rate), "25%", 0, SHARE_WHOLE,
     0, NULL, NULL, "share of failed requests within eject.window that ejects a server"},
    {"upstreams.NAME.eject.requests", &type_count, EJECT(requests), "20", 1, 1000000, 0, NULL, NULL,
     "minimum number of requests within eject.window for eject.failure_rate to apply (1 to "
     "1000000)"},
    {"upstreams.NAME.eject.window", &type_duration, EJECT(window_us), "10s", MS(100), HOURS(1), 0,
     NULL, NULL, "period over which requests and failures are counted (100ms to 1h)"},
    {"upstreams.NAME.eject.status", &type_statuses, EJECT(statuses), "[]", 0, STATUSES_MAX, 0, NULL,
     NULL, "response statuses that count as failures, such as 503 or 5xx"},
    {"upstreams.NAME.eject.time", &type_duration, EJECT(time_us), "10s", MS(10), HOURS(1), 0, NULL,
     NULL, "duration of an ejection (10ms to 1h)"},
    {"upstreams.NAME.eject.at_most", &type_share, EJECT(at_most), "50%", 0, SHARE_WHOLE, 0, NULL,
     NULL,
     "maximum share of the servers that failures may eject, rounded down, but at least one "
     "server"},

    {"resolver", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL,
     "resolution of host names of upstream servers and of redis.address"},
    {"resolver.nameservers", &type_nameservers, OF(resolver), "[]", 0, NAMESERVERS_MAX, 0, NULL,
     NULL, "addresses of nameservers (at most 8), with a port if it is not 53"},
    {"resolver.timeout", &type_duration, OF(resolver.timeout_us), "5s", MS(10), SEC(60), 0, NULL,
     NULL, "maximum time to resolve a name, with three tries (10ms to 1m)"},
    {"resolver.min_ttl", &type_duration, OF(resolver.min_ttl_us), "1s", MS(10), HOURS(24), 0, NULL,
     NULL, "minimum time for which a response is cached, if its TTL is shorter (10ms to 1d)"},
    {"resolver.max_ttl", &type_duration, OF(resolver.max_ttl_us), "5m", MS(10), HOURS(24), 0, NULL,
     NULL, "maximum time for which a response is cached, if its TTL is longer (10ms to 1d)"},
    {"resolver.ipv6", &type_bool, OF(resolver.ipv6), "true", 0, 0, 0, NULL, NULL,
     "if true, weir resolves IPv6 addresses as well"},
};
/* clang-format on */

const struct option_group options_upstreams = {rows, COUNT_OF(rows)};
