/* options_server.c - rows of the option table: workers, listen, admin and redis. */
#include "config/option_rows.h"

static const char *const on_failure_names[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny", NULL};

static const char *const request_from_names[] = {[REQUEST_FROM_FORWARDED] = "forwarded",
                                                 [REQUEST_FROM_ORIGINAL] = "original",
                                                 [REQUEST_FROM_REQUEST] = "request",
                                                 NULL};

#define LISTEN(m)      MEMBER(listen_settings, m)
#define ADMIN(m)       MEMBER(admin_listener, m)
#define CERTIFICATE(m) MEMBER(certificate_files, m)

/* clang-format off: path, type, member, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"workers", &type_workers, OF(workers), "auto", 1, 256, RESTART, NULL, NULL,
     "number of worker threads (1 to 256)"},

    {"listen", &type_listen, WHOLE, "0.0.0.0:8080", 1, LISTEN_MAX, RESTART, NULL, NULL,
     "addresses on which weir accepts clients (at most 64): host:port, [ipv6]:port or unix:/path"},
    {"listen[].address", &type_address, LISTEN(address), NULL, 0, 0, RESTART | REQUIRED, NULL, NULL,
     "address of an entry that is written as a map"},
    {"listen[].tls", &type_listen_tls, WHOLE, "", 0, CERTIFICATES_MAX, 0, NULL, NULL,
     "enables TLS 1.2 and newer with this certificate or list of certificates"},
    {"listen[].tls.certificate", &type_text, CERTIFICATE(certificate), NULL, 1, 4096, REQUIRED,
     NULL, NULL,
     "path of a PEM file with the certificate, followed by its intermediate certificates in "
     "order"},
    {"listen[].tls.key", &type_text, CERTIFICATE(key), NULL, 1, 4096, REQUIRED, NULL, NULL,
     "path of a PEM file with the private key, without a passphrase"},
    {"listen[].proxy_protocol", &type_bool, LISTEN(proxy_protocol), "false", 0, 0, RESTART, NULL,
     NULL,
     "if true, connections must come from a proxy in identity.trusted_proxies and begin with a "
     "PROXY protocol header, version 1 or 2"},
    {"listen[].http2", &type_bool, LISTEN(http2), "true", 0, 0, 0, NULL, NULL,
     "accepts HTTP/2 (RFC 9113) beside HTTP/1.1"},

    {"admin", &type_admin, WHOLE, "", 0, ADMIN_LISTENERS_MAX, RESTART, NULL, NULL,
     "addresses of the admin listeners (at most 16), which serve /healthz, /readyz, /metrics, "
     "the API and the dashboard"},
    {"admin[].address", &type_address, ADMIN(address), NULL, 0, 0, RESTART | REQUIRED, NULL, NULL,
     "address of an entry that is written as a map: host:port, [ipv6]:port or unix:/path"},
    {"admin[].read_only", &type_bool, ADMIN(read_only), "false", 0, 0, 0, NULL, NULL,
     "if true, the listener serves /healthz, /readyz and /metrics only"},
    {"admin[].token_file", &type_token_file, WHOLE, "", 1, 4096, 0, NULL, NULL,
     "file with a token of 16 to 512 letters, digits and -._~+/ on one line, such as the output "
     "of openssl rand -hex 32"},
    {"admin[].hosts", &type_own_hosts, ADMIN(hosts), "[]", 0, OWN_HOSTS_MAX, 0, NULL, NULL,
     "Host names, without ports, that the admin listener accepts in Host, such as weir.internal "
     "(at most 64)"},
    {"admin[].mode", &type_admin_mode, ADMIN(mode), "0600", 0, 0, RESTART, NULL, admin_is_unix,
     "permissions of a unix socket"},

    {"decisions", &type_section, WHOLE, "", 0, 0, 0, NULL, has_decisions,
     "listener that decides requests for other proxies"},
    {"decisions.listen", &type_address, OF(decisions.address), NULL, 0, 0, RESTART, NULL, NULL,
     "address of the listener: host:port, [ipv6]:port or unix:/path"},
    {"decisions.request_from", &type_enum, OF(decisions.request_from), "forwarded", 0, 0, 0,
     request_from_names, NULL, "headers from which weir reads the request to decide on"},
    {"decisions.deny_status", &type_count, OF(decisions.deny_status), "429", 400, 599, 0, NULL,
     NULL, "status code of rejections (400 to 599)"},
    {"decisions.trusted", &type_trusted, OF(decisions.peers), "loopback and trusted_proxies", 0,
     TRUSTED_MAX, DERIVED, NULL, NULL,
     "addresses and ranges of the proxies that may use the listener (at most 1024)"},
    {"decisions.hosts", &type_own_hosts, OF(decisions.hosts), "[]", 0, OWN_HOSTS_MAX, 0, NULL, NULL,
     "host names, without ports, by which proxies may reach the listener (at most 64)"},

    {"redis", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL,
     "Redis, which stores the usage counts"},
    {"redis.address", &type_redis_address, OF(redis), "127.0.0.1:6379", 0, 0, 0, NULL,
     redis_has_address, "address of Redis, in one of these forms"},
    {"redis.sentinel", &type_sentinel, WHOLE, "", 0, 0, 0, NULL, redis_has_sentinel,
     "Redis Sentinel, instead of address"},
    {"redis.sentinel.master", &type_text, OF(redis.sentinel.master), NULL, 1, 256, REQUIRED, NULL,
     NULL, "name of the master in the Sentinel configuration"},
    {"redis.sentinel.nodes", &type_redis_nodes, OF(redis.sentinel.nodes), NULL, 1, REDIS_NODES_MAX,
     REQUIRED, NULL, NULL, "host:port of 1 to 64 sentinels"},
    {"redis.sentinel.username", &type_text, OF(redis.sentinel.username), "", 1, 256, 0, NULL, NULL,
     "user name for the sentinels"},
    {"redis.sentinel.password", &type_secret, OF(redis.sentinel.password), "", 1, 1024, 0, NULL,
     NULL, "password for the sentinels"},
    {"redis.cluster", &type_cluster, OF(redis), "", 1, REDIS_NODES_MAX, 0, NULL, redis_has_cluster,
     "Redis Cluster, instead of address: host:port of 1 to 64 nodes"},
    {"redis.username", &type_text, OF(redis.username), "", 1, 256, 0, NULL, NULL,
     "user name for Redis"},
    {"redis.password", &type_secret, OF(redis.password), "", 1, 1024, 0, NULL, redis_has_password,
     "password for Redis"},
    {"redis.password_file", &type_password_file, OF(redis), "", 1, 4096, 0, NULL, NULL,
     "file that contains only the password and an optional newline, instead of password"},
    {"redis.database", &type_count, OF(redis.database), "0", 0, 65535, 0, NULL, NULL,
     "database number (0 to 65535)"},
    {"redis.key_prefix", &type_key_prefix, OF(redis.key_prefix), "weir", 1, 64, 0, NULL, NULL,
     "prefix of every key in Redis: 1 to 64 visible ASCII characters, without braces, quotes and "
     "backslashes"},
    {"redis.timeout", &type_duration, OF(redis.timeout_us), "50ms", MS(1), SEC(10), 0, NULL, NULL,
     "maximum time to wait for Redis per decision (1ms to 10s)"},
    {"redis.on_failure", &type_enum, OF(redis.on_failure), "local", 0, 0, 0, on_failure_names, NULL,
     "how requests are decided while Redis is unavailable"},
    {"redis.instances", &type_count, OF(redis.instances), "1", 1, 1000, 0, NULL, NULL,
     "number of weir instances that share this Redis (1 to 1000)"},
    {"redis.tls", &type_client_tls, OF(redis.tls), "", CLIENT_TLS_NO_ALPN, CLIENT_TLS_NO_ALPN, 0,
     NULL, NULL,
     "true or a map enables TLS 1.2 and newer to Redis, to the sentinels and to all cluster "
     "nodes"},
    {"redis.tls.verify", &type_bool, CLIENT_TLS(verify), "true", 0, 0, 0, NULL, NULL,
     "if false, weir accepts any certificate, which allows man-in-the-middle attacks"},
    {"redis.tls.ca", &type_text, CLIENT_TLS(ca), "", 1, 4096, 0, NULL, NULL,
     "path of a PEM file with the trusted certificate authorities, instead of those of the "
     "system"},
    {"redis.tls.server_name", &type_text, CLIENT_TLS(server_name), "", 1, HOST_NAME_BYTES_MAX, 0,
     NULL, NULL, "Host name or address that every certificate must match"},
    {"redis.tls.certificate", &type_text, CLIENT_TLS(certificate), "", 1, 4096, 0, NULL, NULL,
     "path of a PEM file with a client certificate, for servers that request one "
     "(tls-auth-clients)"},
    {"redis.tls.key", &type_text, CLIENT_TLS(key), "", 1, 4096, 0, NULL, NULL,
     "path of a PEM file with the private key of the client certificate"},
};
/* clang-format on */

const struct option_group options_server = {rows, COUNT_OF(rows)};
