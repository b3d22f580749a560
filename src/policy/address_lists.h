/* address_lists.h - allowlist (never limited) and blocklist of IP addresses: `addresses`. */
#ifndef WEIR_POLICY_ADDRESS_LISTS_H
#define WEIR_POLICY_ADDRESS_LISTS_H

#include "net/address.h"

enum listed { LISTED_NOT, LISTED_ALLOWED, LISTED_BLOCKED };

/* One entry of a list. */
struct listed_range {
    struct ip_range range;
    enum listed as;
};

/* Start of an interval of addresses with the same result. Intervals are sorted for binary search.
 * IPv4 has its own table: IPv6 ranges never match IPv4-mapped addresses (as in ip_range_holds). */
struct listed_from {
    uint64_t high, low; /* first address as a number; IPv4 uses `low` only */
    enum listed as;     /* up to the next entry */
};

struct address_table {
    struct listed_from *v4, *v6;
    unsigned v4_count, v6_count;
};

/* Builds the table; sorts `ranges`. The longest prefix wins; blocking wins between equal ranges.
 * The caller frees the table with address_table_clear(). Returns false if out of memory. */
MUST_CHECK bool address_table_make(struct address_table *table, struct listed_range *ranges,
                                   size_t count);
void address_table_clear(struct address_table *table);

enum listed address_table_find(const struct address_table *table, const struct ip *ip);

#endif
