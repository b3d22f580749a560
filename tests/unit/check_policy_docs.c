/* check_policy_docs.c - the sample policy and the manual contain exactly the options of the table. */
#include <check.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/values.h"
#include "config/policy_file.h"
#include "config/types.h"
#include "http2/session.h"
#include "jwks/https_get.h"
#include "policy/jwt.h"
#include "policy/shipped_limiter.h"
#include "quota/postgres_link.h"
#include "run_suite.h"

static char *file_text(const char *name)
{
    char path[4096];
    const char *srcdir = getenv("srcdir"), *why = "";
    struct arena arena = {NULL};
    struct slice bytes = SLICE_NONE;

    snprintf(path, sizeof path, "%s/%s", srcdir ? srcdir : ".", name);
    ck_assert_msg(file_read(&arena, path, 1 << 20, &bytes, &why), "%s: %s", path, why);
    char *copy = strndup(bytes.p, bytes.n);
    arena_free(&arena);
    return copy;
}

static bool is_commented_out(const char *line)
{
    line += strspn(line, " ");
    if (*line != '#')
        return false;
    const char *word = line + 1, *end = word + strcspn(word, " :\n");
    return (word[0] == '"' || word[0] == '-' || (word[0] >= 'a' && word[0] <= 'z')) &&
           (*end == ':' || word[0] == '"' || word[0] == '-');
}

/* The sample with its "#option:" lines uncommented. */
static char *with_all_options(const char *sample)
{
    char *copy = strdup(sample), *out = copy;
    bool drop = false;

    for (const char *p = sample; *p; p++) {
        if (p == sample || p[-1] == '\n')
            drop = is_commented_out(p);
        if (drop && *p == '#')
            drop = false;
        else
            *out++ = *p;
    }
    *out = 0;
    return copy;
}

/* Returns whether the tree contains the option. `path` is the rest of its path; NAME, ID and []
 * match any name. */
static const struct node *find(const struct node *node, const char *path)
{
    size_t n = strcspn(path, ".");
    bool list = n > 2 && strncmp(path + n - 2, "[]", 2) == 0;
    struct slice key = {path, list ? n - 2 : n};
    bool any = slice_equal(key, SLICE("NAME")) || slice_equal(key, SLICE("ID"));

    for (const struct node *child = node->first; child; child = child->next) {
        if (!any && !slice_equal(child->key, key))
            continue;
        const struct node *found = path[n] ? NULL : child;
        for (const struct node *item = list ? child->first : NULL; item && !found;
             item = item->next)
            found = find(item, path + n + 1);
        if (!found && !list && path[n])
            found = find(child, path + n + 1);
        if (found)
            return found;
    }
    return NULL;
}

/* Options of single scripts, costs and rules are in examples, which use other values. */
static bool is_a_default(const struct option *option)
{
    return option->fallback && option->fallback[0] && !(option->flags & OPTION_DERIVED) &&
           !option->applies && !option->has && !option->when.size && !strstr(option->path, "[]") &&
           !strstr(option->path, ".cost.");
}

/* An option in a comment of the sample has its default value. */
static void assert_default(const struct option *option, const struct node *node, const char *sample)
{
    char line[256];
    if (node->kind != NODE_SCALAR && strchr(option->fallback, '['))
        snprintf(line, sizeof line, "#%s: %s\n", option_key(option), option->fallback);
    else
        snprintf(line, sizeof line, "%s: %s\n", option_key(option), option->fallback);
    ck_assert_msg(strstr(sample, line) != NULL, "conf/weir.yaml does not contain \"%s\"", line);
}

START_TEST(the_sample_contains_every_option)
{
    struct report report = {.file = "conf/weir.yaml"};
    struct arena arena = {NULL};
    setenv("WEIR_REDIS_PASSWORD", "secret", 1);
    setenv("WEIR_HASH_KEY", "secret", 1);
    setenv("WEIR_TOKEN_SECRET", "secret", 1);
    char *sample = file_text("conf/weir.yaml"), *all = with_all_options(sample);
    const struct node *whole = tree_read(&arena, slice_of(all), &report);
    const struct node *active = tree_read(&arena, slice_of(sample), &report);

    ck_assert_uint_eq(report.mistakes, 0);
    EACH_OPTION (option) {
        const struct node *node = find(whole, option->path);
        ck_assert_msg(node != NULL, "%s in conf/weir.yaml", option->path);
        if (node && is_a_default(option) && !find(active, option->path))
            assert_default(option, node, sample);
    }
    report_finish(&report, stderr);
    arena_free(&arena);
    free(all);
    free(sample);
}
END_TEST

