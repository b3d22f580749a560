/* read_file.c - a test file: its policy, and the keys of tests. */
#include "admin/client_query.h"
#include "base/file.h"
#include "base/memory_stream.h"
#include "config/policy_file.h"
#include "replay/log_line.h"
#include "replay/replay_policy.h"
#include "scenario/read_internal.h"

#include <stdlib.h>

enum { FILE_MAX = 16 << 20, QUOTAS_MAX = 4096 };

static const int64_t default_start_us = INT64_C(1767225600) * 1000000; /* 2026-01-01T00:00:00Z */

/* --- Keys that files and tests share ---------------------------------------------------------- */

static void read_time(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    int64_t time_us;

    (void)option;
    if (!expect_scalar(l, node, "a time such as 2026-01-31T23:59:50Z"))
        return;
    if (!log_time_parse(node->text, &time_us))
        mistake(l, node,
                "%s is not a time; write it as 2026-01-31T23:59:50Z or "
                "2026-01-31T23:59:50+01:00",
                QUOTE(node->text));
    else if (time_us >= TIME_END_US)
        mistake(l, node, "%s is out of range; virtual time ends with 2059", QUOTE(node->text));
    else
        *(int64_t *)field = time_us;
}

static const struct option_type type_time = {.name = "time", .read = read_time};

bool client_is_good(struct loading *l, const struct node *node, struct identity *identity)
{
    const char *why;

    if (!expect_scalar(l, node, "a client such as alice or ip:203.0.113.7"))
        return false;
    if (client_query_identity(l->policy, node->text, identity, &why))
        return true;
    mistake(l, node, "%s is no client: %s", QUOTE(node->text), why);
    return false;
}

/* A quota as a database has it, or the name of a plan. */
static bool read_known_quota(struct loading *l, const struct node *node, struct quota_row *row)
{
    *row = (struct quota_row){.present = true, .quota = QUOTA_OF_ITS_OWN};
    if (!expect_scalar(l, node, "a quota such as 100, unlimited or 0, or a plan"))
        return false;
    if (quota_read(node->text, &row->quota))
        return true;
    struct suggestion meant;
    int index = index_of(node->text, plan_at, l->policy, &meant);
    if (index >= 0)
        memcpy(row->plan, node->text.p, node->text.n + 1);
    else
        mistake(l, node, "%s is neither a quota (a whole number or unlimited) nor a plan%s",
                QUOTE(node->text), DID_YOU_MEAN(&meant));
    return index >= 0;
}

static bool is_new_client(struct loading *l, const struct node *node,
                          const struct scenario_quota *before, const struct identity *identity)
{
    while (before && !slice_equal(identity_text(&before->identity), identity_text(identity)))
        before = before->next;
    if (before)
        mistake_of_key(l, node, "%s is the same client as that of line %u", QUOTE(node->key),
                       before->line);
    return !before;
}

/* The rows of a test replace those of the file. */
static void read_quotas(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct scenario_quota **list = field, *quota;

    *list = NULL;
    if (!expect_entries(l, option, node, "a map of clients and quotas", "clients"))
        return;
    if (!quotas_are_set(&l->policy->quotas)) {
        mistake_of_key(l, node,
                       "the policy has no quotas from a database; quotas of single "
                       "clients are in its section clients");
        return;
    }
    for (const struct node *child = node->first; child; child = child->next) {
        const char *why;
        quota = arena_zeroed(l->arena, 1, sizeof *quota);
        quota->line = child->key_position.line;
        if (child->broken)
            continue;
        if (!client_query_identity(l->policy, child->key, &quota->identity, &why))
            mistake_of_key(l, child, "%s is no client: %s", QUOTE(child->key), why);
        else if (is_new_client(l, child, *list, &quota->identity) &&
                 read_known_quota(l, child, &quota->row)) {
            quota->next = *list;
            *list = quota;
        }
    }
}

static const struct option_type type_quota_rows = {.name = "map", .read = read_quotas};

static void read_from(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    struct ip ip;

    (void)option;
    if (!expect_scalar(l, node, "an address such as 203.0.113.7"))
        return;
    if (!slice_equal(node->text, SLICE("unix:")) && !ip_parse(node->text, &ip))
        mistake(l, node,
                "%s is no address; expected one such as 203.0.113.7 or 2001:db8::7, or "
                "unix: for a Unix socket",
                QUOTE(node->text));
    else
        *(struct slice *)field = slice_of(keep_text(l, node));
}

const struct option_type type_from = {.name = "address", .read = read_from};

