/* options_server.c - rows of the option table: workers, listen, admin and redis. */
#include "config/option_rows.h"

static const char *const on_failure_names[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny", NULL};

static const char *const request_from_names[] = {[REQUEST_FROM_FORWARDED] = "forwarded",
                                                 [REQUEST_FROM_ORIGINAL] = "original",
                                                 [REQUEST_FROM_REQUEST] = "request",
                                                 NULL};

#define LISTEN(m)      offsetof(struct listen_settings, m)
#define ADMIN(m)       offsetof(struct admin_listener, m)
#define CERTIFICATE(m) offsetof(struct certificate_files, m)

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"workers", &type_workers, OF(workers), "auto", 1, 256, RESTART, NULL, NULL,
     "threads, each with its own listeners, upstream and Redis connections; auto: one per processor"},

    {"listen", &type_listen, 0, "0.0.0.0:8080", 1, LISTEN_MAX, RESTART, NULL, NULL,
     "where clients connect: host:port, [ipv6]:port or unix:/path, or a list of them"},
    {"listen[].address", &type_address, LISTEN(address), NULL, 0, 0, RESTART | REQUIRED, NULL, NULL,
     "the address of a listener that is written as a map"},
    {"listen[].tls", &type_listen_tls, 0, "", 0, CERTIFICATES_MAX, 0, NULL, NULL,
     "TLS 1.2 and newer, with this certificate, or a list of them for several hosts or kinds of keys; the "
     "files are read "
     "again "
     "with a reload"},
    {"listen[].tls.certificate", &type_text, CERTIFICATE(certificate), NULL, 1, 4096, REQUIRED, NULL, NULL,
     "a PEM file with the certificate and those that lead to a trusted one"},
    {"listen[].tls.key", &type_text, CERTIFICATE(key), NULL, 1, 4096, REQUIRED, NULL, NULL,
     "a PEM file with its private key"},
    {"listen[].proxy_protocol", &type_bool, LISTEN(proxy_protocol), "false", 0, 0, RESTART, NULL, NULL,
     "connections come from a proxy among identity.trusted_proxies and begin with the PROXY protocol's "
     "header "
     "(version 1 or 2)"},
    {"listen[].http2", &type_bool, LISTEN(http2), "true", 0, 0, 0, NULL, NULL,
     "accept HTTP/2: by ALPN with TLS, by its preface (prior knowledge) without"},

    {"admin", &type_admin, 0, "", 0, ADMIN_LISTENERS_MAX, RESTART, NULL, NULL,
     "where health, metrics, API and dashboard are served: an address, a map, or a list; nowhere unless "
     "given"},
    {"admin[].address", &type_address, ADMIN(address), NULL, 0, 0, RESTART | REQUIRED, NULL, NULL,
     "host:port, [ipv6]:port or unix:/path"},
    {"admin[].read_only", &type_bool, ADMIN(read_only), "false", 0, 0, 0, NULL, NULL,
     "serve /healthz, /readyz and /metrics only"},
    {"admin[].token_file", &type_token_file, 0, "", 1, 4096, 0, NULL, NULL,
     "a file with the token that requests must send, except to /healthz and /readyz"},
    {"admin[].hosts", &type_admin_hosts, 0, "[]", 0, ADMIN_HOSTS_MAX, 0, NULL, NULL,
     "host names by which the listener may be addressed, beside IP addresses and localhost"},
    {"admin[].mode", &type_admin_mode, ADMIN(mode), "0600", 0, 0, RESTART, NULL, admin_is_unix,
     "permissions of a unix socket, in octal"},

    {"decisions", &type_section, 0, "", 0, 0, 0, NULL, has_decisions,
     "listener that decides requests for other proxies and forwards nothing"},
    {"decisions.listen", &type_address, OF(decisions.address), NULL, 0, 0, RESTART, NULL, NULL,
     "address of the listener: host:port, [ipv6]:port or unix:/path"},
    {"decisions.request_from", &type_enum, OF(decisions.request_from), "forwarded", 0, 0, 0,
     request_from_names, NULL, "where the request to decide on is read: forwarded, original or request"},
    {"decisions.deny_status", &type_count, OF(decisions.deny_status), "429", 400, 599, 0, NULL, NULL,
     "status code of rejections (400 to 599)"},
    {"decisions.trusted", &type_trusted, OF(decisions.peers), "loopback and trusted_proxies", 0, TRUSTED_MAX,
     DERIVED, NULL, NULL, "addresses and ranges of the proxies that may ask (at most 1024)"},

    {"redis", &type_section, 0, "", 0, 0, 0, NULL, NULL, "where it is kept what clients have used"},
    {"redis.address", &type_redis_address, OF(redis), "127.0.0.1:6379", 0, 0, 0, NULL, redis_has_address,
     "host:port, unix:/path, redis[s]://USER:PASSWORD@HOST:PORT/DATABASE, or embedded: a private "
     "redis-server "
     "that weir "
     "starts and stops (at a start alone)"},
    {"redis.sentinel", &type_sentinel, 0, "", 0, 0, 0, NULL, redis_has_sentinel,
     "in place of an address: sentinels that know where the master is"},
    {"redis.sentinel.master", &type_text, OF(redis.sentinel.master), NULL, 1, 256, REQUIRED, NULL, NULL,
     "what the sentinels call it"},
    {"redis.sentinel.nodes", &type_redis_nodes, OF(redis.sentinel.nodes), NULL, 1, REDIS_NODES_MAX, REQUIRED,
     NULL, NULL, "host:port of sentinels, one or a list; they tell of the others"},
    {"redis.sentinel.username", &type_text, OF(redis.sentinel.username), "", 1, 256, 0, NULL, NULL,
     "the user to authenticate to the sentinels as; needs a password"},
    {"redis.sentinel.password", &type_secret, OF(redis.sentinel.password), "", 1, 1024, 0, NULL, NULL,
     "the password of the sentinels"},
    {"redis.cluster", &type_cluster, OF(redis), "", 1, REDIS_NODES_MAX, 0, NULL, redis_has_cluster,
     "in place of an address: host:port of nodes of a Redis Cluster, one or a list; they tell of the others"},
    {"redis.username", &type_text, OF(redis.username), "", 1, 256, 0, NULL, NULL,
     "the user to authenticate as; needs a password"},
    {"redis.password", &type_secret, OF(redis.password), "", 1, 1024, 0, NULL, redis_has_password,
     "the password to authenticate with; keep it out of the file with ${NAME}"},
    {"redis.password_file", &type_password_file, OF(redis), "", 1, 4096, 0, NULL, NULL,
     "a file that holds the password and nothing else"},
    {"redis.database", &type_count, OF(redis.database), "0", 0, 65535, 0, NULL, NULL,
     "the number of the database to SELECT"},
    {"redis.key_prefix", &type_key_prefix, OF(redis.key_prefix), "weir", 1, 64, 0, NULL, NULL,
     "what every key in Redis starts with"},
    {"redis.timeout", &type_duration, OF(redis.timeout_us), "50ms", MS(1), SEC(10), 0, NULL, NULL,
     "the most a decision may wait for Redis; then on_failure"},
    {"redis.on_failure", &type_enum, OF(redis.on_failure), "local", 0, 0, 0, on_failure_names, NULL,
     "what is decided without Redis: local (limit in this process until Redis is back), allow, deny (503)"},
    {"redis.instances", &type_count, OF(redis.instances), "1", 1, 1000, 0, NULL, NULL,
     "how many weirs share this Redis: under on_failure: local each admits its part of a limit, at least 1"},
    {"redis.tls", &type_client_tls, OF(redis.tls), "", CLIENT_TLS_NO_ALPN, CLIENT_TLS_NO_ALPN, 0, NULL, NULL,
     "true, or a map: TLS 1.2 and newer to Redis, whose certificate is verified"},
    {"redis.tls.verify", &type_bool, CLIENT_TLS(verify), "true", 0, 0, 0, NULL, NULL,
     "false: accept any certificate, and so anyone between weir and Redis"},
    {"redis.tls.ca", &type_text, CLIENT_TLS(ca), "", 1, 4096, 0, NULL, NULL,
     "a PEM file of the authorities to trust, in place of the system's; read again with a reload, as all of "
     "these"},
    {"redis.tls.server_name", &type_text, CLIENT_TLS(server_name), "", 1, HOST_NAME_BYTES_MAX, 0, NULL, NULL,
     "the name or address that the certificates are for; unless given, the host or address connected to"},
    {"redis.tls.certificate", &type_text, CLIENT_TLS(certificate), "", 1, 4096, 0, NULL, NULL,
     "a PEM file with weir's own certificate, for servers that require one (tls-auth-clients)"},
    {"redis.tls.key", &type_text, CLIENT_TLS(key), "", 1, 4096, 0, NULL, NULL,
     "a PEM file with its private key"},
};
/* clang-format on */

const struct option_group options_server = {rows, COUNT_OF(rows)};
