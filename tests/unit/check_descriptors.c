/* check_descriptors.c - which configured entry a descriptor matches, which limits apply to it, and
 * its name. A model with random entries and descriptors compares the choice.
 *
 *   STEPS=1000000 SEED=7 check_descriptors   descriptors of the model (default 30000), and seed */
#include <check.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "policy/descriptor_name.h"
#include "run_suite.h"

static const char *lua_dir(void)
{
    static char directory[4096];
    const char *srcdir = getenv("srcdir"), *own = getenv("WEIR_LUA_DIR");

    snprintf(directory, sizeof directory, "%s", own ? own : "");
    if (!own)
        snprintf(directory, sizeof directory, "%s/lua", srcdir ? srcdir : ".");
    return directory;
}

/* Loads a policy of this service with `domains`. `*report`, if not NULL, receives the warnings. */
static struct policy *load(const char *domains, char **report)
{
    char *yaml, *output = NULL;
    size_t size;
    FILE *out = open_memstream(&output, &size);

    ck_assert_int_gt(
        asprintf(&yaml,
                 "redis: { timeout: 15ms }\n"
                 "limits: { burst: { script: gcra, limit: 9, period: 1s },\n"
                 "          daily: { script: rolling_window, limit: 9, period: 1d } }\n"
                 "rate_limit_service:\n  listen: 127.0.0.1:0\n  domains:\n%s",
                 domains),
        0);
    struct policy *policy = policy_load_text("test.yaml", slice_of(yaml), lua_dir(), out);
    fclose(out);
    ck_assert_msg(policy != NULL, "%s", output);
    if (report)
        *report = output;
    else
        free(output);
    free(yaml);
    return policy;
}

/* A descriptor from "key=value/key=value"; values may be empty. */
struct given {
    char text[512];
    struct descriptor_entry entries[DESCRIPTOR_ENTRIES_MAX];
    struct call_descriptor descriptor;
};

static void give(struct given *given, const char *text)
{
    unsigned count = 0;

    snprintf(given->text, sizeof given->text, "%s", text);
    for (char *at = strtok(given->text, "/"); at; at = strtok(NULL, "/")) {
        char *equals = strchr(at, '=');
        given->entries[count++] =
            (struct descriptor_entry){{at, (size_t)(equals - at)}, slice_of(equals + 1)};
    }
    given->descriptor = (struct call_descriptor){.entries = given->entries, .entry_count = count};
}

static const struct rate_limit_domain *domain_of(const struct policy *policy, const char *name)
{
    return rate_limit_domain(&policy->rate_limit_service, slice_of(name));
}

static struct descriptor_match match_of(const struct policy *policy, const char *domain,
                                        const struct call_descriptor *descriptor)
{
    struct descriptor_match match;

    ck_assert_ptr_nonnull(domain_of(policy, domain));
    descriptor_match(domain_of(policy, domain), descriptor, &match);
    return match;
}

/* The names of the limits that apply, joined by ","; "unlimited"; "-": none. */
static const char *limits_of(const struct descriptor_match *match)
{
    static char names[512];
    struct text out = text_over(names, sizeof names - 1);

    if (descriptor_is_unlimited(match))
        return "unlimited";
    for (unsigned i = 0; i < descriptor_limit_count(match); i++) {
        const struct limit *limit = descriptor_limit(match, i);
        if (limit)
            text_printf(&out, "%s%s", out.n ? "," : "", limit->name);
    }
    names[out.n] = 0;
    return out.n ? names : "-";
}

static void expect(const struct policy *policy, const char *domain, const char *descriptor,
                   const char *limits)
{
    struct given given;

    give(&given, descriptor);
    struct descriptor_match match = match_of(policy, domain, &given.descriptor);
    ck_assert_msg(strcmp(limits_of(&match), limits) == 0, "%s %s: %s, expected %s", domain,
                  descriptor, limits_of(&match), limits);
}

/* --- The examples of envoyproxy/ratelimit, in other words ------------------------------------- */

