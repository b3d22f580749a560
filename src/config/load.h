/* load.h - what the readers of a policy's parts share while one is read; for src/policy/ alone. */
#ifndef WEIR_CONFIG_LOAD_H
#define WEIR_CONFIG_LOAD_H

#include "config/suggest.h"
#include "config/tree.h"

struct loading {
    struct policy *policy;
    struct arena *arena;  /* the policy's */
    struct arena scratch; /* gone when the policy is read */
    struct report *report;
    const struct node *root;
    const char *lua_dir;
};

/* "PLACE: path.of.key: ..." about a node's value; the second about its key, with the path of its map. */
void mistake(struct loading *l, const struct node *node, const char *format, ...) PRINTF_LIKE(3, 4);
void mistake_of_key(struct loading *l, const struct node *node, const char *format, ...) PRINTF_LIKE(3, 4);
void warning(struct loading *l, const struct node *node, const char *format, ...) PRINTF_LIKE(3, 4);

/* Is it a map, a list, a scalar? Otherwise a mistake is reported: "expected WHAT". A map or list that says
 * nothing (its key stands alone) passes as an empty one. */
bool expect_map(struct loading *l, const struct node *node, const char *what);
bool expect_list(struct loading *l, const struct node *node, const char *what);
bool expect_scalar(struct loading *l, const struct node *node, const char *what);

/* A list's items; a scalar stands for a list of itself. */
const struct node *list_first(const struct node *node);
const struct node *list_next(const struct node *node, const struct node *item);
unsigned list_count(const struct node *node);

/* The node's text in the policy's pool. */
char *keep_text(struct loading *l, const struct node *node);
/* `low` to `high` bytes long? Otherwise a mistake is reported. */
bool text_fits(struct loading *l, const struct node *node, size_t low, size_t high);
/* Letters, digits, "-" and "_", at most NAME_MAX_BYTES: the names of limits and upstreams. */
enum { NAME_MAX_BYTES = 64 };
bool name_is_good(struct loading *l, const struct node *node);

/* The path of a file that the policy names: relative ones are the policy's neighbours. In the scratch pool.
 */
char *neighbour_path(struct loading *l, struct slice path);
/* The whole of a file of at most `max` bytes, NUL-terminated, in `pool`. False: `*why` says what is wrong. */
bool file_read(struct arena *arena, const char *path, size_t max, struct slice *bytes, const char **why);
/* The same for the file that `node` names; what is wrong is reported there. */
bool named_file_read(struct loading *l, const struct node *node, struct arena *arena, const char *path,
                     size_t max, struct slice *bytes);

/* policy_load from memory. */
struct policy *policy_load_text(const char *file, struct slice bytes, const char *lua_dir, FILE *report);

#endif
