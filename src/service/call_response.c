#include "service/call_response.h"

/* A cut name ends with a whole character. */
struct slice call_name_sent(struct slice name)
{
    if (name.n <= CALL_NAME_MAX)
        return name;
    name.n = CALL_NAME_MAX;
    while (name.n && ((unsigned char)name.p[name.n] & 0xc0) == 0x80)
        name.n--;
    return name;
}

bool call_metadata_has(const struct metadata *const *maps, unsigned count, struct slice key)
{
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = 0; j < maps[i]->count; j++)
            if (slice_equal(maps[i]->items[j].key, key))
                return true;
    return false;
}