static const char examples[] =
    "    reads_per_database:\n"
    "      descriptors:\n"
    "        - { key: database, value: users, rate_limit: { unit: second, requests_per_unit: 500 } "
    "}\n"
    "        - { key: database, value: default, rate_limit: { unit: second, requests_per_unit: 500 "
    "} }\n"
    "    messaging:\n"
    "      descriptors:\n"
    "        - key: message_type\n"
    "          value: marketing\n"
    "          descriptors:\n"
    "            - { key: to_number, rate_limit: { unit: day, requests_per_unit: 5 } }\n"
    "        - { key: to_number, rate_limit: { unit: DAY, requests_per_unit: 100 } }\n"
    "    per_address:\n"
    "      descriptors:\n"
    "        - { key: remote_address, rate_limit: { unit: second, requests_per_unit: 10 } }\n"
    "        - { key: remote_address, value: 50.0.0.5, rate_limit: { unit: second, "
    "requests_per_unit: 0 } }\n"
    "    depth:\n"
    "      descriptors:\n"
    "        - { key: one, value: a, rate_limit: { unit: second, requests_per_unit: 300 } }\n"
    "        - key: two\n"
    "          value: b\n"
    "          descriptors: [ { key: below, rate_limit: { unit: second, requests_per_unit: 300 } } "
    "]\n"
    "    internal:\n"
    "      descriptors:\n"
    "        - { key: ldap, rate_limit: { unlimited: true } }\n"
    "        - { key: azure, rate_limit: { unit: minute, requests_per_unit: 100 } }\n"
    "    trial:\n"
    "      descriptors:\n"
    "        - key: service\n"
    "          descriptors:\n"
    "            - { key: user, value: anna, shadow_mode: true, rate_limit: { unit: second, "
    "requests_per_unit: 10 } }\n"
    "            - { key: user, value: bert, rate_limit: { unit: second, requests_per_unit: 20 } "
    "}\n"
    "    replacing:\n"
    "      descriptors:\n"
    "        - key: read\n"
    "          descriptors:\n"
    "            - { key: user, rate_limit: { name: each, unit: second, requests_per_unit: 5 } }\n"
    "        - key: search\n"
    "          descriptors:\n"
    "            - { key: user, rate_limit: { replaces: [ { name: each } ], unit: second, "
    "requests_per_unit: 10 } }\n"
    "    metrics:\n"
    "      descriptors:\n"
    "        - { key: key, detailed_metric: true, rate_limit: { unit: minute, requests_per_unit: "
    "10 } }\n"
    "        - { key: key, value: known, rate_limit: { unit: minute, requests_per_unit: 20 } }\n"
    "    prefixes:\n"
    "      descriptors:\n"
    "        - { key: path, value: \"api*\", rate_limit: { unit: minute, requests_per_unit: 20 } "
    "}\n";

START_TEST(the_examples_of_envoy_match)
{
    struct policy *policy = load(examples, NULL);

    expect(policy, "reads_per_database", "database=users", "reads_per_database.database_users");
    expect(policy, "reads_per_database", "database=other", "-");
    expect(policy, "messaging", "message_type=marketing/to_number=1",
           "messaging.message_type_marketing.to_number");
    expect(policy, "messaging", "to_number=1", "messaging.to_number");
    expect(policy, "messaging", "message_type=marketing", "-");
    expect(policy, "messaging", "message_type=other/to_number=1", "-");
    expect(policy, "per_address", "remote_address=50.0.0.1", "per_address.remote_address");
    expect(policy, "per_address", "remote_address=50.0.0.5", "per_address.remote_address_50.0.0.5");
    expect(policy, "depth", "one=a/below=x", "-");
    expect(policy, "depth", "two=b/below=x", "depth.two_b.below");
    expect(policy, "depth", "two=b/below=x/more=y", "-");
    expect(policy, "internal", "ldap=x", "unlimited");
    expect(policy, "internal", "azure=x", "internal.azure");
    expect(policy, "trial", "service=auth/user=anna", "trial.service.user_anna");
    expect(policy, "trial", "service=auth/user=carl", "-");
    expect(policy, "metrics", "key=any", "metrics.key");
    expect(policy, "metrics", "key=known", "metrics.key_known");
    expect(policy, "prefixes", "path=api.v1", "prefixes.path_api*");
    expect(policy, "prefixes", "path=web", "-");
    ck_assert_ptr_null(domain_of(policy, "unknown"));
    policy_drop(policy);
}
END_TEST

