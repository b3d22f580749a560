/* read_script.c - limits.NAME.script: a built-in limiter, or the path of a Lua file. */
#include <errno.h>
#include <unistd.h>

#include "config/sections.h"
#include "policy/shipped_limiter.h"

static void unknown_script(struct loading *l, const struct node *node)
{
    struct script_names names;
    struct suggestion meant = suggestion_for(node->text);

    for (unsigned i = 0; shipped_limiter_at(i); i++)
        suggestion_consider(&meant, slice_of(shipped_limiter_at(i)->name));
    (void)script_names(node->text, &names);
    mistake(l, node, "there is no script %s; use one of %s, or a path such as ./my.lua%s",
            QUOTE(node->text), names.text, DID_YOU_MEAN(&meant));
}

/* Returns true if a built-in script is readable; otherwise reports an error. */
static bool is_installed(struct loading *l, const struct node *node, const char *path)
{
    if (access(path, R_OK) == 0)
        return true;
    mistake(l, node,
            "%s cannot be read: %s; install weir, or name the directory of its limiters in "
            "WEIR_LUA_DIR",
            path, strerror(errno));
    return false;
}

/* Returns the path of the script; NULL after reporting an error. */
static const char *script_path(struct loading *l, const struct node *node, struct limit *limit)
{
    struct slice text = node->text;
    bool is_path =
        memchr(text.p, '/', text.n) || (text.n > 4 && !strcmp(text.p + text.n - 4, ".lua"));

    limit->kind = LIMIT_CUSTOM;
    if (is_path)
        return neighbour_path(l, text);
    limit->shipped = shipped_limiter(text);
    if (limit->shipped) {
        size_t room = strlen(l->lua_dir) + text.n + 6;
        char *path = arena_zeroed(&l->scratch, room, 1);
        snprintf(path, room, "%s/%s.lua", l->lua_dir, text.p);
        limit->kind = limit->shipped->kind;
        return path;
    }
    unknown_script(l, node);
    return NULL;
}

/* Returns the text that an earlier limit has read from the same file, or NULL. */
static char *text_known(const struct policy *policy, const struct limit *limit)
{
    for (const struct limit *known = policy->limits; known < limit; known++)
        if (known->script && strcmp(known->script, limit->script) == 0)
            return known->script_text;
    return NULL;
}

static void read_script(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct limit *limit = field;
    struct slice bytes;

    (void)option;
    if (!expect_scalar(l, node, "a script's name or path") || !text_fits(l, node, 1, 4096))
        return;
    const char *path = script_path(l, node, limit);
    if (!path)
        return;
    limit->script = keep_text(l, node);
    limit->script_position = node->position;
    script_options_begin(l, limit);
    limit->script_text = text_known(l->policy, limit);
    if (limit->script_text)
        return;
    if (limit->kind != LIMIT_CUSTOM && !is_installed(l, node, path))
        return;
    if (!named_file_read(l, node, &l->scratch, path, LUA_FILE_MAX, &bytes))
        return;
    if (memchr(bytes.p, 0, bytes.n))
        mistake(l, node, "%s is not Lua text: it contains a NUL byte", path);
    else
        limit->script_text = arena_text(l->arena, bytes);
}

static void print_script(const struct printer *printer, const struct option *option,
                         const void *field)
{
    const struct limit *limit = field;
    type_text.print(printer, option, &limit->script);
}

const struct option_type type_script = {"name or path", read_script, print_script, false, 0};
