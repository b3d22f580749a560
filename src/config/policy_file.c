/* policy_file.c - loads and prints policies. */
#include "config/policy_file.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/memory_stream.h"
#include "config/lint.h"
#include "config/sections.h"
#include "limit/header_families.h"

enum { POLICY_FILE_MAX = 16 << 20 }; /* bytes */

/* Defaults of nginx (keepalive_timeout, send_timeout); usual value of HAProxy's timeout tunnel. */
static const uint64_t KEEPALIVE_US = 75 * 1000000ull, SEND_US = 60 * 1000000ull,
                      TUNNEL_US = 3600 * 1000000ull;

static uint64_t first_written(uint64_t own_us, uint64_t idle_us, uint64_t default_us)
{
    return own_us ? own_us : idle_us ? idle_us : default_us;
}

/* Announces a timeout 1 s below the real one, so that a request sent at the last moment finds the
 * connection open. */
static struct slice keep_alive_lines(struct policy *policy)
{
    char bytes[96];
    struct text lines = text_over(bytes, sizeof bytes);
    uint64_t seconds = policy->timeouts.keepalive_us / 1000000;

    text_literal(&lines, "Connection: keep-alive\r\nKeep-Alive: timeout=");
    text_u64(&lines, seconds ? seconds - 1 : 0);
    text_literal(&lines, "\r\n");
    return (struct slice){arena_text(policy->arena, text_slice(&lines)), lines.n};
}

/* Sets the defaults that depend on other options. */
static void derived_finish(struct loading *l)
{
    struct policy *policy = l->policy;
    struct size_limits *sizes = &policy->size_limits;
    struct timeouts *t = &policy->timeouts;

    sizes->connections_per_ip_derived = !node_at(l, "size_limits", "connections_per_ip");
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
    service_begin(l);
    if (expect_map(l, l->root, "a map of keys and values, such as upstreams: ..."))
        options_read(l, l->root, "", l->policy);
    derived_finish(l);
    addresses_read(l);
    decisions_finish(l);
    service_finish(l);
    admin_finish(l);
    identity_finish(l);
    redis_url_finish(l);
    if (!l->report->mistakes) {
        read_headers_collect(l);
        header_families_prepare(l->policy);
    }
    policy_check(l);
}

/* Loading a policy, from a file or from a text. */
struct load {
    struct loading l;
    struct report report;
    struct slice bytes; /* empty: read them from report.file */
    FILE *out;
    bool good;
};

static bool read_bytes(struct load *load)
{
    const char *file = load->report.file, *why;

    if (load->bytes.p || file_read(&load->l.scratch, file, POLICY_FILE_MAX, &load->bytes, &why))
        return true;
    fprintf(load->out, "%s: cannot be read: %s%s\n", file, why,
            strcmp(why, strerror(EFBIG)) == 0 ? "; a policy has at most 16 MiB" : "");
    return false;
}

static void load_it(void *context)
{
    struct load *load = context;
    struct loading *l = &load->l;

    l->report = &load->report;
    l->options = option_groups;
    if (!read_bytes(load))
        return;
    l->policy = policy_new(load->report.file);
    l->arena = l->policy->arena;
    l->root = tree_read(&l->scratch, load->bytes, l->report);
    read_root(l);
    load->good = load->report.mistakes == 0;
    report_finish(&load->report, load->out);
}

static struct policy *finish_loading(struct load *load)
{
    bool has_memory = memory_try(load_it, load);

    report_forget(&load->report);
    arena_free(&load->l.file);
    arena_free(&load->l.scratch);
    if (load->good)
        return load->l.policy;
    policy_drop(load->l.policy);
    if (!has_memory)
        memory_exhausted();
    return NULL;
}

struct policy *policy_load_text(const char *file, struct slice bytes, const char *lua_dir,
                                FILE *out)
{
    struct load load = {.l.lua_dir = lua_dir, .report.file = file, .bytes = bytes, .out = out};
    return finish_loading(&load);
}

struct policy *policy_load(const char *file, const char *lua_dir, FILE *report)
{
    struct load load = {.l.lua_dir = lua_dir, .report.file = file, .out = report};
    return finish_loading(&load);
}

struct policy *policy_load_unserved(const char *file, const char *lua_dir, FILE *report)
{
    struct load load = {
        .l = {.lua_dir = lua_dir, .unserved = true}, .report.file = file, .out = report};
    struct policy *policy = finish_loading(&load);

    if (!policy || policy_takes_requests(policy, report))
        return policy;
    policy_drop(policy);
    return NULL;
}

bool policy_takes_requests(const struct policy *policy, FILE *report)
{
    if (!policy->upstream_count)
        fprintf(report,
                "%s: there are no upstreams, so weir accepts no requests of clients, but only "
                "calls of rate_limit_service; add upstreams, or see what a descriptor gets with "
                "weir explain descriptor:DOMAIN/KEY=VALUE\n",
                policy->file);
    return policy->upstream_count > 0;
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
        node = node_find(node_find(tree_read(&arena, bytes, &report), "log"), "format");
    bool json = node && node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("json"));
    report_forget(&report);
    arena_free(&arena);
    return json;
}

void policy_print(const struct policy *policy, FILE *out)
{
    struct printer printer = {.out = out};
    options_print(&printer, "", policy);
}

struct policy *policy_load_quietly(const char *file, const char *lua_dir, FILE *out,
                                   struct policy *(*load)(const char *file, const char *lua_dir,
                                                          FILE *report))
{
    struct memory_stream report;
    struct policy *policy = NULL;
    char *text = NULL;

    if (memory_stream_open(&report)) {
        policy = load(file, lua_dir, report.file);
        text = memory_stream_close(&report);
    }
    if (!policy)
        fputs(text ? text : "weir: out of memory\n", out);
    free(text);
    return policy;
}