START_TEST(numbers_and_units_are_those_of_the_file)
{
    static const struct {
        const char *unit;
        enum rate_limit_unit as;
        int64_t days_or_seconds;
    } units[] = {{"Second", UNIT_SECOND, 1},      {"MINUTE", UNIT_MINUTE, 60},
                 {"hour", UNIT_HOUR, 3600},       {"dAY", UNIT_DAY, 86400},
                 {"week", UNIT_WEEK, 7 * 86400},  {"Month", UNIT_MONTH, 30 * 86400},
                 {"YEAR", UNIT_YEAR, 365 * 86400}};

    for (size_t i = 0; i < COUNT_OF(units); i++) {
        char yaml[256];
        struct given given;
        snprintf(yaml, sizeof yaml,
                 "    d: { descriptors: [ { key: k, rate_limit: { unit: %s, requests_per_unit: "
                 "4294967295 } } ] }\n",
                 units[i].unit);
        struct policy *policy = load(yaml, NULL);
        give(&given, "k=v");
        struct descriptor_match match = match_of(policy, "d", &given.descriptor);
        const struct limit *limit = descriptor_limit(&match, 0);
        ck_assert_uint_eq(match.entry->unit, units[i].as);
        ck_assert_int_eq(limit->period_us, units[i].days_or_seconds * 1000000);
        ck_assert_int_eq(limit->limit, 4294967295);
        ck_assert(limit->align == ALIGN_CLOCK && limit->offset_us == 0 &&
                  limit->kind == LIMIT_WINDOW);
        policy_drop(policy);
    }
}
END_TEST

START_TEST(limits_of_the_policy_apply)
{
    struct policy *policy =
        load("    d: { descriptors: [ { key: k, limits: [ burst, daily ] } ] }\n", NULL);

    expect(policy, "d", "k=v", "burst,daily");
    policy_drop(policy);
}
END_TEST

START_TEST(values_match_in_order)
{
    struct policy *policy = load(
        "    d:\n"
        "      descriptors:\n"
        "        - { key: k, limits: burst }\n"
        "        - { key: k, value: \"a*c\", rate_limit: { unit: day, requests_per_unit: 1 } }\n"
        "        - { key: k, value: \"a*\", rate_limit: { unit: day, requests_per_unit: 1 } }\n"
        "        - { key: k, value: \"*x*y*\", rate_limit: { unit: day, requests_per_unit: 1 } }\n"
        "        - { key: k, value: abc, rate_limit: { unit: day, requests_per_unit: 1 } }\n"
        "        - { key: only, value: \"*\", rate_limit: { unit: day, requests_per_unit: 1 } }\n",
        NULL);

    expect(policy, "d", "k=abc", "d.k_abc");
    expect(policy, "d", "k=abbc", "d.k_a*c");
    expect(policy, "d", "k=ac", "d.k_a*c");
    expect(policy, "d", "k=acd", "d.k_a*");
    expect(policy, "d", "k=1x2y3", "d.k_*x*y*");
    expect(policy, "d", "k=xy", "d.k_*x*y*");
    expect(policy, "d", "k=yx", "burst");
    expect(policy, "d", "k=", "burst");
    expect(policy, "d", "only=", "d.only_*");
    policy_drop(policy);
}
END_TEST

