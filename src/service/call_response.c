#include "service/call_response.h"

bool call_next_header(struct slice *lines, struct slice *name, struct slice *value)
{
    if (lines->n == 0)
        return false;
    const char *all_end = lines->p + lines->n, *colon = memchr(lines->p, ':', lines->n);
    const char *end = colon ? memchr(colon, '\r', (size_t)(all_end - colon)) : NULL;

    if (!end)
        return false;
    *name = (struct slice){lines->p, (size_t)(colon - lines->p)};
    *value = slice_trim_ows((struct slice){colon + 1, (size_t)(end - colon - 1)});
    *lines = (struct slice){end + 2, (size_t)(all_end - end - 2)};
    return true;
}

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
