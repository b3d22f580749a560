/* tree.h - YAML text as a tree of nodes that know where they stand.
 *
 * A small YAML: one document of maps, lists and scalars. Aliases, anchors and tags are refused, as are
 * duplicate keys; `${NAME}` is the environment's value, `$${` stands for "${". Depth, size and count are
 * bounded. Everything wrong is reported; the tree then holds what could be read. */
#ifndef WEIR_CONFIG_TREE_H
#define WEIR_CONFIG_TREE_H

#include "config/report.h"

enum {
    TREE_DEPTH_MAX = 16,
    TREE_NODES_MAX = 1000000,
    TREE_SCALAR_MAX = 65536, /* bytes */
};

enum node_kind { NODE_SCALAR, NODE_MAP, NODE_LIST };

struct node {
    enum node_kind kind;
    bool broken; /* a mistake in it was reported: readers pass over it without a word */
    bool null;   /* a scalar that says nothing: empty, null or ~ */
    bool quoted; /* a scalar in quotes, or a block: text, whatever it looks like */
    struct position position, key_place;
    struct slice key;  /* in a map; NUL-terminated, holds no NUL */
    struct slice text; /* of a scalar; likewise */
    unsigned index;    /* in a list */
    unsigned count;    /* of children */
    struct node *first, *last, *next;
    const struct node *parent;
};

/* Never NULL: what is no YAML is reported and gives an empty map that is broken. */
const struct node *tree_read(struct arena *arena, struct slice bytes, struct report *report);

/* The child of a map under `key`, or NULL. */
const struct node *node_find(const struct node *map, const char *key);

/* "limits.per-client.period", "rules[2].match"; nothing for the root. */
void node_path(const struct node *node, struct text *out);

#endif