START_TEST(unquoted_texts_are_as_written)
{
    struct policy *policy = load("    d:\n"
                                 "      descriptors:\n"
                                 "        - { key: status, value: 404, limits: burst }\n"
                                 "        - { key: agent, value: 007, limits: burst }\n"
                                 "        - { key: flag, value: true, limits: burst }\n"
                                 "        - { key: none, value: null, limits: burst }\n"
                                 "        - { key: tilde, value: ~, limits: burst }\n"
                                 "        - { key: 42, value: 1.50, limits: burst }\n"
                                 "        - { key: every, limits: burst, value: }\n"
                                 "        - { key: empty, value: \"\", limits: burst }\n",
                                 NULL);

    expect(policy, "d", "status=404", "burst");
    expect(policy, "d", "agent=007", "burst");
    expect(policy, "d", "agent=7", "-");
    expect(policy, "d", "flag=true", "burst");
    expect(policy, "d", "none=null", "burst");
    expect(policy, "d", "none=", "-");
    expect(policy, "d", "tilde=~", "burst");
    expect(policy, "d", "42=1.50", "burst");
    expect(policy, "d", "42=1.5", "-");
    expect(policy, "d", "every=x", "burst");
    expect(policy, "d", "empty=x", "burst");
    policy_drop(policy);
}
END_TEST

/* --- replaces, stated limits ------------------------------------------------------------------ */

START_TEST(replaced_limits_do_not_apply)
{
    struct policy *policy = load(examples, NULL);
    struct given read, search;
    struct descriptor_match matches[2];

    give(&read, "read=x/user=anna");
    give(&search, "search=x/user=anna");
    matches[0] = match_of(policy, "replacing", &read.descriptor);
    matches[1] = match_of(policy, "replacing", &search.descriptor);
    descriptor_matches_replace(matches, 1);
    ck_assert_str_eq(limits_of(&matches[0]), "replacing.read.user");
    descriptor_matches_replace(matches, 2);
    ck_assert_str_eq(limits_of(&matches[0]), "-");
    ck_assert_str_eq(limits_of(&matches[1]), "replacing.search.user");
    policy_drop(policy);
}
END_TEST

START_TEST(a_stated_limit_overrides)
{
    struct policy *policy = load(examples, NULL);
    struct given given;
    static const char *const descriptors[] = {"ldap=x", "azure=x", "nothing=x"};

    for (size_t i = 0; i < COUNT_OF(descriptors); i++) {
        give(&given, descriptors[i]);
        given.descriptor.has_limit = true;
        given.descriptor.unit = UNIT_WEEK;
        given.descriptor.per_unit = 7;
        struct descriptor_match match = match_of(policy, "internal", &given.descriptor);
        ck_assert(!descriptor_is_unlimited(&match));
        ck_assert_uint_eq(descriptor_limit_count(&match), 1);
        ck_assert(descriptor_enforces(&match, descriptor_limit(&match, 0), SLICE("descriptor:x")));
        ck_assert_str_eq(limits_of(&match), "internal.(stated)");
        ck_assert_int_eq(descriptor_limit(&match, 0)->period_us, INT64_C(604800000000));
    }
    policy_drop(policy);
}
END_TEST

/* --- limits and warnings ---------------------------------------------------------------------- */

START_TEST(equal_names_get_a_number)
{
    struct policy *policy =
        load("    d:\n"
             "      descriptors:\n"
             "        - { key: a_b, value: c, rate_limit: { unit: day, requests_per_unit: 1 } }\n"
             "        - { key: a, value: b_c, rate_limit: { unit: day, requests_per_unit: 1 } }\n",
             NULL);

    expect(policy, "d", "a_b=c", "d.a_b_c");
    expect(policy, "d", "a=b_c", "d.a_b_c#2");
    policy_drop(policy);
}
END_TEST

START_TEST(options_without_effect_are_warned_of)
{
    char *report;
    struct policy *policy = load(
        "    d: { descriptors: [ { key: a, value_to_metric: true, detailed_metric: true } ] }\n",
        &report);

    ck_assert_ptr_nonnull(strstr(report, "descriptors[0].value_to_metric: has no effect"));
    ck_assert_ptr_nonnull(strstr(report, "descriptors[0].detailed_metric: has no effect"));
    free(report);
    policy_drop(policy);
}
END_TEST

