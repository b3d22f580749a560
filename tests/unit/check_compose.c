/* check_compose.c - the composed and the standalone scripts: Redis compiles them, limits have the
 * policy's numbers, and errors contain file and line. */
#include <check.h>
#include <stdlib.h>
#include <unistd.h>

#include "fault/redis_rig.h"
#include "limit/compose.h"
#include "policy/shipped_limiter.h"
#include "run_suite.h"

enum { LIMITS = 3 };

static char directory[64];
static struct script_option seven = {.kind = OPTION_NUMBER, .number = 7};
static struct limit limits[LIMITS];
static const struct limit *used[LIMITS];
static struct rule rules[1];
static struct policy policy;
static struct real_redis real;
static char *report_text;
static size_t report_size;
static FILE *report;

static const char *lua_dir(void)
{
    const char *found = getenv("WEIR_LUA_DIR");
    return found ? found : "lua";
}

/* As compose_check(), tried again if a busy Redis does not reply within 1 s. */
static int checked(const struct redis_settings *settings, const char *script)
{
    int result = -1;
    for (unsigned i = 0; i < 10 && result < 0; i++)
        result = compose_check(settings, script, report);
    return result;
}

static char *file_text(const char *name)
{
    char path[256], *text = calloc(1, 65536);
    snprintf(path, sizeof path, "%s/%s", lua_dir(), name);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, 65535, file), 0);
    fclose(file);
    return text;
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "w");
    fputs(text, file);
    fclose(file);
}

/* No rule uses limit 2; limits 1 and 3 share a script. */
static void set_up(void)
{
    rig_make_directory(directory);
    for (unsigned i = 0; i < LIMITS; i++) {
        limits[i] = (struct limit){
            .index = i, .base = i, .script = (char *)"one", .period_us = 1000000 * (i + 1)};
        limits[i].script_text =
            (char *)"return function() return 1, 2, 0, 3 end -- no newline at the end";
    }
    limits[1].script = (char *)"unused";
    limits[1].script_text = (char *)"this is no Lua";
    limits[2].align = ALIGN_CLOCK;
    limits[2].offset_us = -5;
    limits[2].options = &seven;
    limits[2].option_count = 1;
    used[0] = &limits[0];
    used[1] = &limits[2];
    rules[0] = (struct rule){.limits = used, .limit_count = 2};
    policy =
        (struct policy){.limits = limits, .limit_count = LIMITS, .rules = rules, .rule_count = 1};
    report = open_memstream(&report_text, &report_size);
}

static void tear_down(void)
{
    fclose(report);
    free(report_text);
    rig_remove_directory(directory);
}

static const char *reported(void)
{
    fflush(report);
    return report_text;
}

static struct redis_settings start_redis(void)
{
    real_redis_start(&real);
    return (struct redis_settings){.address = real.address};
}

START_TEST(unused_parts_of_the_driver_are_omitted)
{
    static const char driver[] = "1\n--{ several\n2\n--{ dedup\n9\n--}\n--}\n--{ "
                                 "options\n3\n--}\n--{ dedup\n4\n--}\n--{ own\n5\n--}\n"
                                 "--{ numbers\n6\n--}\n--{ clock\n7\n--}\n8";
    static const struct {
        const char *what, *kept;
    } cases[] = {{"one limit", "18"}, {"two limits", "1238"}, {"options", "138"},
                 {"dedup", "148"},    {"own", "158"},         {"gcra", "168"}};
    char *script, kept[16] = "";
    size_t n = 0;

    write_file("driver.lua", driver);
    rules[0].limit_count = _i == 1 ? 2 : 1;
    limits[0].options = &seven;
    limits[0].option_count = _i == 2;
    limits[0].dedup.header = _i == 3 ? (char *)"X-Id" : NULL;
    limits[0].kind = _i == 4 ? LIMIT_CUSTOM : LIMIT_BUCKET;
    limits[0].script = (char *)(_i == 5 ? "gcra" : "one");
    limits[0].shipped = shipped_limiter(slice_of(limits[0].script));
    script = compose_driver(&policy, _i == 4 ? lua_dir() : directory, report);
    if (_i == 4) { /* also requires guard.lua */
        ck_assert_ptr_nonnull(strstr(script, "local function text_of"));
        ck_assert_ptr_null(strstr(script, "local function answered"));
        free(script);
        return;
    }
    for (const char *p = strstr(script, "driver.lua\n") + strlen("driver.lua\n"); *p; p++)
        if (*p != '\n')
            kept[n++] = *p;
    ck_assert_str_eq(kept, cases[_i].kept);
    ck_assert_msg((strstr(script, "setmetatable") == NULL) == (_i != 1), "%s: %s", cases[_i].what,
                  script);
    free(script);
}
END_TEST

