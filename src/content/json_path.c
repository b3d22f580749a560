#include "content/json_path.h"

static const char *path_name_fault(struct slice name)
{
    if (!name.n)
        return "a name in the path is empty";
    for (size_t i = 0; i < name.n; i++) {
        if (name.p[i] < ' ' || name.p[i] > '~')
            return "names in a path are printable ASCII";
    }
    return NULL;
}

/* Removes the next name from `rest`, with the dot after it. */
static const char *next_name(struct slice *rest, struct slice *name)
{
    bool quoted = rest->n && rest->p[0] == '"';
    struct slice from = quoted ? (struct slice){rest->p + 1, rest->n - 1} : *rest;
    const char *end = from.n ? memchr(from.p, quoted ? '"' : '.', from.n) : NULL;

    if (quoted && !end)
        return "a quoted name has no closing quote";
    *name = (struct slice){from.p, end ? (size_t)(end - from.p) : from.n};
    const char *after = name->p + name->n + quoted, *limit = rest->p + rest->n;
    if (after < limit && *after != '.')
        return "a quoted name must end before a dot";
    if (after + 1 == limit)
        return "the path ends with a dot";
    *rest = after < limit ? (struct slice){after + 1, (size_t)(limit - after - 1)} : SLICE_NONE;
    return path_name_fault(*name);
}

const char *json_path_parse(struct slice text, struct json_path *path)
{
    const char *why = NULL;

    path->count = 0;
    if (text.n > JSON_PATH_TEXT_MAX)
        return "the path is longer than 256 bytes";
    do {
        if (path->count == JSON_PATH_NAMES_MAX)
            return "the path has more than 8 names";
        why = next_name(&text, &path->names[path->count++]);
    } while (!why && text.n);
    return why;
}

bool json_path_equal(const struct json_path *a, const struct json_path *b)
{
    bool same = a->count == b->count;

    for (unsigned i = 0; same && i < a->count; i++)
        same = slice_equal(a->names[i], b->names[i]);
    return same;
}

int json_paths_find(const struct json_paths *set, const struct json_path *path)
{
    for (unsigned i = 0; i < set->count; i++) {
        if (json_path_equal(&set->paths[i], path))
            return (int)i;
    }
    return -1;
}

int json_paths_add(struct json_paths *set, const struct json_path *path)
{
    int at = json_paths_find(set, path);

    if (at >= 0)
        return at;
    if (set->count == JSON_PATHS_MAX)
        return -1;
    set->paths[set->count] = *path;
    return (int)set->count++;
}
