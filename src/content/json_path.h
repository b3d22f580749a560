/* json_path.h - paths to members of a JSON document: names joined by dots, as in a policy.
 *
 * A path does not look into arrays. Its names are printable ASCII, so that "the same name in
 * another letter case" is certain for every reader of JSON. */
#ifndef WEIR_CONTENT_JSON_PATH_H
#define WEIR_CONTENT_JSON_PATH_H

#include "base/slice.h"

enum {
    JSON_PATH_NAMES_MAX = 8, /* names of a path */
    JSON_PATH_TEXT_MAX = 256,
    JSON_PATHS_MAX = 32 /* paths of a set: one bit each in struct json_scanner */
};

struct json_path {
    unsigned count;
    struct slice names[JSON_PATH_NAMES_MAX];
};

/* Parses `usage.total_tokens`, or with quoted names `'a."b d"'`. A quoted name contains no quote.
 * The names are slices of `text`, which must outlive the path. Returns NULL, or what is wrong. */
const char *json_path_parse(struct slice text, struct json_path *path);

bool json_path_equal(const struct json_path *a, const struct json_path *b);

/* A set of paths that one scanner looks for. */
struct json_paths {
    unsigned count;
    struct json_path paths[JSON_PATHS_MAX];
};

/* Returns the position of the path in the set, or -1. */
int json_paths_find(const struct json_paths *set, const struct json_path *path);
/* Returns the position of the path in the set, which it is added to if it is missing; -1: the set
 * is full. */
int json_paths_add(struct json_paths *set, const struct json_path *path);

#endif
