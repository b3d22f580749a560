/* options.h - table of all options of a policy file.
 *
 * These files have what is independent of single sections: reading and printing by table
 * (options.c), types of values (types.h), and their output as YAML (printer.h). The rows of
 * policies are in config/options_*.c; files of other kinds have a table of their own. The table of
 * policies is used by the reader, by the output of `weir check`, and by the test that compares it
 * with conf/weir.yaml and weir.yaml(5). An option's path is its name in the manual:
 * "redis.timeout", "limits.NAME.period", "rules[].match.path". Within a section, options are read
 * and printed in table order; limits precede the rules that name them. */
#ifndef WEIR_CONFIG_OPTIONS_H
#define WEIR_CONFIG_OPTIONS_H

#include "config/printer.h"
#include "config/yaml_load.h"

struct option;

struct option_type {
    const char *name; /* for the manual */
    /* Reads a node into the field. The node is not broken, and null only if takes_null is set. */
    void (*read)(struct loading *l, const struct option *option, const struct node *node,
                 void *field);
    /* Prints the value after "key:". printer->option is the option. NULL: its list prints it. */
    void (*print)(const struct printer *printer, const void *field);
    bool takes_null; /* `key:` without a value is an empty map or list, or none */
    size_t size;     /* of the field; 0: a struct, of which the type sets some members */
};

enum {
    OPTION_RESTART = 1,  /* a change requires a restart; others need a reload */
    OPTION_REQUIRED = 4, /* no default */
    OPTION_DERIVED = 8   /* `fallback` is a description; code sets the default */
};

struct option {
    const char *path;
    const struct option_type *type;
    size_t offset, size;  /* MEMBER(): the field in the section's struct; 0: the struct itself */
    size_t shown;         /* SHOWS(): the member that is printed; 0: the field */
    const char *fallback; /* default as YAML; NULL: none */
    int64_t low, high;
    unsigned flags;
    const char *const *names; /* of enum values, NULL-terminated */
    /* Conditions under which the option is printed and required; by default it always is. */
    struct option_condition {
        size_t offset, size; /* SET(), UNSET(): a member of the section's struct; 0: no condition */
        bool zero;
    } when;
    bool (*applies)(const void *base);
    bool (*has)(const void *base, const char *key); /* is called with the option's key */
    const char *help;
};

/* Rows of some top-level sections; each group is a file config/options_*.c. */
struct option_group {
    const struct option *rows;
    size_t count;
};

extern const struct option_group options_server, options_upstreams, options_identity,
    options_limits, options_rules, options_rate_limit_service, options_process;

/* All groups of policies in table order; NULL-terminated. */
extern const struct option_group *const option_groups[];

/* Iterates over all rows of groups in table order. `break` ends only the current group. */
#define EACH_OPTION(row) EACH_OPTION_OF (row, option_groups)
#define EACH_OPTION_OF(row, groups)                                                                \
    for (const struct option_group *const *group_ = (groups); *group_; group_++)                   \
        for (const struct option *row = (*group_)->rows; row < (*group_)->rows + (*group_)->count; \
             row++)

/* Returns whether the option is printed and required for the section's struct at `base`. */
bool option_applies(const struct option *option, const void *base);

/* Returns the last part of the path: the key in the file. */
const char *option_key(const struct option *option);

/* The keys of a section, for messages: "level, format, access, file". Empty if there are none, or
 * too many for one line. */
struct option_keys {
    char text[128];
};
const char *option_keys(const struct loading *l, const char *section, struct option_keys *keys);

/* Reads a map into the struct at `base` according to the section in l->options. Reports unknown and
 * missing keys and sets defaults. If `map` is a null scalar, all options get their defaults. */
void options_read(struct loading *l, const struct node *map, const char *section, void *base);
/* Prints the section in table order. */
void options_print(struct printer *printer, const char *section, const void *base);
/* Prints "NAME:" and the section below it. */
void print_entry(const struct printer *names, struct slice name, const char *section,
                 const void *base);
/* Prints `count` structs, `stride` bytes apart, as entries of a section: a map of entries by name,
 * whose char * is at the offset `name`, or a list (NO_NAME). */
enum { NO_NAME = -1 };
void print_entries(const struct printer *printer, const void *first, unsigned count, size_t stride,
                   int name, const char *section);

/* Define print() of an option whose field is a struct with the `count` entries `list` of a map, by
 * their member `name`, or of a list. */
#define PRINT_MAP(function, type, list, count, section)                                            \
    PRINT_ENTRIES(function, type, list, count, offsetof(__typeof__(*of->list), name), section)
#define PRINT_LIST(function, type, list, count, section)                                           \
    PRINT_ENTRIES(function, type, list, count, NO_NAME, section)
#define PRINT_ENTRIES(function, type, list, count, name, section)                                  \
    static void function(const struct printer *printer, const void *field)                         \
    {                                                                                              \
        const struct type *of = field;                                                             \
        print_entries(printer, of->list, of->count, sizeof *of->list, name, section);              \
    }

#endif
