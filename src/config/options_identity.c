/* options_identity.c - rows of the option table: identity and addresses. */
#include "config/option_rows.h"

static const char *const headers_from_names[] = {
    [HEADERS_FROM_TRUSTED] = "trusted", [HEADERS_FROM_ANYONE] = "anyone", NULL};

static const char *const cookies_names[] = {
    [COOKIES_HASH] = "hash", [COOKIES_REJECT] = "reject", NULL};

static const char *const jwt_invalid_names[] = {
    [JWT_INVALID_FALL_THROUGH] = "fall_through", [JWT_INVALID_401] = "401", NULL};

/* clang-format off: path, type, member, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"identity", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL, "how weir identifies a client"},
    {"identity.from", &type_identity_from, OF(identity), "[ ip ]", 1, IDENTITY_FROM_MAX, 0, NULL,
     NULL, "sources of the client identity (at most 8), in order"},
    {"identity.trusted_proxies", &type_trusted, OF(identity), "[]", 0, TRUSTED_MAX, 0, NULL, NULL,
     "addresses and ranges of trusted proxies (at most 1024)"},
    {"identity.client_ip_header", &type_client_ip_header, OF(identity), "X-Forwarded-For", 1, 128,
     0, NULL, NULL, "request header in which trusted proxies send the client address"},
    {"identity.headers_from", &type_enum, OF(identity.headers_from), "trusted", 0, 0, 0,
     headers_from_names, NULL,
     "peers from which weir accepts identity headers, cookies and query parameters"},
    {"identity.cookies", &type_enum, OF(identity.cookies), "hash", 0, 0, 0, cookies_names, NULL,
     "how weir treats several cookies with the name of the identity"},
    {"identity.ipv4_prefix", &type_count, OF(identity.ipv4_prefix), "32", 1, 32, 0, NULL, NULL,
     "prefix length in bits (1 to 32)"},
    {"identity.ipv6_prefix", &type_count, OF(identity.ipv6_prefix), "64", 1, 128, 0, NULL, NULL,
     "prefix length in bits (1 to 128)"},
    {"identity.known_clients_only", &type_bool, OF(identity.known_clients_only), "false", 0, 0, 0,
     NULL, NULL,
     "if true, an id provides a value only if it is listed in clients or has a row in the "
     "database of quotas"},
    {"identity.hash", &type_bool, OF(identity.hash), "false", 0, 0, 0, NULL, NULL,
     "if true, all ids from headers are replaced by their hash, such as id:h:HASH"},
    {"identity.hash_key", &type_hash_key, OF(identity), "", 1, 1024, 0, NULL, NULL,
     "secret key of the hashes (1 to 1024 bytes)"},
    {"identity.jwt", &type_section, WHOLE, "", 0, 0, 0, NULL, identity_reads_tokens,
     "JSON Web Tokens (RFC 7519), for the sources jwt:CLAIM"},
    {"identity.jwt.header", &type_text, OF(identity.jwt.header), "Authorization", 1, 128, 0, NULL,
     NULL, "request header with the token"},
    {"identity.jwt.keys", &type_jwt_keys, OF(identity.jwt), "", 1, 4096, 0, NULL, NULL,
     "JWK set (RFC 7517) with the public keys of the issuer (at most 256 KiB and 64 keys)"},
    {"identity.jwt.secret", &type_jwt_secret, OF(identity.jwt), "", 32, 1024, 0, NULL,
     jwt_has_inline_secret, "key of HS256 tokens (32 to 1024 bytes)"},
    {"identity.jwt.secret_file", &type_jwt_secret_file, OF(identity.jwt), "", 1, 4096, 0, NULL,
     NULL, "file with that key and nothing else, on one line"},
    {"identity.jwt.issuer", &type_text, OF(identity.jwt.issuer), "", 1, 1024, 0, NULL, NULL,
     "required value of iss"},
    {"identity.jwt.audience", &type_text, OF(identity.jwt.audience), "", 1, 1024, 0, NULL, NULL,
     "required value of aud, alone or in a list"},
    {"identity.jwt.leeway", &type_duration, OF(identity.jwt.leeway_us), "0s", 0, HOURS(1), 0, NULL,
     NULL,
     "maximum difference between the clocks of weir and the issuer, for exp and nbf (0 to 1h)"},
    {"identity.jwt.require_exp", &type_bool, OF(identity.jwt.require_exp), "false", 0, 0, 0, NULL,
     NULL, "if true, a token without exp is invalid"},
    {"identity.jwt.invalid", &type_enum, OF(identity.jwt.invalid), "fall_through", 0, 0, 0,
     jwt_invalid_names, NULL, "how weir treats a request with an invalid token"},

    {"addresses", &type_section, WHOLE, "", 0, 0, 0, NULL, NULL,
     "allow lists and block lists of client addresses"},
    {"addresses.allow", &type_address_files, OF(addresses.allow), "[]", 0, ADDRESS_LISTS_MAX, 0,
     NULL, NULL, "files with addresses of clients that are never limited, whatever their identity"},
    {"addresses.block", &type_address_files, OF(addresses.block), "[]", 0, ADDRESS_LISTS_MAX, 0,
     NULL, NULL, "files with addresses of clients whose requests are rejected with 403"},
};
/* clang-format on */

const struct option_group options_identity = {rows, COUNT_OF(rows)};