START_TEST(every_combination_of_features_compiles_and_runs)
{
    struct redis_settings settings = start_redis();

    for (unsigned features = 0; features < 64; features++) {
        char *text = file_text("gcra.lua");
        rules[0].limit_count = features & 1 ? 2 : 1;
        limits[0].options = &seven;
        limits[0].option_count = features >> 1 & 1;
        limits[0].dedup.header = features & 4 ? (char *)"X-Id" : NULL;
        limits[0].script = (char *)(features & 8 ? "gcra" : "one");
        limits[0].script_text =
            features & 8 ? text : (char *)"return function() return 1, 2, 0, 3 end";
        limits[0].kind = features & 16 ? LIMIT_CUSTOM : LIMIT_BUCKET;
        char *script = compose_driver(&policy, lua_dir(), report);
        ck_assert_msg(checked(&settings, script) == 0, "%u: %s", features, reported());
        free(script);
        free(text);
    }
    real_redis_stop(&real);
}
END_TEST

START_TEST(the_driver_contains_the_limiters_as_specified)
{
    write_file("driver.lua", "return limits\n");
    char *script = compose_driver(&policy, directory, report);
    char *expected;
    ck_assert_int_gt(
        asprintf(&expected,
                 "local muldiv, numbers\n"
                 "local limiter = setmetatable({}, { __index = function(made, name)\n"
                 "  local run\n"
                 "  if false then\n"
                 "  elseif name == \"one\" then run = --@ %s/one.lua\n"
                 "function() return 1, 2, 0, 3 end -- no newline at the end\n"
                 "-- end of the file\n"
                 "  end\n"
                 "  made[name] = run\n"
                 "  return run\n"
                 "end })\n"
                 "local limits = setmetatable({}, { __index = function(made, number)\n"
                 "  local limit\n"
                 "  if false then\n"
                 "  elseif number == \"1\" then limit = { run = limiter[\"one\"], period = "
                 "1000000, amount = 0, burst = 0 }\n"
                 "  elseif number == \"3\" then limit = { run = limiter[\"one\"], period = "
                 "3000000, amount = 0, burst = 0, offset = -5, "
                 "options = { 7 } }\n"
                 "  end\n"
                 "  made[number] = limit\n"
                 "  return limit\n"
                 "end })\n"
                 "if #ARGV == 1 then local _ _ = limiter[\"one\"] end\n"
                 "--@ %s/driver.lua\n"
                 "return limits\n",
                 directory, directory),
        0);
    ck_assert_str_eq(script, expected);
    free(expected);
    free(script);
}
END_TEST

#define OPTIONS_MAX 4
#define NONE                                                                                       \
    {                                                                                              \
        .kind = OPTION_NONE                                                                        \
    }
#define NUMBER(n)                                                                                  \
    {                                                                                              \
        .kind = OPTION_NUMBER, .number = (n)                                                       \
    }
#define DURATION(n)                                                                                \
    {                                                                                              \
        .kind = OPTION_DURATION, .number = (n)                                                     \
    }
#define TRUE                                                                                       \
    {                                                                                              \
        .kind = OPTION_BOOL, .number = 1                                                           \
    }
#define TEXT(t)                                                                                    \
    {                                                                                              \
        .kind = OPTION_TEXT, .text = (char *)(t)                                                   \
    }

static const struct {
    struct script_option options[OPTIONS_MAX];
    unsigned count;
    const char *received; /* the arguments after `offset` */
} option_lists[] = {
    {{NONE}, 0, ""},
    {{NONE, NONE}, 2, ""},
    {{NUMBER(7)}, 1, "7"},
    {{NUMBER(7), DURATION(25000)}, 2, "7 25000"},
    {{NUMBER(-7), TEXT("a, \"b\""), TRUE}, 3, "-7 a, \"b\" true"},
    {{NONE, DURATION(5)}, 2, "nil 5"},
    {{NUMBER(1), NONE, TRUE, NONE}, 4, "1 nil true"},
};

/* This driver returns the arguments that driver.lua would pass to the limiter. */
START_TEST(a_script_receives_its_options_in_order)
{
    static const char driver[] =
        "local function list(...)\n"
        "  local texts = {}\n"
        "  for i = 1, select('#', ...) do texts[i] = tostring((select(i, ...))) end\n"
        "  return table.concat(texts, ' ')\n"
        "end\n"
        "return list(unpack(limit.options or {}))\n";
    struct script_option options[OPTIONS_MAX];

    start_redis();
    write_file("driver.lua", driver);
    memcpy(options, option_lists[_i].options, sizeof options);
    limits[0].options = options;
    limits[0].option_count = option_lists[_i].count;
    rules[0].limit_count = 1;
    char *script = compose_driver(&policy, directory, report);
    redisContext *redis = redisConnectUnix(real.path);
    redisReply *reply = redisCommand(redis, "EVAL %s 0", script);
    ck_assert_str_eq(reply->str, option_lists[_i].received);
    ck_assert((strstr(script, "options = {") == NULL) == (*option_lists[_i].received == 0));
    freeReplyObject(reply);
    redisFree(redis);
    free(script);
    real_redis_stop(&real);
}
END_TEST

