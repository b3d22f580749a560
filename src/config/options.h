/* options.h - table of all options of a policy file.
 *
 * The rows are in options_*.c. Used by the reader, by the output of `weir check`, and by the test
 * that compares it with conf/weir.yaml and weir.yaml(5). An option's path is its name in the
 * manual: "redis.timeout", "limits.NAME.period", "rules[].match.path". Within a section, options
 * are read and printed in table order; limits precede the rules that name them. */
#ifndef WEIR_CONFIG_OPTIONS_H
#define WEIR_CONFIG_OPTIONS_H

#include "yaml/load.h"

struct option;

/* Output state. `indent` is in spaces; with `item`, the next line starts a list item. */
struct printer {
    FILE *out;
    unsigned indent;
    bool item;
};

struct option_type {
    const char *name; /* for the manual */
    /* Reads a node into the field. The node is not broken, and null only if takes_null is set. */
    void (*read)(struct loading *l, const struct option *option, const struct node *node,
                 void *field);
    /* Prints the value after "key:". */
    void (*print)(const struct printer *printer, const struct option *option, const void *field);
    bool takes_null; /* `key:` without a value is an empty map or list, or none */
};

enum {
    OPTION_RESTART = 1,  /* a change requires a restart; others need a reload */
    OPTION_REQUIRED = 4, /* no default */
    OPTION_DERIVED = 8   /* `fallback` is a description; code sets the default */
};

struct option {
    const char *path;
    const struct option_type *type;
    size_t offset;        /* of the field in the section's struct */
    const char *fallback; /* default as YAML; NULL: none */
    int64_t low, high;
    unsigned flags;
    const char *const *names;          /* of enum values, NULL-terminated */
    bool (*applies)(const void *base); /* NULL: always; else whether to print and require it */
    const char *help;
};

/* Rows of some top-level sections; each group is a file options_*.c. */
struct option_group {
    const struct option *rows;
    size_t count;
};

extern const struct option_group options_server, options_upstreams, options_identity,
    options_limits, options_rules, options_process;
/* All groups in table order; NULL-terminated. */
extern const struct option_group *const option_groups[];

/* Iterates over all rows in table order. `break` ends only the current group. */
#define EACH_OPTION(row)                                                                           \
    for (const struct option_group *const *group_ = option_groups; *group_; group_++)              \
        for (const struct option *row = (*group_)->rows; row < (*group_)->rows + (*group_)->count; \
             row++)

/* Returns the last part of the path: the key in the file. */
const char *option_key(const struct option *option);

/* Returns true for a list (or a scalar as its only item) of option->low to option->high items. */
bool list_fits(const struct option *option, const struct node *node);

/* Returns true for option->low to option->high printable ASCII characters, none in `refused`.
 * Otherwise reports "holds more than WHAT". */
bool ascii_fits(struct loading *l, const struct option *option, const struct node *node,
                const char *refused, const char *what);

/* Returns the neighbour_path() of a file named by an option. NULL: the value is null, or an error
 * was reported. */
const char *file_path(struct loading *l, const struct option *option, const struct node *node);

/* Reads a map into the struct at `base` according to the table's `section`. Reports unknown and
 * missing keys and sets defaults. If `map` is a null scalar, all options get their defaults. */
void options_read(struct loading *l, const struct node *map, const char *section, void *base);
/* Prints the section in table order. */
void options_print(struct printer *printer, const char *section, const void *base);

#endif
