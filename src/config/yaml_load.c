#include "config/yaml_load.h"

#include <stdarg.h>

#include "base/file.h"

struct path_text {
    char text[400];
};

/* Returns "limits.per-client: ", or "" for the root. */
static const char *path_before(const struct node *node, struct path_text *path)
{
    struct text t = text_over(path->text, sizeof path->text - 3);
    node_path(node, &t);
    memcpy(path->text + t.n, t.n ? ": " : "", t.n ? 3 : 1);
    return path->text;
}

static void report_line(struct loading *l, bool is_warning, struct position position,
                        const struct node *path_of, const char *format, va_list args)
{
    char words[800];
    struct path_text path;

    vsnprintf(words, sizeof words, format, args);
    const char *before = path_before(path_of, &path);
    char line[sizeof words + sizeof path];
    snprintf(line, sizeof line, "%s%s", before, words);
    report_line_add(l->report, is_warning, position, line);
}

void mistake(struct loading *l, const struct node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_line(l, false, node->position, node, format, args);
    va_end(args);
}

void mistake_of_key(struct loading *l, const struct node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_line(l, false, node->key_position, node->parent, format, args);
    va_end(args);
}

void warning(struct loading *l, const struct node *node, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    report_line(l, true, node->position, node, format, args);
    va_end(args);
}

/* Returns true for "limits:none", which is one word in YAML, not for "localhost:80" or a URL. */
static bool lacks_space(const struct node *node)
{
    size_t n = 0;

    if (node->kind != NODE_SCALAR || node->quoted)
        return false;
    while (n < node->text.n && ((node->text.p[n] >= 'a' && node->text.p[n] <= 'z') ||
                                node->text.p[n] == '_' || node->text.p[n] == '-'))
        n++;
    if (n == 0 || n + 1 >= node->text.n || node->text.p[n] != ':')
        return false;
    char next = node->text.p[n + 1];
    return (next < '0' || next > '9') &&
           !slice_starts_with((struct slice){node->text.p + n, node->text.n - n}, SLICE("://"));
}

bool expect_map(struct loading *l, const struct node *node, const char *what)
{
    if (node->broken || node->kind == NODE_MAP || node->null)
        return !node->broken;
    mistake(l, node, "expected %s%s", what,
            lacks_space(node) ? "; write a space after the colon of a key" : "");
    return false;
}

bool expect_list(struct loading *l, const struct node *node, const char *what)
{
    if (node->broken || node->kind == NODE_LIST || node->null)
        return !node->broken;
    mistake(l, node, "expected %s", what);
    return false;
}

bool expect_scalar(struct loading *l, const struct node *node, const char *what)
{
    if (node->broken || (node->kind == NODE_SCALAR && !node->null))
        return !node->broken;
    if (node->null)
        mistake(l, node, "has no value; expected %s", what);
    else
        mistake(l, node, "expected %s, not a %s", what, node->kind == NODE_MAP ? "map" : "list");
    return false;
}

const struct node *list_first(const struct node *node)
{
    return !node || node->null ? NULL : node->kind == NODE_LIST ? node->first : node;
}

const struct node *list_next(const struct node *node, const struct node *item)
{
    return node->kind == NODE_LIST ? item->next : NULL; /* a scalar's `next` is a sibling */
}

unsigned list_count(const struct node *node)
{
    return node->kind == NODE_LIST ? node->count : !node->null;
}

char *keep_text(struct loading *l, const struct node *node)
{
    return arena_text(l->arena, node->text);
}

bool text_fits(struct loading *l, const struct node *node, size_t low, size_t high)
{
    if (node->text.n >= low && node->text.n <= high)
        return true;
    mistake(l, node, "is %zu bytes long; expected %zu to %zu", node->text.n, low, high);
    return false;
}

bool name_is_good(struct loading *l, const struct node *node)
{
    bool good =
        node->key.n >= 1 && node->key.n <= NAME_MAX_BYTES && slice_is_alnum_or(node->key, "-_");

    if (!good)
        mistake_of_key(l, node,
                       "%s is not a name; expected 1 to %d letters, digits, \"-\" and \"_\"",
                       QUOTE(node->key), NAME_MAX_BYTES);
    return good;
}

char *neighbour_path(struct loading *l, struct slice path)
{
    const char *slash = strrchr(l->report->file, '/');
    size_t directory = path.n && path.p[0] == '/' ? 0
                       : slash                    ? (size_t)(slash + 1 - l->report->file)
                                                  : 0;
    char *whole = arena_zeroed(&l->scratch, directory + path.n + 1, 1);
    memcpy(whole, l->report->file, directory);
    memcpy(whole + directory, path.p, path.n);
    return whole;
}

bool named_file_read(struct loading *l, const struct node *node, struct arena *arena,
                     const char *path, size_t max, struct slice *bytes)
{
    const char *why;

    if (file_read(arena, path, max, bytes, &why))
        return true;
    if (strstr(path, "://")) {
        mistake(l, node, "%s is a URL; expected a file", QUOTE(node->text));
        return false;
    }
    mistake(l, node, "%s cannot be read: %s", path, why);
    return false;
}

const struct node *node_at(const struct loading *l, const char *section, const char *key)
{
    return node_find(node_find(l->root, section), key);
}

const struct node *first_in_section(const struct loading *l, const char *section)
{
    const struct node *node = node_find(l->root, section);
    return node ? node->first : NULL;
}