START_TEST(the_shipped_driver_runs_in_redis)
{
    static const char *const names[] = {
        "token_bucket",       "leaky_bucket",           "gcra",          "fixed_window",
        "sliding_window_log", "sliding_window_counter", "rolling_window"};
    struct redis_settings settings = start_redis();

    for (size_t i = 0; i < COUNT_OF(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.lua", names[i]);
        char *text = file_text(name);
        for (unsigned j = 0; j < LIMITS; j++)
            limits[j].script = (char *)names[i], limits[j].script_text = text;
        char *script = compose_driver(&policy, lua_dir(), report);
        ck_assert_ptr_nonnull(script);
        ck_assert_msg(checked(&settings, script) == 0, "%s: %s", names[i], reported());
        free(script);
        free(text);
    }
    real_redis_stop(&real);
}
END_TEST

static const struct {
    const char *text, *position;
} mistakes[] = {
    {"local a = 1\nlocal = 2\nreturn a", ":2:"},
    {"local a = 1\n\n\nreturn a..nothing.x", ":4:"}, /* compiles; fails when loaded */
};

START_TEST(a_script_error_is_reported_with_its_location)
{
    struct redis_settings settings = start_redis();
    char position[128];

    limits[0].script = limits[2].script = (char *)"/etc/weir/mine \"quoted\".lua";
    limits[0].script_text = limits[2].script_text = (char *)mistakes[_i].text;
    char *script = compose_driver(&policy, lua_dir(), report);
    ck_assert_int_eq(checked(&settings, script), 1);
    snprintf(position, sizeof position, "/etc/weir/mine \"quoted\".lua%s", mistakes[_i].position);
    ck_assert_msg(strncmp(reported(), position, strlen(position)) == 0, "%s", reported());
    free(script);
    real_redis_stop(&real);
}
END_TEST

START_TEST(without_redis_there_is_no_result)
{
    struct redis_settings settings = {0};
    ck_assert_int_eq(compose_check(&settings, "return 1", report), -1);
    real_redis_prepare(&real);
    settings.address = real.address;
    ck_assert_int_eq(compose_check(&settings, "return 1", report), -1);
    ck_assert_str_eq(reported(), "");
    rig_remove_directory(real.directory);
}
END_TEST

START_TEST(a_missing_file_is_reported)
{
    ck_assert_ptr_null(compose_driver(&policy, "/nowhere", report));
    ck_assert_ptr_nonnull(strstr(reported(), "/nowhere/driver.lua: cannot be read: No such file"));
    ck_assert(!compose_standalone("no_such_limiter", lua_dir(), stdout, report));
    ck_assert_ptr_nonnull(strstr(reported(), "no_such_limiter.lua: cannot be read"));
}
END_TEST

START_TEST(a_standalone_script_enforces_its_limit)
{
    char *script = NULL;
    size_t size;
    FILE *out = open_memstream(&script, &size);
    long long granted = 0;

    start_redis();
    ck_assert_msg(compose_standalone("token_bucket", lua_dir(), out, report), "%s", reported());
    fclose(out);
    redisContext *redis = redisConnectUnix(real.path);
    for (int i = 0; i < 8; i++) {
        redisReply *reply = redisCommand(redis, "EVAL %s 1 key 5 86400000000", script);
        ck_assert_int_eq(reply->type, REDIS_REPLY_ARRAY);
        granted += reply->element[0]->integer;
        freeReplyObject(reply);
    }
    ck_assert_int_eq(granted, 5);
    redisFree(redis);
    free(script);
    real_redis_stop(&real);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("compose");
    TCase *tests = tcase_create("compose");

    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, unused_parts_of_the_driver_are_omitted, 0, 6);
    tcase_add_test(tests, every_combination_of_features_compiles_and_runs);
    tcase_add_test(tests, the_driver_contains_the_limiters_as_specified);
    tcase_add_test(tests, without_redis_there_is_no_result);
    tcase_add_test(tests, a_missing_file_is_reported);
    tcase_add_loop_test(tests, a_script_receives_its_options_in_order, 0,
                        (int)COUNT_OF(option_lists));
    tcase_add_test(tests, the_shipped_driver_runs_in_redis);
    tcase_add_loop_test(tests, a_script_error_is_reported_with_its_location, 0,
                        (int)COUNT_OF(mistakes));
    tcase_add_test(tests, a_standalone_script_enforces_its_limit);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
