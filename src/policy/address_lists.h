/* address_lists.h - which addresses are never limited, and which are turned away: `addresses:` of a policy. */
#ifndef WEIR_POLICY_ADDRESS_LISTS_H
#define WEIR_POLICY_ADDRESS_LISTS_H

#include "net/address.h"

enum listed { LISTED_NOT, LISTED_ALLOWED, LISTED_BLOCKED };

/* One line of a list. */
struct listed_range {
    struct ip_range range;
    enum listed as;
};

/* Where one answer ends and the next begins: sorted, so that a look is a bisection. IPv4 has its own table, since ranges
 * of IPv6 that happen to hold the mapped addresses do not mean them (as in ip_range_holds). */
struct listed_from {
    uint64_t high, low; /* the first address, as a number; of IPv4, low alone */
    enum listed as;     /* until the next one */
};

struct address_table {
    struct listed_from *v4, *v6;
    unsigned v4_count, v6_count;
};

/* Of ranges one inside another the longer prefix counts; of equal ones, blocking. `ranges` are sorted on the way. The
 * table's arrays are malloc'ed; false: no memory. */
MUST_CHECK bool address_table_make(struct address_table *table, struct listed_range *ranges, size_t count);
void address_table_clear(struct address_table *table);

enum listed address_table_find(const struct address_table *table, const struct ip *ip);

#endif
