/* policy.c - a policy's life: loaded, held, dropped, printed. */
#include "policy/policy.h"

#include <stdlib.h>

#include "base/memory.h"
#include "policy/parts.h"
#include "policy/types.h"

enum { POLICY_FILE_MAX = 16 << 20 }; /* bytes */

static struct policy *policy_new(const char *file)
{
    struct policy *policy = xcalloc(1, sizeof *policy);
    policy->pool = xcalloc(1, sizeof *policy->pool);
    policy->file = pool_text(policy->pool, slice_of(file));
    atomic_init(&policy->references, 1);
    return policy;
}

struct policy *policy_hold(struct policy *policy)
{
    atomic_fetch_add_explicit(&policy->references, 1, memory_order_relaxed);
    return policy;
}

void policy_drop(struct policy *policy)
{
    /* Whoever frees sees what the others did before they let go. */
    if (!policy || atomic_fetch_sub_explicit(&policy->references, 1, memory_order_acq_rel) > 1)
        return;
    pool_free(policy->pool);
    free(policy->pool);
    free(policy->driver);
    free(policy);
}

static void read_root(struct loading *l)
{
    if (l->root->broken)
        return;
    if (expect_map(l, l->root, "a map of keys and values, such as upstreams: ..."))
        options_read(l, l->root, "", l->policy);
    policy_check(l);
}

struct policy *policy_load_text(const char *file, struct slice bytes, const char *lua_dir, FILE *out)
{
    struct report report = {.file = file};
    struct policy *policy = policy_new(file);
    struct loading l = {.policy = policy, .pool = policy->pool, .report = &report, .lua_dir = lua_dir};

    l.root = tree_read(&l.scratch, bytes, &report);
    read_root(&l);
    bool good = report.mistakes == 0;
    report_finish(&report, out);
    pool_free(&l.scratch);
    if (good)
        return policy;
    policy_drop(policy);
    return NULL;
}

struct policy *policy_load(const char *file, const char *lua_dir, FILE *report)
{
    struct pool pool = {NULL};
    struct policy *policy = NULL;
    struct slice bytes;
    const char *why;

    if (file_read(&pool, file, POLICY_FILE_MAX, &bytes, &why))
        policy = policy_load_text(file, bytes, lua_dir, report);
    else
        fprintf(report, "%s: cannot be read: %s\n", file, why);
    pool_free(&pool);
    return policy;
}

void policy_print(const struct policy *policy, FILE *out)
{
    struct printer printer = {out, 0, false};
    options_print(&printer, "", policy);
}
