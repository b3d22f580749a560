/* check_key.c - the Redis keys of limits by values of a request. */
#include <check.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "limit/key.h"
#include "run_suite.h"

static struct policy *policy;
static struct identity identity = {.headers_trusted = true};
static struct key_values values;

/* Loads a policy with one limit. */
static void load(const char *per, const char *paths)
{
    char yaml[512];

    snprintf(yaml, sizeof yaml,
             "upstreams: { a: { servers: 127.0.0.1:1 } }\nidentity: { headers_from: anyone }\n"
             "paths: { %s }\nlimits: { a: { script: gcra, per: '%s', limit: 1, period: 1s } }\n"
             "rules: [ { limits: a } ]\n",
             paths, per);
    policy_drop(policy);
    policy = policy_load_text("test.yaml", slice_of(yaml), getenv("WEIR_LUA_DIR"), stderr);
    ck_assert_ptr_nonnull(policy);
}

/* Returns the key of a request with one field. */
static const char *key_of(const char *name, const char *value)
{
    static char bytes[4096];
    struct text out = text_over(bytes, sizeof bytes - 1);
    const struct fields fields = {.count = 1,
                                  .at = {{.name = slice_of(name), .value = slice_of(value)}}};
    const struct limit_facts facts = {
        .rule = &policy->rules[0], .identity = &identity, .fields = &fields, .values = &values};
    struct slice client = SLICE_NONE;

    key_write(&out, policy, &policy->limits[0], &facts, &client);
    ck_assert_uint_le(out.n, key_size_max(policy, &policy->limits[0]));
    bytes[out.n] = 0;
    return bytes;
}

/* Returns the key of a request for this path. */
static const char *key_of_path(const char *path)
{
    static struct route_room room;

    key_values_read_path(policy, &policy->rules[0], slice_of(path), &room, &values);
    return key_of("X-Other", "1");
}

static void fill(char *value, size_t n, const char *end)
{
    memset(value, 'x', n);
    strcpy(value + n, end);
}

START_TEST(long_values_are_hashed)
{
    char value[400], first[4096];

    load("header:X-Tenant", "");
    fill(value, 255, "y");
    snprintf(first, sizeof first, "weir:{header:X-Tenant:%s}:l:a", value);
    ck_assert_str_eq(key_of("X-Tenant", value), first);
    fill(value, 300, "y");
    strcpy(first, key_of("X-Tenant", value));
    ck_assert_uint_eq(strlen(first), strlen("weir:{header:X-Tenant:h:}:l:a") + 32);
    fill(value, 300, "z");
    ck_assert_str_ne(key_of("X-Tenant", value), first);
    fill(value, 300, "y");
    ck_assert_str_eq(key_of("X-Tenant", value), first);
    /* a value cannot collide with the hash of another one */
    snprintf(value, sizeof value, "%.34s", first + strlen("weir:{header:X-Tenant:"));
    ck_assert_str_ne(key_of("X-Tenant", value), first);
    ck_assert_ptr_nonnull(strstr(key_of("X-Tenant", value), ":h:"));
    policy_drop(policy);
}
END_TEST

START_TEST(long_segments_are_hashed)
{
    char path[400], first[4096];

    for (unsigned ignore_case = 0; ignore_case < 2; ignore_case++) {
        load("path:1", ignore_case ? "ignore_case: true" : "");
        ck_assert_str_eq(key_of_path("/A"),
                         ignore_case ? "weir:{value:path:1:a}:l:a" : "weir:{value:path:1:A}:l:a");
        fill(path, 300, "y");
        path[0] = '/';
        strcpy(first, key_of_path(path));
        ck_assert_uint_eq(strlen(first), strlen("weir:{value:path:1:h:}:l:a") + 32);
        fill(path, 300, "z");
        path[0] = '/';
        ck_assert_str_ne(key_of_path(path), first);
        fill(path, 300, "Y");
        path[0] = '/';
        ck_assert_int_eq(strcmp(key_of_path(path), first) == 0, ignore_case);
    }
    ck_assert_str_eq(key_of_path("/%2561lice"), "weir:{value:path:1:}:l:a"); /* ambiguous */
    policy_drop(policy);
}
END_TEST

START_TEST(values_that_servers_read_in_many_spellings_count_as_absent)
{
    char absent[256];

    load("header:Authorization", "");
    strcpy(absent, key_of("X-Other", ""));
    ck_assert_str_eq(absent, "weir:{header:Authorization:}:l:a");
    ck_assert_str_eq(key_of("Authorization", "basic  dXNlcjpwYXNz"),
                     "weir:{header:Authorization:Basic dXNlcjpwYXNz}:l:a");
    ck_assert_str_eq(key_of("Authorization", "Basic dXNl.cjpwYXNz"), absent);
    ck_assert_str_eq(key_of("Authorization", "Basic dXNlcjpwYXNz===="), absent);
    ck_assert_str_eq(key_of("Authorization", "Bearer KEY"),
                     "weir:{header:Authorization:Bearer KEY}:l:a");
    ck_assert_str_eq(key_of("Authorization", "Bearer KEY x"), absent);
    load("header:X-Key", "");
    ck_assert_str_eq(key_of("X-Key", "KEY x"), "weir:{header:X-Key:KEY x}:l:a");
    ck_assert_str_eq(key_of("X-Key", "KEY\302\240"), "weir:{header:X-Key:}:l:a");
    policy_drop(policy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("key");
    TCase *tests = tcase_create("key");
    tcase_add_test(tests, long_values_are_hashed);
    tcase_add_test(tests, long_segments_are_hashed);
    tcase_add_test(tests, values_that_servers_read_in_many_spellings_count_as_absent);
    suite_add_tcase(suite, tests);
    return run_suite_in_processes(suite);
}
