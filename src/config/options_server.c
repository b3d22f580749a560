/* options_server.c - rows of the option table: workers, listen, admin and redis. */
#include "config/option_rows.h"

static const char *const on_failure_names[] = {
    [ON_FAILURE_LOCAL] = "local", [ON_FAILURE_ALLOW] = "allow", [ON_FAILURE_DENY] = "deny", NULL};

static const char *const request_from_names[] = {[REQUEST_FROM_FORWARDED] = "forwarded",
                                                 [REQUEST_FROM_ORIGINAL] = "original",
                                                 [REQUEST_FROM_REQUEST] = "request",
                                                 NULL};

#define LISTEN(m)     MEMBER(listen_settings, m)
#define ADMIN(m)      MEMBER(admin_listener, m)
#define LISTEN_TLS(m) MEMBER(listen_tls_entry, m)

static const char *const client_certificate_names[] = {
    [CLIENT_CERTIFICATE_REQUIRED] = "required", [CLIENT_CERTIFICATE_OPTIONAL] = "optional", NULL};
static const char *const min_version_names[] = {
    [MIN_VERSION_1_2] = "1.2", [MIN_VERSION_1_3] = "1.3", NULL};

/* clang-format off */
static const struct option rows[] = {
    {.path = "workers", .type = &type_workers, OF(workers), .fallback = "auto", .low = 1,
     .high = 256, .flags = RESTART,
     .help = "number of worker threads (1 to 256)"},

    {.path = "listen", .type = &type_listen, .fallback = "0.0.0.0:8080", .low = 1,
     .high = LISTEN_MAX, .flags = RESTART, UNSET(policy, rate_limit_service.is_alone),
     .help = "addresses on which weir accepts clients (at most 64): host:port, [ipv6]:port or "
             "unix:/path"},
    {.path = "listen[].address", .type = &type_address, LISTEN(address),
     .flags = RESTART | REQUIRED,
     .help = "address of an entry that is written as a map"},
    {.path = "listen[].tls", .type = &type_listen_tls, LISTEN(tls), .fallback = "", .high = CERTIFICATES_MAX,
     .help = "enables TLS 1.2 and newer with this certificate or list of certificates"},
    {.path = "listen[].tls.certificate", .type = &type_text, LISTEN_TLS(certificate), .low = 1,
     .high = 4096, .flags = REQUIRED,
     .help = "path of a PEM file with the certificate, followed by its intermediate certificates "
             "in order"},
    {.path = "listen[].tls.key", .type = &type_text, LISTEN_TLS(key), .low = 1, .high = 4096,
     .flags = REQUIRED,
     .help = "path of a PEM file with the private key, without a passphrase"},
    {.path = "listen[].tls.client_ca", .type = &type_text, LISTEN_TLS(client_ca), .fallback = "",
     .low = 1, .high = 4096,
     .help = "path of a PEM file with the authorities that issue the clients' certificates"},
    {.path = "listen[].tls.client_certificate", .type = &type_enum, LISTEN_TLS(client_certificate),
     .fallback = "required", .names = client_certificate_names,
     .help = "required refuses clients without a certificate; optional serves them"},
    {.path = "listen[].tls.client_crl", .type = &type_text, LISTEN_TLS(client_crl), .fallback = "",
     .low = 1, .high = 4096,
     .help = "path of a PEM file with the revocation lists of all issuers of the clients' "
             "certificates"},
    {.path = "listen[].tls.min_version", .type = &type_enum, LISTEN_TLS(min_version),
     .fallback = "1.2", .names = min_version_names,
     .help = "oldest version of TLS that clients may use: 1.2 or 1.3"},
    {.path = "listen[].tls.ciphers", .type = &type_text, LISTEN_TLS(ciphers), .fallback = "",
     .low = 1, .high = 4096,
     .help = "ciphers of TLS 1.2, as a list of OpenSSL"},
    {.path = "listen[].proxy_protocol", .type = &type_bool, LISTEN(proxy_protocol),
     .fallback = "false", .flags = RESTART,
     .help = "if true, connections must come from a proxy in identity.trusted_proxies and begin "
             "with a PROXY protocol header, version 1 or 2"},
    {.path = "listen[].http2", .type = &type_bool, LISTEN(http2), .fallback = "true",
     .help = "accepts HTTP/2 (RFC 9113) beside HTTP/1.1"},

    {.path = "admin", .type = &type_admin, .fallback = "", .high = ADMIN_LISTENERS_MAX,
     .flags = RESTART,
     .help = "addresses of the admin listeners (at most 16), which serve /healthz, /readyz, "
             "/metrics, the API and the dashboard"},
    {.path = "admin[].address", .type = &type_address, ADMIN(address), .flags = RESTART | REQUIRED,
     .help = "address of an entry that is written as a map: host:port, [ipv6]:port or unix:/path"},
    {.path = "admin[].read_only", .type = &type_bool, ADMIN(read_only), .fallback = "false",
     .help = "if true, the listener serves /healthz, /readyz and /metrics only"},
    {.path = "admin[].token_file", .type = &type_token_file, .fallback = "", .low = 1,
     .high = 4096,
     .help = "file with a token of 16 to 512 letters, digits and -._~+/ on one line, such as the "
             "output of openssl rand -hex 32"},
    {.path = "admin[].hosts", .type = &type_own_hosts, ADMIN(hosts), .fallback = "[]",
     .high = OWN_HOSTS_MAX,
     .help = "Host names, without ports, that the admin listener accepts in Host, such as "
             "weir.internal (at most 64)"},
    {.path = "admin[].tls", .type = &type_listen_tls, ADMIN(tls), .fallback = "",
     .high = CERTIFICATES_MAX,
     .help = "enables TLS with these certificates, as in listen[].tls"},
    {.path = "admin[].mode", .type = &type_admin_mode, ADMIN(mode), .fallback = "0600",
     .flags = RESTART,
     .help = "permissions of a unix socket"},

    {.path = "decisions", .type = &type_section, .fallback = "",
     SET(policy, decisions.address.length),
     .help = "listener that decides requests for other proxies"},
    {.path = "decisions.listen", .type = &type_address, OF(decisions.address), .flags = RESTART,
     .help = "address of the listener: host:port, [ipv6]:port or unix:/path"},
    {.path = "decisions.request_from", .type = &type_enum, OF(decisions.request_from),
     .fallback = "forwarded", .names = request_from_names,
     .help = "headers from which weir reads the request to decide on"},
    {.path = "decisions.deny_status", .type = &type_count, OF(decisions.deny_status),
     .fallback = "429", .low = 400, .high = 599,
     .help = "status code of rejections (400 to 599)"},
    {.path = "decisions.trusted", .type = &type_trusted, OF(decisions.peers),
     .fallback = "loopback and trusted_proxies", .low = 1, .high = TRUSTED_MAX, .flags = DERIVED,
     .help = "addresses and ranges of the proxies that may use the listener (1 to 1024)"},
    {.path = "decisions.hosts", .type = &type_own_hosts, OF(decisions.hosts), .fallback = "[]",
     .high = OWN_HOSTS_MAX,
     .help = "host names, without ports, by which proxies may reach the listener (at most 64)"},

    {.path = "redis", .type = &type_section, .fallback = "",
     .help = "Redis, which stores the usage counts"},
    {.path = "redis.address", .type = &type_redis_address, OF(redis), .fallback = "127.0.0.1:6379",
     .applies = redis_has_address, SHOWS(policy, redis.address_text),
     .help = "address of Redis, in one of these forms"},
    {.path = "redis.sentinel", .type = &type_sentinel, .fallback = "",
     SET(policy, redis.sentinel.master),
     .help = "Redis Sentinel, instead of address"},
    {.path = "redis.sentinel.master", .type = &type_text, OF(redis.sentinel.master), .low = 1,
     .high = 256, .flags = REQUIRED,
     .help = "name of the master in the Sentinel configuration"},
    {.path = "redis.sentinel.nodes", .type = &type_redis_nodes, OF(redis.sentinel.nodes), .low = 1,
     .high = REDIS_NODES_MAX, .flags = REQUIRED,
     .help = "host:port of 1 to 64 sentinels"},
    {.path = "redis.sentinel.username", .type = &type_text, OF(redis.sentinel.username),
     .fallback = "", .low = 1, .high = 256,
     .help = "user name for the sentinels"},
    {.path = "redis.sentinel.password", .type = &type_secret, OF(redis.sentinel.password),
     .fallback = "", .low = 1, .high = 1024,
     .help = "password for the sentinels"},
    {.path = "redis.cluster", .type = &type_cluster, OF(redis), .fallback = "", .low = 1,
     .high = REDIS_NODES_MAX, SET(policy, redis.cluster.count), SHOWS(policy, redis.cluster),
     .help = "Redis Cluster, instead of address: host:port of 1 to 64 nodes"},
    {.path = "redis.username", .type = &type_text, OF(redis.username), .fallback = "", .low = 1,
     .high = 256,
     .help = "user name for Redis"},
    {.path = "redis.password", .type = &type_secret, OF(redis.password), .fallback = "", .low = 1,
     .high = 1024, UNSET(policy, redis.password_file),
     .help = "password for Redis"},
    {.path = "redis.password_file", .type = &type_password_file, OF(redis), .fallback = "",
     .low = 1, .high = 4096, SHOWS(policy, redis.password_file),
     .help = "file that contains only the password and an optional newline, instead of password"},
    {.path = "redis.database", .type = &type_count, OF(redis.database), .fallback = "0",
     .high = 65535,
     .help = "database number (0 to 65535)"},
    {.path = "redis.key_prefix", .type = &type_key_prefix, OF(redis.key_prefix),
     .fallback = "weir", .low = 1, .high = 64,
     .help = "prefix of every key in Redis: 1 to 64 visible ASCII characters, without braces, "
             "quotes and backslashes"},
    {.path = "redis.timeout", .type = &type_duration, OF(redis.timeout_us), .fallback = "50ms",
     .low = MS(1), .high = SEC(10),
     .help = "maximum time to wait for Redis per decision (1ms to 10s)"},
    {.path = "redis.on_failure", .type = &type_enum, OF(redis.on_failure), .fallback = "local",
     .names = on_failure_names,
     .help = "how requests are decided while Redis is unavailable"},
    {.path = "redis.instances", .type = &type_count, OF(redis.instances), .fallback = "1",
     .low = 1, .high = 1000,
     .help = "number of weir instances that share this Redis (1 to 1000)"},
    {.path = "redis.tls", .type = &type_client_tls, OF(redis.tls), .fallback = "",
     .low = CLIENT_TLS_NO_ALPN, .high = CLIENT_TLS_NO_ALPN,
     .help = "true or a map enables TLS 1.2 and newer to Redis, to the sentinels and to all "
             "cluster nodes"},
    {.path = "redis.tls.verify", .type = &type_bool, CLIENT_TLS(verify), .fallback = "true",
     .help = "if false, weir accepts any certificate, which allows man-in-the-middle attacks"},
    {.path = "redis.tls.ca", .type = &type_text, CLIENT_TLS(ca), .fallback = "", .low = 1,
     .high = 4096,
     .help = "path of a PEM file with the trusted certificate authorities, instead of those of "
             "the system"},
    {.path = "redis.tls.server_name", .type = &type_text, CLIENT_TLS(server_name), .fallback = "",
     .low = 1, .high = HOST_NAME_BYTES_MAX,
     .help = "Host name or address that every certificate must match"},
    {.path = "redis.tls.certificate", .type = &type_text, CLIENT_TLS(certificate), .fallback = "",
     .low = 1, .high = 4096,
     .help = "path of a PEM file with a client certificate, for servers that request one "
             "(tls-auth-clients)"},
    {.path = "redis.tls.key", .type = &type_text, CLIENT_TLS(key), .fallback = "", .low = 1,
     .high = 4096,
     .help = "path of a PEM file with the private key of the client certificate"},
};
/* clang-format on */

const struct option_group options_server = {rows, COUNT_OF(rows)};
