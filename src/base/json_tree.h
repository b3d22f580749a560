/* json_tree.h - reads JSON (RFC 8259) into a tree. For small documents: bodies of the admin API,
 * lines of an access log. */
#ifndef WEIR_BASE_JSON_TREE_H
#define WEIR_BASE_JSON_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/macros.h"

enum { JSON_DEPTH_MAX = 16 };

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_LIST, JSON_OBJECT };

struct json_node {
    enum json_kind kind;
    struct slice key;  /* in an object, decoded; NUL-terminated */
    struct slice text; /* of a string, decoded; of a number, as written; NUL-terminated */
    bool value;        /* JSON_BOOL */
    struct json_node *first, *next;
};

/* Returns the document's value in `arena`; NULL if it is not JSON, or nested deeper than
 * JSON_DEPTH_MAX. Decoded strings are UTF-8; "\u0000" is an error, as are lone surrogates. */
MUST_CHECK const struct json_node *json_read(struct arena *arena, struct slice text);

/* Returns the member of an object, or NULL. `node` may be NULL. Of equal keys, the first. */
const struct json_node *json_member(const struct json_node *node, const char *key);
/* Follows member names separated by dots: "latency.requests.p50_seconds". */
const struct json_node *json_at(const struct json_node *node, const char *path);
/* Returns the value of a number; `otherwise` for NULL and other kinds. */
double json_double(const struct json_node *node, double otherwise);
/* Returns the text of a string; "" for NULL and other kinds. */
struct slice json_string(const struct json_node *node);

#endif