START_TEST(metadata_keeps_its_types)
{
    struct policy *policy = load(
        "    d: { descriptors: [ { key: a, metadata: { t: x, q: \"1\", n: -1.5e2, b: true, z: "
        "null, l: [ 1, f ], m: { k: 007, dot: 1., plus: +1, huge: 1e999, zip: 01234 } } } ] }\n",
        NULL);
    const struct metadata *map = domain_of(policy, "d")->top.entries[0].metadata;
    static const enum metadata_kind kinds[] = {METADATA_TEXT, METADATA_TEXT, METADATA_NUMBER,
                                               METADATA_BOOL, METADATA_NULL, METADATA_LIST,
                                               METADATA_MAP};

    ck_assert_uint_eq(map->count, COUNT_OF(kinds));
    for (unsigned i = 0; i < map->count; i++)
        ck_assert_uint_eq(map->items[i].kind, kinds[i]);
    ck_assert(map->items[2].number == -150 && map->items[3].is_true);
    ck_assert_uint_eq(map->items[5].count, 2);
    ck_assert_str_eq(map->items[6].items[0].key.p, "k");
    ck_assert_uint_eq(map->items[6].count, 5);
    for (unsigned i = 0; i < 5; i++) /* no numbers of JSON */
        ck_assert_uint_eq(map->items[6].items[i].kind, METADATA_TEXT);
    policy_drop(policy);
}
END_TEST

/* --- Names ------------------------------------------------------------------------------------ */

static void expect_name(const struct descriptor_entry *entries, unsigned count, const char *domain,
                        const char *name)
{
    struct call_descriptor descriptor = {.entries = entries, .entry_count = count};
    static struct parsed_descriptor parsed;
    struct descriptor_name written;

    descriptor_name_write(slice_of(domain), &descriptor, NULL, &written);
    ck_assert_msg(slice_equal(descriptor_name_text(&written), slice_of(name)), "%.*s, not %s",
                  SLICE_ARG(descriptor_name_text(&written)), name);
    ck_assert_ptr_null(descriptor_name_parse(slice_of(name), &parsed));
    ck_assert(slice_equal(parsed.domain, slice_of(domain)));
    ck_assert_uint_eq(parsed.descriptor.entry_count, count);
    for (unsigned i = 0; i < count; i++) {
        ck_assert(slice_equal(parsed.entries[i].key, entries[i].key));
        ck_assert(slice_equal(parsed.entries[i].value, entries[i].value));
    }
}

#define ENTRY(key, value)                                                                          \
    {                                                                                              \
        SLICE(key), SLICE(value)                                                                   \
    }

START_TEST(names_are_read_as_written)
{
    expect_name((struct descriptor_entry[]){ENTRY("remote_address", "50.0.0.5")}, 1, "edge",
                "descriptor:edge/remote_address=50.0.0.5");
    expect_name((struct descriptor_entry[]){ENTRY("message_type", "marketing"), ENTRY("to", "")}, 2,
                "messaging", "descriptor:messaging/message_type=marketing/to=");
    expect_name((struct descriptor_entry[]){ENTRY("path", "/v1/a b"), ENTRY("a=b", "c=d")}, 2,
                "eg/http", "descriptor:eg%2Fhttp/path=%2Fv1%2Fa%20b/a%3Db=c=d");
    expect_name((struct descriptor_entry[]){ENTRY("k", "100%25 {x}*\n\xc3\xa9")}, 1, "d",
                "descriptor:d/k=100%2525%20%7Bx%7D%2A%0A\xc3\xa9");
}
END_TEST

START_TEST(names_that_are_not_valid_are_refused)
{
    static const char *const names[] = {
        "descriptor:",     "descriptor:d",    "descriptor:d/",        "descriptor:d/x",
        "descriptor:/a=b", "descriptor:d/=x", "descriptor:d/a=b//c=d"};
    static struct parsed_descriptor parsed;

    for (size_t i = 0; i < COUNT_OF(names); i++)
        ck_assert_msg(descriptor_name_parse(slice_of(names[i]), &parsed) != NULL, "%s", names[i]);
    ck_assert(!descriptor_name_is_one(SLICE("id:descriptor")));
}
END_TEST

