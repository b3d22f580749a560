/* yaml_load.h - what the readers and checks of a policy file share: state, messages, node access.
 *
 * These files own YAML files as trees of nodes, and messages about them, and contain nothing of
 * single options. In reading order: yaml_tree.h, report.h, suggest.h, yaml_load.h. */
#ifndef WEIR_CONFIG_YAML_LOAD_H
#define WEIR_CONFIG_YAML_LOAD_H

#include "config/suggest.h"
#include "config/yaml_tree.h"

struct policy;
struct option_group;

struct loading {
    struct policy *policy;
    const struct option_group *const *options; /* of the file that is read; NULL-terminated */
    struct arena *arena;                       /* the policy's */
    struct arena scratch;                      /* freed after loading */
    struct arena file;                         /* a large file; freed after reading it */
    struct report *report;
    const struct node *root;
    const struct node *secret; /* the first secret that stands in the policy itself, or NULL */
    const char *lua_dir;
    bool unserved; /* policy_load_unserved(): certificates of listeners are not read */
};

/* Report "POSITION: path.of.key: ...": an error at a node's value, an error at its key (with the
 * path of its map), or a warning at its value. */
void mistake(struct loading *l, const struct node *node, const char *format, ...) PRINTF_LIKE(3, 4);
void mistake_of_key(struct loading *l, const struct node *node, const char *format, ...)
    PRINTF_LIKE(3, 4);
void warning(struct loading *l, const struct node *node, const char *format, ...) PRINTF_LIKE(3, 4);

/* Return true if the node is a map, list or scalar; otherwise report "expected WHAT", unless the
 * node is broken. A key without a value is accepted as an empty map or list. */
bool expect_map(struct loading *l, const struct node *node, const char *what);
bool expect_list(struct loading *l, const struct node *node, const char *what);
bool expect_scalar(struct loading *l, const struct node *node, const char *what);

/* Iterate over a list's items; a scalar or map counts as one item, a null scalar and NULL (for
 * list_first()) as none. */
const struct node *list_first(const struct node *node);
const struct node *list_next(const struct node *node, const struct node *item);
unsigned list_count(const struct node *node);
#define EACH_ITEM(item, list)                                                                      \
    for (const struct node *item = list_first(list); item; item = list_next(list, item))

/* Copies the node's text into the policy's arena. */
char *keep_text(struct loading *l, const struct node *node);
/* Returns true if the text is `low` to `high` bytes long; otherwise reports an error. */
bool text_fits(struct loading *l, const struct node *node, size_t low, size_t high);
/* Checks a name, such as that of a limit or upstream: 1 to NAME_MAX_BYTES letters, digits, "-" and
 * "_". Otherwise reports an error. */
enum { NAME_MAX_BYTES = 64 };
bool name_is_good(struct loading *l, const struct node *node);

/* Returns a path relative to the policy file's directory, in the scratch arena. */
char *neighbour_path(struct loading *l, struct slice path);
/* As file_read(), for a file named by `node`; reports errors there. */
bool named_file_read(struct loading *l, const struct node *node, struct arena *arena,
                     const char *path, size_t max, struct slice *bytes);

/* Returns the node of `section`.`key` in the file, or NULL. */
const struct node *node_at(const struct loading *l, const char *section, const char *key);
/* Returns the first child of the section in the file, or NULL. */
const struct node *first_in_section(const struct loading *l, const char *section);

#endif