/* The certificates are in the directory of the loaded file; the script is in that of the sample. */
static char *with_script_path(const char *yaml)
{
    static const char written[] = "./mine.lua";
    const char *at = strstr(yaml, written);
    char *whole = NULL;

    if (!at)
        return strdup(yaml);
    ck_assert_int_gt(asprintf(&whole, "%.*s../../lua/lockout.lua%s", (int)(at - yaml), yaml,
                              at + sizeof written - 1),
                     0);
    return whole;
}

/* The sample with all options has limits that the decision listener cannot apply, and a
 * redis.timeout that is long for Envoy. */
static bool only_about_decisions(const char *output)
{
    for (const char *line = output; *line;) {
        size_t n = strcspn(line, "\n");
        if (!memmem(line, n, "the listener of decisions", 25) &&
            !memmem(line, n, "Envoy waits 20 ms", 17))
            return false;
        line += n + (line[n] != 0);
    }
    return true;
}

static void assert_loads_without_output(const char *sample)
{
    char *yaml = with_script_path(sample);
    char *output = NULL, directory[4096], name[4096];
    const char *srcdir = getenv("srcdir"), *lua_dir = getenv("WEIR_LUA_DIR");
    size_t size;
    FILE *report = open_memstream(&output, &size);

    snprintf(directory, sizeof directory, "%s/lua", srcdir ? srcdir : ".");
    snprintf(name, sizeof name, "%s/tests/tls/weir.yaml", srcdir ? srcdir : ".");
    struct policy *policy =
        policy_load_text(name, slice_of(yaml), lua_dir ? lua_dir : directory, report);
    fclose(report);
    ck_assert_msg(policy && only_about_decisions(output), "%s", output);
    free(output);
    free(yaml);
    policy_drop(policy);
}

/* There is one Redis address and one source of each password, so alternative lines are removed. The
 * line with an admin token is removed too: git cannot store the permissions of a file that only its
 * owner may read. */
static void keep_one_redis(char *yaml, const char *kept)
{
    static const char *const lines[] = {"\n  address: ",
                                        "\n  sentinel: ",
                                        "\n  cluster: ",
                                        "\n  password_file: ",
                                        "\n  - { address: \"10.0.0.5:9182\", token_file: ",
                                        "\n    secret: ",
                                        "\n    secret_file: "};

    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        char *line = strcmp(lines[i] + 3, kept) == 0 ? NULL : strstr(yaml, lines[i]);
        if (line)
            memmove(line, line + 1 + strcspn(line + 1, "\n"),
                    strlen(line + 1 + strcspn(line + 1, "\n")) + 1);
    }
}

/* Returns a copy of `yaml` with the first `from` replaced. */
static char *with(const char *yaml, const char *from, const char *to)
{
    const char *position = strstr(yaml, from);
    char *copy = NULL;

    ck_assert_msg(position != NULL, "%s", from);
    ck_assert_int_gt(
        asprintf(&copy, "%.*s%s%s", (int)(position - yaml), yaml, to, position + strlen(from)), 0);
    return copy;
}

/* Some options require non-default values of others: quotas and clients require ids. */
static char *with_ids(const char *sample)
{
    char *first = with(sample, "  from: [ ip ]\n", "  from: [ \"jwt:sub\", ip ]\n");
    char *second = with(first, "  trusted_proxies: []\n", "  trusted_proxies: [ 10.0.0.1 ]\n");
    char *third = with(second, "  known_clients_only: false\n", "  known_clients_only: true\n");

    free(first);
    free(second);
    return third;
}

START_TEST(the_sample_is_a_policy_without_warnings)
{
    static const char *const places[] = {"address: ", "sentinel: ", "cluster: "};
    setenv("WEIR_REDIS_PASSWORD", "secret", 1);
    setenv("WEIR_HASH_KEY", "secret", 1);
    setenv("WEIR_TOKEN_SECRET", "secret", 1);
    char *sample = file_text("conf/weir.yaml"), *all = with_all_options(sample);
    assert_loads_without_output(sample);
    if (postgres_is_there() && https_is_there())
        for (size_t i = 0; i < COUNT_OF(places); i++) {
            char *one = with_ids(all);
            keep_one_redis(one, places[i]);
            assert_loads_without_output(one);
            free(one);
        }
    free(all);
    free(sample);
}
END_TEST

