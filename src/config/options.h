/* options.h - the one table of everything that can be written in a policy file.
 *
 * The reader, `weir check`'s print, and the test that compares conf/weir.yaml and weir.yaml(5) with it all
 * use it. An option's path is its name in the manual: "redis.timeout", "limits.NAME.period",
 * "rules[].match.path". Within a section the table's order is that of reading (limits before the rules that
 * name them) and of printing. */
#ifndef WEIR_CONFIG_OPTIONS_H
#define WEIR_CONFIG_OPTIONS_H

#include "config/load.h"

struct option;

/* Where a policy is printed: lines start `indent` spaces in; the first one of a list's item has "- " there.
 */
struct printer {
    FILE *out;
    unsigned indent;
    bool item;
};

struct option_type {
    const char *name; /* for the manual */
    /* From a node, which is not broken and not null (but for the types that say so), to the field. */
    void (*read)(struct loading *l, const struct option *option, const struct node *node, void *field);
    /* The value, after "key:". */
    void (*print)(const struct printer *printer, const struct option *option, const void *field);
    bool takes_null; /* `key:` alone is an empty map or list, or none */
};

enum {
    OPTION_RESTART = 1,  /* a change takes effect at the next start; of others, with a reload */
    OPTION_LATER = 2,    /* in the contract, not supported yet: refused */
    OPTION_REQUIRED = 4, /* has no default */
    OPTION_DERIVED = 8   /* `fallback` is words: the default comes from elsewhere */
};

struct option {
    const char *path;
    const struct option_type *type;
    size_t offset;        /* of the field in its section's struct */
    const char *fallback; /* the default as YAML, NULL: none */
    int64_t low, high;
    unsigned flags;
    const char *const *names;          /* of an enum, ended by NULL */
    bool (*applies)(const void *base); /* NULL: always printed */
    const char *help;
};

extern const struct option options[];
extern const size_t option_count;

/* The last part of its path: its key in the file. */
const char *option_key(const struct option *option);

/* A list, or a scalar in its place, of `low` to `high` items? */
bool list_fits(const struct option *option, const struct node *node);

/* A text of `low` to `high` printable ASCII characters with none of `refused`? Otherwise "holds more than WHAT". */
bool ascii_fits(struct loading *l, const struct option *option, const struct node *node, const char *refused,
                const char *what);

/* Where the file is that an option names: a neighbour_path. NULL: null is written, or a mistake was reported. */
const char *file_path(struct loading *l, const struct option *option, const struct node *node);

/* Reads a map into the struct at `base` after the table's part for `section`: reports unknown and missing
 * keys and fills in defaults. `map` may be a null scalar: all defaults. */
void options_read(struct loading *l, const struct node *map, const char *section, void *base);
/* Prints the section in the table's order. */
void options_print(struct printer *printer, const char *section, const void *base);

#endif
