/* options_identity.c - rows of the option table: identity and addresses. */
#include "config/option_rows.h"

static const char *const headers_from_names[] = {
    [HEADERS_FROM_TRUSTED] = "trusted", [HEADERS_FROM_ANYONE] = "anyone", NULL};

static const char *const jwt_invalid_names[] = {
    [JWT_INVALID_FALL_THROUGH] = "fall_through", [JWT_INVALID_401] = "401", NULL};

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"identity", &type_section, 0, "", 0, 0, 0, NULL, NULL, "who a client is"},
    {"identity.from", &type_identity_from, OF(identity), "[ ip ]", 1, IDENTITY_FROM_MAX, 0, NULL, NULL,
     "where the identity comes from: ip, header:NAME, cookie:NAME, query:NAME, jwt:CLAIM, or a list, of "
     "which the first that gives a value counts"},
    {"identity.trusted_proxies", &type_trusted, OF(identity), "[]", 0, TRUSTED_MAX, 0, NULL, NULL,
     "addresses and ranges whose client_ip_header is believed, from the right; unix: for peers on unix "
     "sockets"},
    {"identity.client_ip_header", &type_client_ip_header, OF(identity), "X-Forwarded-For", 1, 128, 0, NULL,
     NULL, "the header in which trusted proxies name the client's address"},
    {"identity.headers_from", &type_enum, OF(identity.headers_from), "trusted", 0, 0, 0, headers_from_names,
     NULL,
     "whose identity headers, cookies and query parameters are believed: trusted (trusted_proxies, or "
     "anyone if that names nobody), anyone"},
    {"identity.ipv4_prefix", &type_count, OF(identity.ipv4_prefix), "32", 1, 32, 0, NULL, NULL,
     "IPv4 addresses that share so many bits are one client"},
    {"identity.ipv6_prefix", &type_count, OF(identity.ipv6_prefix), "64", 1, 128, 0, NULL, NULL,
     "IPv6 addresses that share so many bits are one client"},
    {"identity.known_clients_only", &type_bool, OF(identity.known_clients_only), "false", 0, 0, 0, NULL, NULL,
     "an id that is not among the clients gives no value: the next source counts"},
    {"identity.hash", &type_bool, OF(identity.hash), "false", 0, 0, 0, NULL, NULL,
     "whether ids from headers are stored and logged as hashes, as cookies and query parameters are"},
    {"identity.hash_key", &type_hash_key, OF(identity), "", 1, 1024, 0, NULL, NULL,
     "the secret key of these hashes; none: redis.key_prefix, which is no secret"},
    {"identity.jwt", &type_section, 0, "", 0, 0, 0, NULL, identity_reads_tokens,
     "JSON Web Tokens, of which jwt sources read a claim"},
    {"identity.jwt.header", &type_text, OF(identity.jwt.header), "Authorization", 1, 128, 0, NULL, NULL,
     "the header with the token; in Authorization it follows Bearer"},
    {"identity.jwt.keys", &type_jwt_keys, OF(identity.jwt), "", 1, 4096, 0, NULL, NULL,
     "a file with a JWK set: public keys of the issuer; read again on reload"},
    {"identity.jwt.secret", &type_jwt_secret, OF(identity.jwt), "", 32, 1024, 0, NULL, jwt_has_inline_secret,
     "the key of tokens signed with HS256; keep it out of the file with ${NAME}"},
    {"identity.jwt.secret_file", &type_jwt_secret_file, OF(identity.jwt), "", 1, 4096, 0, NULL, NULL,
     "a file that holds that key and nothing else"},
    {"identity.jwt.issuer", &type_text, OF(identity.jwt.issuer), "", 1, 1024, 0, NULL, NULL,
     "the iss that tokens must have; none: any"},
    {"identity.jwt.audience", &type_text, OF(identity.jwt.audience), "", 1, 1024, 0, NULL, NULL,
     "the aud that tokens must have, alone or in a list; none: any"},
    {"identity.jwt.leeway", &type_duration, OF(identity.jwt.leeway_us), "0s", 0, HOURS(1), 0, NULL, NULL,
     "how far the issuer's clock may be off, for exp and nbf"},
    {"identity.jwt.require_exp", &type_bool, OF(identity.jwt.require_exp), "false", 0, 0, 0, NULL, NULL,
     "whether a token without exp is invalid"},
    {"identity.jwt.invalid", &type_enum, OF(identity.jwt.invalid), "fall_through", 0, 0, 0, jwt_invalid_names,
     NULL, "what an invalid token does: fall_through (the next source counts) or 401"},

    {"addresses", &type_section, 0, "", 0, 0, 0, NULL, NULL,
     "lists of clients' addresses, seen through trusted proxies; of ranges one inside another the longer "
     "prefix counts"},
    {"addresses.allow", &type_address_files, OF(addresses.allow), "[]", 0, ADDRESS_LISTS_MAX, 0, NULL, NULL,
     "files of addresses that are never limited, one or a range a line; # begins a comment"},
    {"addresses.block", &type_address_files, OF(addresses.block), "[]", 0, ADDRESS_LISTS_MAX, 0, NULL, NULL,
     "files of addresses that are answered with 403"},
};
/* clang-format on */

const struct option_group options_identity = {rows, COUNT_OF(rows)};
