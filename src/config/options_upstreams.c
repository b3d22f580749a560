/* options_upstreams.c - rows of the option table: upstreams and resolver. */
#include "config/option_rows.h"

#define UPSTREAM(m)     offsetof(struct upstream, m)
#define UPSTREAM_TLS(m) offsetof(struct upstream_tls, m)
#define HEALTH(m)       offsetof(struct upstream_health, m)
#define RETRY(m)        offsetof(struct upstream, retry.m)
#define EJECT(m)        offsetof(struct upstream, eject.m)

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"upstreams", &type_upstreams, 0, NULL, 0, 0, REQUIRED, NULL, NULL,
     "the APIs behind weir, by name; the first is the one of rules that name none"},
    {"upstreams.NAME.servers", &type_servers, 0, NULL, 1, SERVERS_MAX, REQUIRED, NULL, NULL,
     "host:port or unix:/path, or a list of them; of several the one with the fewest requests under way is "
     "taken"},
    {"upstreams.NAME.connect_timeout", &type_duration, UPSTREAM(connect_timeout_us), "1s", MS(1), SEC(60), 0,
     NULL, NULL, "the most that connecting may take"},
    {"upstreams.NAME.response_timeout", &type_duration, UPSTREAM(response_timeout_us), "30s", MS(1),
     HOURS(24), 0, NULL, NULL, "the most until the head of the response, and between two pieces of its body"},
    {"upstreams.NAME.forwarded", &type_bool, UPSTREAM(forwarded), "false", 0, 0, 0, NULL, NULL,
     "say whom a request came from in Forwarded (RFC 7239) as well"},
    {"upstreams.NAME.tls", &type_upstream_tls, UPSTREAM(tls), "", 0, 0, 0, NULL, NULL,
     "true, or a map: TLS 1.2 and newer to the servers, whose certificates are verified"},
    {"upstreams.NAME.tls.verify", &type_bool, UPSTREAM_TLS(verify), "true", 0, 0, 0, NULL, NULL,
     "false: any certificate will do, and anybody in between can be the server"},
    {"upstreams.NAME.tls.ca", &type_text, UPSTREAM_TLS(ca), "", 1, 4096, 0, NULL, NULL,
     "a PEM file of the authorities to trust, in place of the system's; read again with a reload, as all of "
     "these"},
    {"upstreams.NAME.tls.server_name", &type_text, UPSTREAM_TLS(server_name), "", 1, HOST_NAME_BYTES_MAX, 0,
     NULL, NULL, "whom the certificate has to be for, a name or an address; unless given, the server's own"},
    {"upstreams.NAME.tls.certificate", &type_text, UPSTREAM_TLS(certificate), "", 1, 4096, 0, NULL, NULL,
     "a PEM file with a certificate of weir's own, for servers that ask for one"},
    {"upstreams.NAME.tls.key", &type_text, UPSTREAM_TLS(key), "", 1, 4096, 0, NULL, NULL,
     "a PEM file with its private key"},
    {"upstreams.NAME.health", &type_health, UPSTREAM(health), "", 0, 0, 0, NULL, upstream_has_health,
     "every server is asked time and again; those that do not answer well get no requests"},
    {"upstreams.NAME.health.path", &type_health_path, HEALTH(path), NULL, 1, 1024, REQUIRED, NULL, NULL,
     "what is asked for, by GET"},
    {"upstreams.NAME.health.host", &type_text, HEALTH(host), "", 1, HOST_NAME_BYTES_MAX + 6, 0, NULL, NULL,
     "the Host field; unless given, the server as written"},
    {"upstreams.NAME.health.interval", &type_duration, HEALTH(interval_us), "5s", MS(10), HOURS(1), 0, NULL,
     NULL, "from one check of a server to the next"},
    {"upstreams.NAME.health.timeout", &type_duration, HEALTH(timeout_us), "2s", MS(10), SEC(60), 0, NULL,
     NULL, "the most that a check may take, connecting included"},
    {"upstreams.NAME.health.status", &type_statuses, HEALTH(statuses), "[ 2xx, 3xx ]", 1, STATUSES_MAX, 0,
     NULL, NULL, "the statuses of good answers, such as 204 or 2xx"},
    {"upstreams.NAME.health.unhealthy", &type_count, HEALTH(unhealthy), "3", 1, 100, 0, NULL, NULL,
     "failed checks in a row after which a server gets no requests"},
    {"upstreams.NAME.health.healthy", &type_count, HEALTH(healthy), "2", 1, 100, 0, NULL, NULL,
     "good checks in a row after which it gets them again"},
    {"upstreams.NAME.retry", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "when a request is sent to another server; once it has been sent, only if its method is idempotent"},
    {"upstreams.NAME.retry.on", &type_retry_on, RETRY(on), "[ connect, reset ]", 0, 16, 0, NULL, NULL,
     "a list of connect, reset, timeout, 502, 503 and 504"},
    {"upstreams.NAME.retry.tries", &type_count, RETRY(tries), "2", 1, 10, 0, NULL, NULL,
     "servers that a request may be sent to, the first one included"},
    {"upstreams.NAME.retry.budget", &type_share, RETRY(budget), "20%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "retries as a share of a worker's requests within 10 seconds"},
    {"upstreams.NAME.retry.budget_min", &type_count, RETRY(budget_min), "10", 0, 1000000, 0, NULL, NULL,
     "retries of a worker within 10 seconds that are allowed besides"},
    {"upstreams.NAME.eject", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "when a server gets no requests for a while because requests to it failed"},
    {"upstreams.NAME.eject.failures", &type_count, EJECT(failures), "5", 0, 1000, 0, NULL, NULL,
     "failed requests in a row; 0: never"},
    {"upstreams.NAME.eject.failure_rate", &type_share, EJECT(failure_rate), "25%", 0, SHARE_WHOLE, 0, NULL,
     NULL, "share of a worker's requests to the server within window that failed; 0%: never"},
    {"upstreams.NAME.eject.requests", &type_count, EJECT(requests), "20", 1, 1000000, 0, NULL, NULL,
     "requests within window below which failure_rate does not apply"},
    {"upstreams.NAME.eject.window", &type_duration, EJECT(window_us), "10s", MS(100), HOURS(1), 0, NULL, NULL,
     "time over which requests and failures are counted"},
    {"upstreams.NAME.eject.status", &type_statuses, EJECT(statuses), "[]", 0, STATUSES_MAX, 0, NULL, NULL,
     "statuses of answers that count as failures, such as 503 or 5xx"},
    {"upstreams.NAME.eject.time", &type_duration, EJECT(time_us), "10s", MS(10), HOURS(1), 0, NULL, NULL,
     "time without requests; doubled if the server is ejected again soon after its return"},
    {"upstreams.NAME.eject.at_most", &type_share, EJECT(at_most), "50%", 0, SHARE_WHOLE, 0, NULL, NULL,
     "share of the servers that failures may eject; the last server is never ejected by failures"},

    {"resolver", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "how names of upstreams' servers become addresses: /etc/hosts, then DNS, again and again"},
    {"resolver.nameservers", &type_nameservers, OF(resolver), "[]", 0, NAMESERVERS_MAX, 0, NULL, NULL,
     "addresses, with a port where it is not 53; unless given, those of /etc/resolv.conf"},
    {"resolver.timeout", &type_duration, OF(resolver.timeout_us), "5s", MS(10), SEC(60), 0, NULL, NULL,
     "the most that a name may take, in three tries"},
    {"resolver.min_ttl", &type_duration, OF(resolver.min_ttl_us), "1s", MS(10), HOURS(24), 0, NULL, NULL,
     "an answer is believed for as long as it says, but no less than this"},
    {"resolver.max_ttl", &type_duration, OF(resolver.max_ttl_us), "5m", MS(10), HOURS(24), 0, NULL, NULL,
     "and no more than this"},
    {"resolver.ipv6", &type_bool, OF(resolver.ipv6), "true", 0, 0, 0, NULL, NULL,
     "whether IPv6 addresses are asked for as well"},
};
/* clang-format on */

const struct option_group options_upstreams = {rows, COUNT_OF(rows)};