/* --- Tests ------------------------------------------------------------------------------------ */

/* Every test has one. */
static void read_name(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    type_text.read(l, option, node, field);
}

static const struct option_type type_name = {.name = "text", .read = read_name};

static void read_tests(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    const struct scenario *defaults = field;
    struct scenario *test, *last = NULL;
    struct scenario_file *file = CONTAINER_OF(defaults, struct scenario_file, defaults);

    (void)option;
    if (!expect_list(l, node, "a list of tests, each with name and requests"))
        return;
    EACH_ITEM (item, node) {
        if (!expect_map(l, item, "a test with name and requests"))
            continue;
        test = arena_zeroed(l->arena, 1, sizeof *test);
        *test = *defaults;
        test->position = item->position;
        options_read(l, item, "tests[]", test);
        *(last ? &last->next : &file->scenarios) = test;
        last = test;
        file->count++;
    }
    if (file->count == 0 && !l->report->mistakes)
        mistake(l, node, "has no test");
}

static const struct option_type type_tests = {.name = "list", .read = read_tests};

static const struct option_type type_policy = {.name = "text", .read = read_elsewhere};

#define TEST(member) MEMBER(scenario, member)

/* clang-format off */
/* Read in this order: the keys before the tests are their defaults. */
static const struct option rows[] = {
    {.path = "policy", .type = &type_policy},
    {.path = "start", .type = &type_time, TEST(start_us)},
    {.path = "from", .type = &type_from, TEST(address)},
    {.path = "quotas", .type = &type_quota_rows, TEST(quotas), .high = QUOTAS_MAX},
    {.path = "tests", .type = &type_tests, .flags = REQUIRED,
     .help = "a list of tests, each with name and requests"},
    {.path = "tests[].name", .type = &type_name, TEST(name), .low = 1, .high = 200,
     .flags = REQUIRED, .help = "what the test shows"},
    {.path = "tests[].start", .type = &type_time, TEST(start_us)},
    {.path = "tests[].from", .type = &type_from, TEST(address)},
    {.path = "tests[].quotas", .type = &type_quota_rows, TEST(quotas), .high = QUOTAS_MAX},
    {.path = "tests[].requests", .type = &type_steps, .flags = REQUIRED,
     .help = "a list of requests, such as { path: /, expect: admitted }"},
};
/* clang-format on */

static const struct option_group options_tests = {rows, COUNT_OF(rows)};
static const struct option_group *const options[] = {&options_tests, &options_steps, NULL};

/* --- The file --------------------------------------------------------------------------------- */

/* Returns the path of the policy; NULL: an error was reported. */
static const char *policy_path(struct loading *l)
{
    const struct node *node = node_find(l->root, "policy");

    if (!node)
        report_mistake(l->report, (struct position){1, 1},
                       "policy is missing: the path of a policy file, relative to this file; or "
                       "use weir test -c FILE");
    if (!node || !expect_scalar(l, node, "the path of a policy file"))
        return NULL;
    return neighbour_path(l, node->text);
}

static void read_root(struct loading *l, struct scenario_file *file, const char *policy_file)
{
    if (l->root->broken || !expect_map(l, l->root, "a map of keys and values, such as tests: ..."))
        return;
    if (!policy_file && !(policy_file = policy_path(l)))
        return;
    l->policy = file->policy =
        policy_load_quietly(policy_file, l->lua_dir, stderr, policy_load_unserved);
    if (!file->policy)
        return;
    options_read(l, l->root, "", &file->defaults);
}

bool scenario_file_read(struct scenario_file *file, const char *policy_file, const char *lua_dir)
{
    struct report report = {.file = file->path};
    struct loading l = {
        .options = options, .arena = &file->arena, .report = &report, .lua_dir = lua_dir};
    struct slice bytes;
    const char *why;

    if (!file_read(&l.scratch, file->path, FILE_MAX, &bytes, &why)) {
        fprintf(stderr, "%s: cannot be read: %s\n", file->path, why);
        arena_free(&l.scratch);
        return false;
    }
    file->defaults = (struct scenario){.start_us = default_start_us, .address = SLICE("127.0.0.1")};
    l.root = tree_read(&l.scratch, bytes, &report);
    read_root(&l, file, policy_file);
    bool good = file->policy && report.mistakes == 0;
    report_finish(&report, stderr);
    arena_free(&l.scratch);
    return good;
}

void scenario_file_free(struct scenario_file *file)
{
    policy_drop(file->policy);
    arena_free(&file->arena);
}