START_TEST(long_names_are_hashed)
{
    char value[1000];
    struct descriptor_entry entry = {SLICE("k"), {value, sizeof value}};
    struct call_descriptor descriptor = {.entries = &entry, .entry_count = 1};
    static struct parsed_descriptor parsed;
    struct descriptor_name one, other;

    memset(value, 'x', sizeof value);
    descriptor_name_write(SLICE("edge"), &descriptor, NULL, &one);
    value[999] = 'y';
    descriptor_name_write(SLICE("edge"), &descriptor, NULL, &other);
    ck_assert(slice_starts_with(descriptor_name_text(&one), SLICE("descriptor:edge/h:")));
    ck_assert(!slice_equal(descriptor_name_text(&one), descriptor_name_text(&other)));
    ck_assert_ptr_null(descriptor_name_parse(descriptor_name_text(&one), &parsed));
    ck_assert(parsed.hashed && slice_equal(parsed.domain, SLICE("edge")));
    descriptor_name_write((struct slice){value, 255}, &descriptor, NULL, &one);
    ck_assert(slice_starts_with(descriptor_name_text(&one), SLICE("descriptor:h:")));
    ck_assert_ptr_null(descriptor_name_parse(descriptor_name_text(&one), &parsed));
    ck_assert(parsed.hashed && parsed.domain.n == 0);
}
END_TEST

START_TEST(shared_values_are_named_by_their_pattern)
{
    struct policy *policy =
        load("    d:\n"
             "      descriptors:\n"
             "        - key: path\n"
             "          value: \"/api/*\"\n"
             "          share_threshold: true\n"
             "          descriptors: [ { key: user, value: \"u*\", limits: burst } ]\n",
             NULL);
    struct descriptor_entry entries[] = {ENTRY("path", "/api/v1"), ENTRY("user", "uwe")};
    struct call_descriptor descriptor = {.entries = entries, .entry_count = 2};
    struct descriptor_match match = match_of(policy, "d", &descriptor);
    struct descriptor_name name;

    descriptor_name_write(SLICE("d"), &descriptor, &match, &name);
    ck_assert(
        slice_equal(descriptor_name_text(&name), SLICE("descriptor:d/path=%2Fapi%2F*/user=uwe")));
    policy_drop(policy);
}
END_TEST

/* --- The model -------------------------------------------------------------------------------- */

enum { MODEL_ENTRIES = 24, PER_POLICY = 100 };

static uint64_t seed = 1;

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 20) % n);
}

static const char *const keys[] = {"a", "b", "a_b"};
static const char *const configured[] = {"",  "",   "x",  "xy",  "xyz", "b_c",
                                         "*", "x*", "*z", "x*z", "*y*", "x*y*z"};
static const char *const values[] = {"", "x", "xy", "xyz", "xz", "b_c", "y", "*", "xyyz"};

struct model_entry {
    const char *key, *value;
    unsigned parent; /* its number; 0: none */
    bool has_limit;
};

/* Entry `i` has the number `i`; entry 0 is the domain. */
struct model {
    struct model_entry entries[MODEL_ENTRIES + 1];
    unsigned count;
};

static bool is_there(const struct model *model, const struct model_entry *entry)
{
    for (unsigned i = 1; i < model->count; i++)
        if (model->entries[i].parent == entry->parent &&
            strcmp(model->entries[i].key, entry->key) == 0 &&
            strcmp(model->entries[i].value, entry->value) == 0)
            return true;
    return false;
}

static void model_make(struct model *model)
{
    unsigned tries = 1 + below(2 * MODEL_ENTRIES);

    model->count = 1;
    while (tries-- && model->count <= MODEL_ENTRIES) {
        struct model_entry entry = {keys[below(COUNT_OF(keys))],
                                    configured[below(COUNT_OF(configured))], below(model->count),
                                    below(3) > 0};
        if (!is_there(model, &entry))
            model->entries[model->count++] = entry;
    }
}

static void write_level(FILE *out, const struct model *model, unsigned parent)
{
    fputs(" [", out);
    for (unsigned i = 1; i < model->count; i++) {
        const struct model_entry *entry = &model->entries[i];
        if (entry->parent != parent)
            continue;
        fprintf(out, " { key: %s, value: \"%s\", descriptors:", entry->key, entry->value);
        write_level(out, model, i);
        if (entry->has_limit)
            fprintf(out, ", rate_limit: { unit: day, requests_per_unit: %u }", i);
        fputs(" },", out);
    }
    fputs(" ]", out);
}