/* ".It Ic PATH Pq TYPE, default DEFAULT" */
static void assert_in_manual(const char *manual, const struct option *option)
{
    char start[128];
    snprintf(start, sizeof start, "\n.It Ic %s Pq %s", option->path, option->type->name);
    const char *line = strstr(manual, start);
    ck_assert_msg(line != NULL, "weir.yaml(5) does not contain %s", start + 1);
    char *copy = strndup(line + 1, strcspn(line + 1, "\n"));
    bool has_default =
        option->fallback && option->fallback[0] && strcmp(option->fallback, "[]") != 0;
    ck_assert_msg(!has_default || strstr(copy + strlen(start) - 1, option->fallback), "%s", copy);
    ck_assert_msg((strstr(copy, ", required") != NULL) == !!(option->flags & OPTION_REQUIRED), "%s",
                  copy);
    ck_assert_msg((strstr(copy, ", restart") != NULL) == !!(option->flags & OPTION_RESTART), "%s",
                  copy);
    free(copy);
}

START_TEST(the_manual_contains_every_option)
{
    char *manual = file_text("man/weir.yaml.5");
    unsigned named = 0, known = 0;

    EACH_OPTION (option) {
        assert_in_manual(manual, option);
        known++;
    }
    for (const char *p = manual; (p = strstr(p, "\n.It Ic ")); p++)
        named++;
    ck_assert_uint_eq(named, known);
    free(manual);
}
END_TEST

static unsigned rows_named(const char *path)
{
    unsigned count = 0;
    EACH_OPTION (option)
        count += strcmp(option->path, path) == 0;
    return count;
}

START_TEST(the_rows_of_the_table_are_consistent)
{
    EACH_OPTION (option) {
        ck_assert_msg(option->help && *option->help, "%s", option->path);
        ck_assert_msg(option->type, "%s", option->path);
        ck_assert_msg(option->low <= option->high, "%s", option->path);
        ck_assert_uint_eq(rows_named(option->path), 1);
    }
}
END_TEST

static void assert_row_of_option(const struct limiter_option *option)
{
    char path[128], fallback[32];
    bool is_duration = option->kind == OPTION_DURATION;
    struct text text = text_over(fallback, sizeof fallback - 1);

    snprintf(path, sizeof path, "limits.NAME.%s", option->name);
    ck_assert_uint_eq(rows_named(path), option->nested ? 0 : 1);
    EACH_OPTION (row) {
        if (strcmp(row->path, path) != 0)
            continue;
        (is_duration ? duration_write : text_i64)(&text, option->fallback);
        fallback[text.n] = 0;
        ck_assert_str_eq(row->type->name, is_duration ? "duration" : "number");
        ck_assert_str_eq(row->fallback, fallback);
    }
}

START_TEST(the_options_of_limiters_have_rows_with_their_types_and_defaults)
{
    const struct shipped_limiter *limiter;

    for (unsigned i = 0; (limiter = shipped_limiter_at(i)); i++)
        for (unsigned j = 0; j < limiter_option_count(limiter); j++)
            assert_row_of_option(&limiter->options[j]);
}
END_TEST

static const struct option *row_of(struct slice path)
{
    const struct option *found = NULL;
    EACH_OPTION (option)
        if (slice_equal(slice_of(option->path), path))
            found = option;
    return found;
}

/* Returns the path of the struct whose members the option sets: its section, or the one around
 * sections that have no struct of their own. */
static struct slice struct_of(const struct option *option)
{
    struct slice path = slice_of(option->path);
    const struct option *section = NULL;

    do {
        const char *dot = memrchr(path.p, '.', path.n);
        path.n = dot ? (size_t)(dot - path.p) : 0;
        section = row_of(path);
    } while (section && section->size == 0 && section->type->print == print_section);
    return path;
}

static bool overlaps(const struct option *a, const struct option *b)
{
    return a->offset < b->offset + b->type->size && b->offset < a->offset + a->type->size;
}

/* Otherwise the default of the second row would overwrite the value of the first. */
START_TEST(no_two_options_set_the_same_member)
{
    EACH_OPTION (a) {
        ck_assert_msg(!a->type->size || a->type->size == a->size,
                      "%s: the type writes %zu bytes, the member has %zu", a->path, a->type->size,
                      a->size);
        for (size_t i = 0; option_groups[i]; i++)
            for (const struct option *b = option_groups[i]->rows;
                 b < option_groups[i]->rows + option_groups[i]->count; b++)
                ck_assert_msg(a == b || !a->type->size || !b->type->size ||
                                  !slice_equal(struct_of(a), struct_of(b)) || !overlaps(a, b),
                              "%s and %s set the same member", a->path, b->path);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("policy docs");
    TCase *tests = tcase_create("docs");
    tcase_add_test(tests, the_sample_contains_every_option);
    tcase_add_test(tests, the_sample_is_a_policy_without_warnings);
    tcase_add_test(tests, the_manual_contains_every_option);
    tcase_add_test(tests, the_rows_of_the_table_are_consistent);
    tcase_add_test(tests, the_options_of_limiters_have_rows_with_their_types_and_defaults);
    tcase_add_test(tests, no_two_options_set_the_same_member);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
