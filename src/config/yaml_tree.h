/* yaml_tree.h - parses YAML into a tree of nodes with line and column.
 *
 * Supports a subset of YAML: one document of maps, lists and scalars. Aliases, anchors, tags and
 * duplicate keys are errors. `${NAME}` is replaced by the environment variable, `$${` by "${".
 * Depth, size and node count are bounded. After an error, the tree contains the readable part. */
#ifndef WEIR_CONFIG_YAML_TREE_H
#define WEIR_CONFIG_YAML_TREE_H

#include "config/report.h"

enum {
    TREE_DEPTH_MAX = 96,
    TREE_NODES_MAX = 1000000,
    TREE_SCALAR_MAX = 65536, /* bytes */
};

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

struct node {
    enum node_kind kind;
    bool broken;      /* an error was already reported: readers skip it */
    bool null;        /* empty scalar, null or ~ */
    bool quoted;      /* quoted or block scalar: always text */
    bool substituted; /* contains values of environment variables */
    struct position position, key_position;
    struct slice key;  /* in a map; NUL-terminated, contains no NUL */
    struct slice text; /* of a scalar; same guarantees */
    unsigned index;    /* in a list */
    unsigned count;    /* of children */
    struct node *first, *last, *next;
    const struct node *parent;
};

/* Never returns NULL: invalid YAML is reported and gives a broken, empty map. */
const struct node *tree_read(struct arena *arena, struct slice bytes, struct report *report);

/* Returns the child of a map under `key`, or NULL. `map`: NULL is a map without children. */
const struct node *node_find(const struct node *map, const char *key);

/* Writes the path, such as "limits.per-client.period" or "rules[2].match"; empty for the root. */
void node_path(const struct node *node, struct text *out);

#endif
