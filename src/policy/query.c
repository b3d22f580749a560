#include "policy/query.h"

#include "http/chars.h"
#include "http/head.h"

struct query_reader query_reader(struct slice query, struct slice name, char *room, size_t size)
{
    struct slice rest = query.n ? (struct slice){query.p + 1, query.n - 1} : SLICE_NONE;
    return (struct query_reader){.rest = rest, .name = name, .room = room, .size = size};
}

/* Removes the text up to the next `separator` from the front of `rest`. */
static struct slice take(struct slice *rest, char separator)
{
    const char *end = memchr(rest->p, separator, rest->n);
    struct slice piece = {rest->p, end ? (size_t)(end - rest->p) : rest->n};

    size_t taken = piece.n + (end != NULL);
    *rest = (struct slice){rest->p + taken, rest->n - taken};
    return piece;
}

/* Decodes percent codes, and "+" if `plus`. Invalid codes stay. `out` may be where `coded` is. */
static struct slice decode(struct slice coded, bool plus, char *out)
{
    const char *p = coded.p, *end = p + coded.n;
    char *to = out;

    while (p < end) {
        int octet = *p == '%' ? percent_code_at(p, end) : -1;
        *to++ = octet >= 0 ? (char)octet : plus && *p == '+' ? ' ' : *p;
        p += octet >= 0 ? 3 : 1;
    }
    return (struct slice){out, (size_t)(to - out)};
}

static bool has_codes(struct slice text)
{
    const char *p = text.p, *end = p + text.n;

    while (p < end && (p = memchr(p, '%', (size_t)(end - p)))) {
        if (percent_code_at(p, end) >= 0)
            return true;
        p++;
    }
    return false;
}

/* Removes leading spaces, and what follows "[" or NUL. */
static struct slice base_name(struct slice name)
{
    while (name.n && name.p[0] == ' ')
        name.p++, name.n--;
    for (size_t i = 1; i < name.n; i++)
        if (name.p[i] == '[' || name.p[i] == 0)
            return (struct slice){name.p, i};
    return name;
}

static bool alike(struct slice a, struct slice b)
{
    return slice_equal_nocase(a, b) || names_are_twins(a, b);
}

/* Returns true if some servers take this decoded name for `wanted`. */
static bool may_be(struct slice name, struct slice wanted)
{
    return alike(name, wanted) || alike(base_name(name), wanted);
}

/* Decodes a pair if some server reads it under the reader's name. */
static bool read_pair(struct query_reader *reader, struct slice pair, bool *equal,
                      struct slice *value)
{
    struct slice rest = pair, coded = take(&rest, '=');

    if (coded.n < reader->name.n || pair.n > reader->size)
        return false;
    struct slice name = decode(coded, true, reader->room);
    *equal = slice_equal(name, reader->name);
    if (!*equal && !may_be(name, reader->name) &&
        !(has_codes(name) && may_be(decode(name, false, reader->room), reader->name)))
        return false;
    *value = decode(rest, true, reader->room);
    reader->again = has_codes(*value) ? *value : SLICE_NONE;
    return true;
}

bool query_next(struct query_reader *reader, struct query_value *value)
{
    bool equal;

    if (reader->again.n) {
        *value = (struct query_value){decode(reader->again, false, reader->room), QUERY_OTHERS};
        reader->again = SLICE_NONE;
        return true;
    }
    while (reader->part.n || reader->rest.n) {
        bool whole = reader->part.n == 0, replaces = !whole && reader->part_replaces;
        struct slice pair = whole ? take(&reader->rest, '&') : take(&reader->part, ';');
        if (whole && pair.n && memchr(pair.p, ';', pair.n))
            reader->part = pair;
        bool found = pair.n && read_pair(reader, pair, &equal, &value->text);
        reader->part_replaces = whole && found && equal;
        value->reading = replaces ? QUERY_OTHERS : whole && found && equal ? QUERY_ALL : QUERY_SOME;
        if (found)
            return true;
    }
    return false;
}
