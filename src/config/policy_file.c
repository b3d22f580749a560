/* policy_file.c - loads and prints policies. */
#include "config/policy_file.h"

#include <errno.h>
#include <limits.h>
#include <sys/stat.h>

#include "base/file.h"
#include "config/lint.h"
#include "config/sections.h"

enum { POLICY_FILE_MAX = 16 << 20 }; /* bytes */

enum { NOT_WRITTEN = UINT_MAX };

/* Defaults of nginx (keepalive_timeout, send_timeout); usual value of HAProxy's timeout tunnel. */
static const uint64_t KEEPALIVE_US = 75 * 1000000ull, SEND_US = 60 * 1000000ull,
                      TUNNEL_US = 3600 * 1000000ull;

/* Derived defaults: sets a value that cannot be written; derived_finish() replaces it. */
static void derived_begin(struct policy *policy)
{
    policy->size_limits.connections_per_ip = NOT_WRITTEN;
}

static uint64_t first_written(uint64_t own_us, uint64_t idle_us, uint64_t default_us)
{
    return own_us ? own_us : idle_us ? idle_us : default_us;
}

/* Announces a timeout 1 s below the real one, so that a request sent at the last moment finds the
 * connection open. */
static const char *keep_alive_lines(struct policy *policy)
{
    char bytes[96];
    struct text lines = text_over(bytes, sizeof bytes);
    uint64_t seconds = policy->timeouts.keepalive_us / 1000000;

    text_literal(&lines, "Connection: keep-alive\r\nKeep-Alive: timeout=");
    text_u64(&lines, seconds ? seconds - 1 : 0);
    text_literal(&lines, "\r\n");
    return arena_text(policy->arena, text_slice(&lines));
}

static void derived_finish(struct policy *policy)
{
    struct size_limits *sizes = &policy->size_limits;
    struct timeouts *t = &policy->timeouts;

    sizes->connections_per_ip_derived = sizes->connections_per_ip == NOT_WRITTEN;
    if (sizes->connections_per_ip_derived)
        sizes->connections_per_ip =
            sizes->connections > 0 && sizes->connections < 4 ? 1 : sizes->connections / 4;
    t->keepalive_us = first_written(t->keepalive_us, t->idle_us, KEEPALIVE_US);
    t->tunnel_us = first_written(t->tunnel_us, t->idle_us, TUNNEL_US);
    t->send_us = first_written(t->send_us, t->idle_us, SEND_US);
    policy->keep_alive = keep_alive_lines(policy);
}

static void read_root(struct loading *l)
{
    if (l->root->broken)
        return;
    derived_begin(l->policy);
    if (expect_map(l, l->root, "a map of keys and values, such as upstreams: ..."))
        options_read(l, l->root, "", l->policy);
    derived_finish(l->policy);
    addresses_read(l);
    decisions_finish(l);
    admin_finish(l);
    identity_finish(l);
    redis_url_finish(l);
    if (!l->report->mistakes)
        read_headers_collect(l);
    policy_check(l);
}

struct policy *policy_load_text(const char *file, struct slice bytes, const char *lua_dir,
                                FILE *out)
{
    struct report report = {.file = file};
    struct policy *policy = policy_new(file);
    struct loading l = {
        .policy = policy, .arena = policy->arena, .report = &report, .lua_dir = lua_dir};

    l.root = tree_read(&l.scratch, bytes, &report);
    read_root(&l);
    bool good = report.mistakes == 0;
    report_finish(&report, out);
    arena_free(&l.scratch);
    if (good)
        return policy;
    policy_drop(policy);
    return NULL;
}

struct policy *policy_load(const char *file, const char *lua_dir, FILE *report)
{
    struct arena arena = {NULL};
    struct policy *policy = NULL;
    struct slice bytes;
    const char *why;

    if (file_read(&arena, file, POLICY_FILE_MAX, &bytes, &why))
        policy = policy_load_text(file, bytes, lua_dir, report);
    else
        fprintf(report, "%s: cannot be read: %s%s\n", file, why,
                strcmp(why, strerror(EFBIG)) == 0 ? "; a policy has at most 16 MiB" : "");
    arena_free(&arena);
    return policy;
}

bool policy_wants_json_log(const char *file)
{
    struct report report = {.file = file};
    struct arena arena = {NULL};
    struct slice bytes;
    const struct node *node = NULL;
    struct stat st;
    const char *why;

    if (stat(file, &st) != 0 || !S_ISREG(st.st_mode)) /* a pipe can be read only once */
        return false;
    if (file_read(&arena, file, POLICY_FILE_MAX, &bytes, &why))
        node = node_find(tree_read(&arena, bytes, &report), "log");
    node = node ? node_find(node, "format") : NULL;
    bool json = node && node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("json"));
    report_forget(&report);
    arena_free(&arena);
    return json;
}

void policy_print(const struct policy *policy, FILE *out)
{
    struct printer printer = {out, 0, false};
    options_print(&printer, "", policy);
}