/* By trying all lengths for each "*". */
static bool glob(const char *pattern, const char *text)
{
    if (*pattern != '*')
        return *pattern == *text && (!*text || glob(pattern + 1, text + 1));
    return glob(pattern + 1, text) || (*text && glob(pattern, text + 1));
}

enum { EXACT, WILD, ALONE };

static bool matches_as(const struct model_entry *entry, unsigned how, const char *value)
{
    bool wild = strchr(entry->value, '*');

    if (how == ALONE)
        return !*entry->value;
    if (how == WILD)
        return wild && glob(entry->value, value);
    return !wild && *entry->value && strcmp(entry->value, value) == 0;
}

/* Returns the number of the entry below `parent` that applies; 0: none. */
static unsigned model_step(const struct model *model, unsigned parent, const char *key,
                           const char *value)
{
    for (unsigned how = EXACT; how <= ALONE; how++)
        for (unsigned i = 1; i < model->count; i++)
            if (model->entries[i].parent == parent && strcmp(model->entries[i].key, key) == 0 &&
                matches_as(&model->entries[i], how, value))
                return i;
    return 0;
}

static void compare_one(const struct policy *policy, const struct model *model)
{
    struct descriptor_entry entries[4];
    unsigned count = 1 + below(COUNT_OF(entries)), found = 0;
    bool lost = false;

    for (unsigned i = 0; i < count; i++) {
        const char *key = keys[below(COUNT_OF(keys))], *value = values[below(COUNT_OF(values))];
        entries[i] = (struct descriptor_entry){slice_of(key), slice_of(value)};
        found = lost ? 0 : model_step(model, found, key, value);
        lost |= found == 0;
    }
    struct call_descriptor descriptor = {.entries = entries, .entry_count = count};
    struct descriptor_match match = match_of(policy, "d", &descriptor);
    unsigned wanted = found && model->entries[found].has_limit ? found : 0;
    unsigned got =
        descriptor_limit_count(&match) ? (unsigned)descriptor_limit(&match, 0)->limit : 0;
    ck_assert_uint_eq(!match.entry, !found);
    ck_assert_uint_eq(got, wanted);
}

START_TEST(the_model_selects_the_same_entry)
{
    unsigned steps = getenv("STEPS") ? (unsigned)atoi(getenv("STEPS")) : 30000;
    struct model model;

    if (getenv("SEED"))
        seed = (uint64_t)atoll(getenv("SEED"));
    for (unsigned i = 0; i < steps; i += PER_POLICY) {
        char *yaml;
        size_t size;
        model_make(&model);
        FILE *out = open_memstream(&yaml, &size);
        fputs("    d: { descriptors:", out);
        write_level(out, &model, 0);
        fputs(" }\n", out);
        fclose(out);
        struct policy *policy = load(yaml, NULL);
        for (unsigned k = 0; k < PER_POLICY; k++)
            compare_one(policy, &model);
        policy_drop(policy);
        free(yaml);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("descriptors");
    TCase *tests = tcase_create("descriptors");

    tcase_set_timeout(tests, 3600);
    tcase_add_test(tests, the_examples_of_envoy_match);
    tcase_add_test(tests, numbers_and_units_are_those_of_the_file);
    tcase_add_test(tests, limits_of_the_policy_apply);
    tcase_add_test(tests, values_match_in_order);
    tcase_add_test(tests, unquoted_texts_are_as_written);
    tcase_add_test(tests, replaced_limits_do_not_apply);
    tcase_add_test(tests, a_stated_limit_overrides);
    tcase_add_test(tests, equal_names_get_a_number);
    tcase_add_test(tests, options_without_effect_are_warned_of);
    tcase_add_test(tests, metadata_keeps_its_types);
    tcase_add_test(tests, names_are_read_as_written);
    tcase_add_test(tests, names_that_are_not_valid_are_refused);
    tcase_add_test(tests, long_names_are_hashed);
    tcase_add_test(tests, shared_values_are_named_by_their_pattern);
    tcase_add_test(tests, the_model_selects_the_same_entry);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
