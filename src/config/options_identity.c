/* options_identity.c - rows of the option table: identity and addresses. */
#include "config/option_rows.h"

static const char *const headers_from_names[] = {
    [HEADERS_FROM_TRUSTED] = "trusted", [HEADERS_FROM_ANYONE] = "anyone", NULL};

/* clang-format off: path, type, offset, default, low, high, flags, names, applies, help */
static const struct option rows[] = {
    {"identity", &type_section, 0, "", 0, 0, 0, NULL, NULL, "who a client is"},
    {"identity.from", &type_identity_from, OF(identity), "[ ip ]", 1, IDENTITY_FROM_MAX, 0, NULL, NULL,
     "where the identity comes from: ip, header:NAME, or a list, of which the first that gives a value "
     "counts"},
    {"identity.trusted_proxies", &type_trusted, OF(identity), "[]", 0, TRUSTED_MAX, 0, NULL, NULL,
     "addresses and ranges whose X-Forwarded-For is believed, from the right; unix: for peers on unix "
     "sockets"},
    {"identity.headers_from", &type_enum, OF(identity.headers_from), "trusted", 0, 0, 0, headers_from_names,
     NULL,
     "whose identity headers are believed: trusted (trusted_proxies, or anyone if that names nobody), "
     "anyone"},
    {"identity.ipv6_prefix", &type_count, OF(identity.ipv6_prefix), "64", 1, 128, 0, NULL, NULL,
     "IPv6 addresses that share so many bits are one client"},
    {"identity.known_clients_only", &type_bool, OF(identity.known_clients_only), "false", 0, 0, 0, NULL, NULL,
     "an id that is not among the clients gives no value: the next source counts"},

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
