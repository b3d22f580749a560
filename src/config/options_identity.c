/* options_identity.c - rows of the option table: identity and addresses. */
#include "config/option_rows.h"

static const char *const headers_from_names[] = {
    [HEADERS_FROM_TRUSTED] = "trusted", [HEADERS_FROM_ANYONE] = "anyone", NULL};

static const char *const cookies_names[] = {
    [COOKIES_HASH] = "hash", [COOKIES_REJECT] = "reject", NULL};

static const char *const jwt_invalid_names[] = {
    [JWT_INVALID_FALL_THROUGH] = "fall_through", [JWT_INVALID_401] = "401", NULL};

/* clang-format off */
static const struct option rows[] = {
    {.path = "identity", .type = &type_section, .fallback = "",
     .help = "how weir identifies a client"},
    {.path = "identity.from", .type = &type_identity_from, OF(identity), .fallback = "[ ip ]",
     .low = 1, .high = IDENTITY_FROM_MAX,
     .help = "sources of the client identity (at most 8), in order"},
    {.path = "identity.trusted_proxies", .type = &type_trusted, OF(identity), .fallback = "[]",
     .high = TRUSTED_MAX,
     .help = "addresses and ranges of trusted proxies (at most 1024)"},
    {.path = "identity.client_ip_header", .type = &type_client_ip_header, OF(identity),
     .fallback = "X-Forwarded-For", .low = 1, .high = 128, SHOWS(policy, identity.client_ip_header),
     .help = "request header in which trusted proxies send the client address"},
    {.path = "identity.headers_from", .type = &type_enum, OF(identity.headers_from),
     .fallback = "trusted", .names = headers_from_names,
     .help = "peers from which weir accepts identity headers, cookies and query parameters"},
    {.path = "identity.cookies", .type = &type_enum, OF(identity.cookies), .fallback = "hash",
     .names = cookies_names,
     .help = "how weir treats several cookies with the name of the identity"},
    {.path = "identity.ipv4_prefix", .type = &type_count, OF(identity.ipv4_prefix),
     .fallback = "32", .low = 1, .high = 32,
     .help = "prefix length in bits (1 to 32)"},
    {.path = "identity.ipv6_prefix", .type = &type_count, OF(identity.ipv6_prefix),
     .fallback = "64", .low = 1, .high = 128,
     .help = "prefix length in bits (1 to 128)"},
    {.path = "identity.known_clients_only", .type = &type_bool, OF(identity.known_clients_only),
     .fallback = "false",
     .help = "if true, an id provides a value only if it is listed in clients or has a row in "
             "the database of quotas"},
    {.path = "identity.hash", .type = &type_bool, OF(identity.hash), .fallback = "false",
     .help = "if true, all ids from headers are replaced by their hash, such as id:h:HASH"},
    {.path = "identity.hash_key", .type = &type_hash_key, OF(identity), .fallback = "", .low = 1,
     .high = 1024, SHOWS(policy, identity.hash_key_text),
     .help = "secret key of the hashes (1 to 1024 bytes)"},
    {.path = "identity.jwt", .type = &type_section, .fallback = "",
     SET(policy, identity.claim_count),
     .help = "JSON Web Tokens (RFC 7519), for the sources jwt:CLAIM"},
    {.path = "identity.jwt.header", .type = &type_text, OF(identity.jwt.header),
     .fallback = "Authorization", .low = 1, .high = 128,
     .help = "request header with the token"},
    {.path = "identity.jwt.ca", .type = &type_jwt_ca, OF(identity.jwt), .fallback = "",
     .low = 1, .high = 4096, SET(policy, identity.jwt.remote_count), SHOWS(policy, identity.jwt.ca),
     .help = "file with the certificates of the authorities that weir accepts when it fetches "
             "keys; default: those of the system"},
    {.path = "identity.jwt.keys", .type = &type_jwt_keys, OF(identity.jwt), .fallback = "",
     .low = 1, .high = KEYS_FROM_MAX,
     .help = "JWK sets (RFC 7517) with the public keys of the issuer, each at most 256 KiB and 64 "
             "keys: files and URLs (at most 16, with at most 8 URLs)"},
    {.path = "identity.jwt.refresh", .type = &type_duration, OF(identity.jwt.refresh_us),
     .fallback = "1h", .low = SEC(1), .high = HOURS(24 * 7), SET(policy, identity.jwt.remote_count),
     .help = "time after which keys by URL are fetched again, at the latest (1s to 7d)"},
    {.path = "identity.jwt.secret", .type = &type_jwt_secret, OF(identity.jwt), .fallback = "",
     .low = 32, .high = 1024, .applies = jwt_has_inline_secret,
     .help = "key of HS256 tokens (32 to 1024 bytes)"},
    {.path = "identity.jwt.secret_file", .type = &type_jwt_secret_file, OF(identity.jwt),
     .fallback = "", .low = 1, .high = 4096, SHOWS(policy, identity.jwt.secret_file),
     .help = "file with that key and nothing else, on one line"},
    {.path = "identity.jwt.issuer", .type = &type_text, OF(identity.jwt.issuer), .fallback = "",
     .low = 1, .high = 1024,
     .help = "required value of iss"},
    {.path = "identity.jwt.audience", .type = &type_text, OF(identity.jwt.audience),
     .fallback = "", .low = 1, .high = 1024,
     .help = "required value of aud, alone or in a list"},
    {.path = "identity.jwt.leeway", .type = &type_duration, OF(identity.jwt.leeway_us),
     .fallback = "0s", .high = HOURS(1),
     .help = "maximum difference between the clocks of weir and the issuer, for exp and nbf (0 "
             "to 1h)"},
    {.path = "identity.jwt.require_exp", .type = &type_bool, OF(identity.jwt.require_exp),
     .fallback = "false",
     .help = "if true, a token without exp is invalid"},
    {.path = "identity.jwt.invalid", .type = &type_enum, OF(identity.jwt.invalid),
     .fallback = "fall_through", .names = jwt_invalid_names,
     .help = "how weir treats a request with an invalid token"},

    {.path = "addresses", .type = &type_section, .fallback = "",
     .help = "allow lists and block lists of client addresses"},
    {.path = "addresses.allow", .type = &type_address_files, OF(addresses.allow), .fallback = "[]",
     .high = ADDRESS_LISTS_MAX,
     .help = "files with addresses of clients that are never limited, whatever their identity"},
    {.path = "addresses.block", .type = &type_address_files, OF(addresses.block), .fallback = "[]",
     .high = ADDRESS_LISTS_MAX,
     .help = "files with addresses of clients whose requests are rejected with 403"},
};
/* clang-format on */

const struct option_group options_identity = {rows, COUNT_OF(rows)};
