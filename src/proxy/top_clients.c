#include "proxy/top_clients.h"

#include <stdlib.h>

#include "base/clock.h"
#include "policy/identity.h"

const char *const top_by_label[TOP_BY_COUNT] = {
    [TOP_BY_ALLOWED] = "allowed", [TOP_BY_LIMITED] = "limited", [TOP_BY_COST] = "cost"};

_Static_assert(IDENTITY_TEXT_MAX <= (int)TOP_KEY_MAX, "a name fits");

bool top_clients_init(struct top_clients *top)
{
    for (unsigned by = 0; by < TOP_BY_COUNT; by++)
        if (!(top->by[by] = top_keys_new()))
            return false;
    return true;
}

void top_clients_clear(struct top_clients *top)
{
    for (unsigned by = 0; by < TOP_BY_COUNT; by++)
        top_keys_free(top->by[by]);
}

unsigned top_clients_read(const struct top_clients *const *tops, unsigned count, enum top_by by,
                          struct top_entry *entries, unsigned n, double *seconds)
{
    struct top_keys **tables = calloc(count ? 2 * (size_t)count : 1, sizeof *tables);
    unsigned found = 0;

    *seconds = 0;
    if (!tables)
        return 0;
    for (unsigned t = 0; t < count; t++) {
        tables[found++] = tops[t]->by[by];
        if (by == TOP_BY_COST) /* its table has what requests cost above 1 */
            tables[found++] = tops[t]->by[TOP_BY_ALLOWED];
    }
    found = top_keys_read(tables, found, clock_us(), entries, n, seconds);
    free(tables);
    return found;
}
