#include "policy/query.h"

struct query_reader query_reader(struct slice query, struct slice name, char *room, size_t size)
{
    struct slice rest = query.n ? (struct slice){query.p + 1, query.n - 1} : SLICE_NONE;
    return (struct query_reader){.rest = pairs_of(rest, "&"),
                                 .part = {.ended = true},
                                 .name = name,
                                 .room = room,
                                 .size = size};
}

/* Returns true if the name, decoded twice, may be the wanted one. */
static bool may_be_decoded_twice(struct query_reader *reader, struct slice coded)
{
    if (!coded.n || !memchr(coded.p, '%', coded.n))
        return false;
    struct slice name = percent_decode(coded, true, reader->room);
    return percent_is_in(name) &&
           name_match(percent_decode_again(name, reader->room), reader->name) != NAME_DIFFERS;
}

/* Decodes a value if some server reads it under the reader's name. */
static bool read_pair(struct query_reader *reader, const struct pair *pair, bool *equal,
                      struct slice *value)
{
    if (pair->name.n < reader->name.n || pair->text.n > reader->size)
        return false;
    enum name_match match = name_match(pair->name, reader->name);
    if (match == NAME_DIFFERS && !may_be_decoded_twice(reader, pair->name))
        return false;
    *equal = match == NAME_EQUAL;
    *value = percent_decode(pair->value, true, reader->room);
    reader->again = percent_is_in(*value) ? *value : SLICE_NONE;
    return true;
}

/* Sets the next pair between "&", then the pieces of it between ";". */
static bool next_pair(struct query_reader *reader, struct pair *pair, bool *whole)
{
    *whole = !pairs_next(&reader->part, pair);
    if (!*whole)
        return true;
    if (!pairs_next(&reader->rest, pair))
        return false;
    if (pair->text.n && memchr(pair->text.p, ';', pair->text.n))
        reader->part = pairs_of(pair->text, ";");
    return true;
}

bool query_next(struct query_reader *reader, struct query_value *value)
{
    struct pair pair;
    bool equal = false, whole;

    if (reader->again.n) {
        *value =
            (struct query_value){percent_decode_again(reader->again, reader->room), QUERY_OTHERS};
        reader->again = SLICE_NONE;
        return true;
    }
    while (next_pair(reader, &pair, &whole)) {
        bool replaces = !whole && reader->part_replaces;
        bool found = pair.text.n && read_pair(reader, &pair, &equal, &value->text);
        reader->part_replaces = whole && found && equal;
        value->reading = replaces ? QUERY_OTHERS : whole && found && equal ? QUERY_ALL : QUERY_SOME;
        if (found)
            return true;
    }
    return false;
}
