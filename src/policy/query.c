#include "policy/query.h"

struct query_reader query_reader(struct slice query, struct slice name, char *room)
{
    struct slice rest = query.n ? (struct slice){query.p + 1, query.n - 1} : SLICE_NONE;
    return (struct query_reader){
        .rest = pairs_of(rest, "&"), .part = {.ended = true}, .name = name, .room = room};
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
    if (pair->name.n < reader->name.n)
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

/* The value is followed by its reading as a C string. */
static bool give(struct query_reader *reader, struct query_value *value)
{
    const char *nul = memchr(value->text.p, 0, value->text.n);

    reader->cut = nul ? (struct slice){value->text.p, (size_t)(nul - value->text.p)} : SLICE_NONE;
    return true;
}

bool query_next(struct query_reader *reader, struct query_value *value)
{
    struct pair pair;
    bool equal = false, whole;

    if (reader->cut.p) {
        *value = (struct query_value){reader->cut, QUERY_OTHERS};
        reader->cut = SLICE_NONE;
        return true;
    }
    if (reader->again.n) {
        *value =
            (struct query_value){percent_decode_again(reader->again, reader->room), QUERY_OTHERS};
        reader->again = SLICE_NONE;
        return give(reader, value);
    }
    while (next_pair(reader, &pair, &whole)) {
        bool replaces = !whole && reader->part_replaces;
        bool found = pair.text.n && read_pair(reader, &pair, &equal, &value->text);
        reader->part_replaces = whole && found && equal;
        value->reading = replaces ? QUERY_OTHERS : whole && found && equal ? QUERY_ALL : QUERY_SOME;
        if (found)
            return give(reader, value);
    }
    return false;
}

/* --- Values that are kept --- */

static struct query_parameter *find_parameter(struct query_cache *cache, struct slice name)
{
    for (unsigned i = 0; i < cache->count; i++)
        if (slice_equal(cache->parameters[i].name, name))
            return &cache->parameters[i];
    return NULL;
}

/* Reads the values behind those of other parameters. Leaves `parameter->values` NULL if they do not
 * fit. */
static void read_values(struct query_cache *cache, struct slice query,
                        struct query_parameter *parameter)
{
    struct query_value *values = &cache->values[cache->value_count];
    struct query_reader reader = query_reader(query, parameter->name, NULL);
    size_t start = cache->text_size, end = start;
    unsigned count = 0;

    for (;;) {
        if (cache->value_count + count == QUERY_VALUES_KEPT || query.n > QUERY_TEXT_KEPT - end)
            return;
        reader.room = cache->text + end;
        if (!query_next(&reader, &values[count]))
            break;
        end += values[count++].text.n;
        cache->text[end++] = ',';
    }
    parameter->values = values;
    parameter->count = count;
    parameter->joined = (struct slice){cache->text + start, end - start - (count > 0)};
    cache->value_count += count;
    cache->text_size = end;
}

const struct query_parameter *query_parameter(struct query_cache *cache, struct slice query,
                                              struct slice name, size_t *steps)
{
    struct query_parameter *parameter = find_parameter(cache, name);

    if (parameter && parameter->values)
        return parameter;
    *steps += QUERY_STEPS * query.n;
    if (parameter || cache->count == QUERY_NAMES_KEPT)
        return NULL;
    parameter = &cache->parameters[cache->count++];
    *parameter = (struct query_parameter){.name = name};
    read_values(cache, query, parameter);
    return parameter->values ? parameter : NULL;
}
