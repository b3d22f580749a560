/* check_route_model.c - compares policy_route() with a simple model of http/readings.h, for random
 * paths, encodings and rules. A request is forwarded if and only if all readings select the rule
 * of its normal form.
 *
 *   STEPS=1000000 SEED=7 check_route_model   number of paths (default 20000) and seed (default 1) */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "http/head.h"
#include "policy/identity.h"
#include "policy/rule_choice.h"
#include "run_suite.h"

enum { LONGEST = 256, MODEL_MAX = 3 * READINGS_MAX, RULES = 4 };

/* --- random policies and paths --- */

static uint64_t seed = 1;

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 20) % n);
}

static const char *const patterns[] = {
    "/login",   "/login/",   "/v1/**", "/v1/*",   "/*",        "/v1/login", "/*/login",
    "/",        "/v1/a*",    "/*n",    "/**",     "/a;b",      "/v1%2Fa",   "/Login",
    "/v1\\\\a", "/\xc3\xa9", "/a.b",   "/v1/a b", "/login%3F",
};
static const char *const pieces[] = {
    "/",         "/",         "/",         "/",      "//",     "login",   "login",  "v1",
    "v1",        "a",         "b",         "é",      "Login",  ".",       "..",     ".",
    "..",        "...",       ";",         ";x",     "\\",     "%2f",     "%2F",    "%5c",
    "%2e",       "%2E%2e",    "%252e",     "%252f",  "%255C",  "%25252f", "%25",    "%3b",
    "%3f",       "%23",       "%2500",     "%20",    "%0a",    "%6c",     "%c0%af", "%c0%ae",
    "%e0%80%af", "%ef%bc%8f", "%ef%bd%8c", "%c3%a9", "%C3%A9", "%61",     "%2",     "%zz",
    "%00",       "*",         "%2a",       "+",      "|",      "%7C",     "host",   "~",
};
static const char *const usual[] = {"/login", "/v1/a", "/v1/login", "/a;b",
                                    "/",      "/v1/",  "/x/login",  "/v1%2Fa"};

struct model_options {
    bool normalize, exact, nocase;
};

struct model_rules {
    unsigned count;
    const char *pattern[RULES]; /* "\\\\" is one backslash in the YAML */
};

static struct policy *random_policy(struct model_rules *rules, struct model_options *options)
{
    char yaml[2048], output[4096] = "";
    int n;

    *options = (struct model_options){below(2), below(2), below(3) == 0};
    n = snprintf(yaml, sizeof yaml,
                 "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\npaths: { dot_segments: %s, "
                 "trailing_slash: %s, "
                 "ignore_case: %s }\nrules:\n",
                 options->normalize ? "normalize" : "reject", options->exact ? "exact" : "ignore",
                 options->nocase ? "true" : "false");
    rules->count = 1 + below(RULES);
    for (unsigned i = 0; i < rules->count; i++) {
        rules->pattern[i] = patterns[below(COUNT_OF(patterns))];
        n += snprintf(yaml + n, sizeof yaml - (size_t)n, "  - { match: { path: \"%s\" } }\n",
                      rules->pattern[i]);
    }
    FILE *report = fmemopen(output, sizeof output, "w+");
    struct policy *policy = policy_load_text("model.yaml", slice_of(yaml), ".", report);
    fclose(report);
    ck_assert_msg(policy != NULL, "%s%s", output, yaml);
    return policy;
}

static void random_path(char path[static LONGEST])
{
    bool from_usual = below(2);
    size_t n =
        (size_t)snprintf(path, LONGEST, "%s", from_usual ? usual[below(COUNT_OF(usual))] : "/");

    for (unsigned more = below(from_usual ? 4 : 8); more > 0; more--) {
        const char *piece = pieces[below(COUNT_OF(pieces))];
        size_t size = strlen(piece), at = below(2) ? n : 1 + below((unsigned)n);
        if (n + size + 1 > LONGEST / 2 || (unsigned char)piece[0] > 0x7f)
            continue;
        memmove(path + at + size, path + at, n - at + 1);
        memcpy(path + at, piece, size);
        n += size;
    }
}

/* --- the model: strings, one step at a time --- */

struct string {
    size_t n;
    unsigned char p[LONGEST];
};

static void put(struct string *s, unsigned c)
{
    s->p[s->n++] = (unsigned char)c;
}

/* Returns the value of two hexadecimal digits after a "%" at `i`, or -1. */
static int code(const struct string *s, size_t i)
{
    char digits[3] = {0}, *end;
    if (i + 2 >= s->n || s->p[i] != '%')
        return -1;
    memcpy(digits, s->p + i + 1, 2);
    if (strspn(digits, "0123456789abcdefABCDEF") != 2)
        return -1;
    return (int)strtol(digits, &end, 16);
}

static bool model_normalise(const struct string *in, struct string *out)
{
    out->n = 0;
    for (size_t i = 0; i < in->n; i++) {
        int c = code(in, i);
        if (in->p[i] != '%') {
            put(out, in->p[i]);
            continue;
        }
        if (c <= 0)
            return false;
        if (c >= 0x80 ||
            strchr(" -._~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", c))
            put(out, (unsigned)c);
        else
            out->n += (size_t)snprintf((char *)out->p + out->n, 4, "%%%02X", (unsigned)c);
        i += 2;
    }
    return true;
}

static bool starts(const struct string *s, size_t i, const char *with)
{
    size_t n = strlen(with);
    return s->n - i >= n && memcmp(s->p + i, with, n) == 0;
}

static bool is_all(const struct string *s, size_t i, const char *what)
{
    return s->n - i == strlen(what) && starts(s, i, what);
}

/* RFC 3986 section 5.2.4, literally. Returns whether there were dot segments. */
static bool model_remove_dots(const struct string *in, struct string *out)
{
    bool found = false;
    size_t i = 0;

    out->n = 0;
    while (i < in->n) {
        bool up = starts(in, i, "/../") || is_all(in, i, "/..");
        bool here = starts(in, i, "/./") || is_all(in, i, "/.");
        size_t skipped = up ? 3 : here ? 2 : 0;
        if (up)
            while (out->n && out->p[--out->n] != '/')
                ;
        found |= up || here;
        if (up || here) {
            i += skipped;
            if (i == in->n)
                put(out, '/');
            continue;
        }
        do
            put(out, in->p[i++]);
        while (i < in->n && in->p[i] != '/');
    }
    return found;
}

/* Decodes the percent-encoded dots of dot segments. */
static void show_dots(const struct string *in, struct string *out)
{
    out->n = 0;
    for (size_t i = 0; i < in->n;) {
        size_t end = i + 1, dots = 0, k = i + 1;
        while (end < in->n && in->p[end] != '/')
            end++;
        for (; k < end && (in->p[k] == '.' || code(in, k) == '.'); dots++)
            k += in->p[k] == '.' ? 1 : 3;
        bool is_dots = k == end && (dots == 1 || dots == 2);
        put(out, '/');
        for (size_t at = i + 1; at < end && !is_dots; at++)
            put(out, in->p[at]);
        while (is_dots && dots-- > 0)
            put(out, '.');
        i = end;
    }
}

/* Returns the ASCII character of non-shortest UTF-8 or a fullwidth form at `i`, or 0. */
static unsigned folded(const struct string *s, size_t i, size_t *size)
{
    unsigned first = s->p[i], value;
    *size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc0 ? 2 : 0;
    if (*size == 0 || i + *size > s->n || first > 0xf7)
        return 256;
    value = first & (0xffu >> (*size + 1));
    for (size_t k = 1; k < *size; k++) {
        if ((s->p[i + k] & 0xc0) != 0x80)
            return 256;
        value = value << 6 | (s->p[i + k] & 0x3f);
    }
    if (value >= 0xff01 && value <= 0xff5e)
        return value - 0xff01 + '!';
    return value < 0x80 ? value : 256;
}

enum step {
    SLASHES,
    CODES,
    BACKSLASHES,
    MERGE,
    PARAMETERS,
    DOTS,
    QUERY,
    AUTHORITY,
    CONTROLS,
    TAILS,
    FOLD,
    STEPS
};

static void decode(enum step step, const struct string *in, struct string *out)
{
    for (size_t i = 0, size; i < in->n; i++) {
        int c = code(in, i);
        unsigned fold = step == FOLD ? folded(in, i, &size) : 256;
        if (step == FOLD && fold < 256) {
            put(out, fold);
            i += size - 1;
        } else if (step != FOLD && c >= 0 && (c == '/' || c == '\\') == (step == SLASHES)) {
            put(out, (unsigned)c);
            i += 2;
        } else
            put(out, in->p[i]);
    }
}

static void authority(const struct string *in, struct string *out)
{
    size_t i = 0;
    if (starts(in, 0, "//")) {
        for (; i < in->n && in->p[i] == '/'; i++)
            ;
        for (; i < in->n && in->p[i] != '/'; i++)
            ;
        if (i == in->n)
            put(out, '/');
    }
    for (; i < in->n; i++)
        put(out, in->p[i]);
}

static void tails(const struct string *in, struct string *out)
{
    size_t start = 0; /* of the segment in `out` */
    for (size_t i = 0; i <= in->n; i++) {
        if (i < in->n && (in->p[i] != '/' || i == 0)) {
            put(out, in->p[i]);
            start = i == 0 ? 1 : start;
            continue;
        }
        size_t dots = 0, size = out->n - start;
        while (dots < size && out->p[start + dots] == '.')
            dots++;
        dots = dots > 2 ? 0 : dots; /* "..." is not ".." */
        while (out->n > start && (out->p[out->n - 1] == '.' || out->p[out->n - 1] == ' '))
            out->n--;
        for (; out->n == start && dots > 0; dots--) {
            for (size_t k = 0; k < dots; k++)
                put(out, '.');
            break;
        }
        if (i < in->n)
            put(out, '/');
        start = out->n;
    }
}

static void take_step(enum step step, const struct string *in, struct string *out)
{
    out->n = 0;
    switch (step) {
    case SLASHES:
    case CODES:
    case FOLD: decode(step, in, out); return;
    case DOTS: {
        struct string shown;
        show_dots(in, &shown);
        if (!model_remove_dots(&shown, out))
            *out = *in;
        return;
    }
    case AUTHORITY: authority(in, out); return;
    case TAILS: tails(in, out); return;
    case BACKSLASHES:
    case MERGE:
    case PARAMETERS:
    case QUERY:
    case CONTROLS:
    case STEPS: break;
    }
    bool parameter = false;
    for (size_t i = 0; i < in->n; i++) {
        unsigned c = in->p[i];
        parameter = c == '/' ? false : parameter || c == ';';
        if (step == QUERY && (c == '?' || c == '#' || c == 0 || c == 10 || c == 13))
            return;
        if ((step == MERGE && c == '/' && i && in->p[i - 1] == '/') ||
            (step == PARAMETERS && parameter) || (step == CONTROLS && (c < ' ' || c == 127)))
            continue;
        put(out, step == BACKSLASHES && c == '\\' ? '/' : c);
    }
}

/* --- the model of rules --- */

static bool glob(const char *pattern, size_t m, const char *text, size_t n)
{
    if (m == 0)
        return n == 0;
    if (*pattern == '*')
        return glob(pattern + 1, m - 1, text, n) || (n && glob(pattern, m, text + 1, n - 1));
    return n && *pattern == *text && glob(pattern + 1, m - 1, text + 1, n - 1);
}

static bool model_matches(const char *pattern, size_t m, const char *path, size_t n)
{
    if (m == 3 && memcmp(pattern, "/**", 3) == 0)
        return n == 0 || path[0] == '/';
    if (m == 0 || n == 0)
        return m == n;
    size_t a = 1, b = 1;
    while (a < m && pattern[a] != '/')
        a++;
    while (b < n && path[b] != '/')
        b++;
    return glob(pattern + 1, a - 1, path + 1, b - 1) &&
           model_matches(pattern + a, m - a, path + b, n - b);
}

/* The form for matching: lower case, no trailing slash. */
static size_t prepared(const struct model_options *options, const void *text, size_t n, char *out)
{
    const char *p = text;
    for (size_t i = 0; i < n; i++)
        out[i] = options->nocase && p[i] >= 'A' && p[i] <= 'Z' ? (char)(p[i] + 32) : p[i];
    return n - (!options->exact && n > 1 && p[n - 1] == '/');
}

static unsigned model_rule(const struct model_rules *rules, const struct model_options *options,
                           const struct string *path)
{
    char left[LONGEST], right[LONGEST], pattern[LONGEST];
    size_t n = prepared(options, path->p, path->n, right);

    for (unsigned i = 0; i < rules->count; i++) {
        size_t size = 0;
        for (const char *p = rules->pattern[i]; *p; p += 1 + (*p == '\\')) /* skips YAML escapes */
            pattern[size++] = *p;
        size_t m = prepared(options, pattern, size, left);
        if (model_matches(left, m, right, n))
            return i;
    }
    return rules->count;
}

/* Returns whether all readings select `rule` and their number is within the bound. */
static bool model_agrees(const struct model_rules *rules, const struct model_options *options,
                         const struct string *normal, unsigned rule)
{
    static struct string known[MODEL_MAX];
    unsigned count = 1;

    known[0] = *normal;
    for (unsigned next = 0; next < count; next++) {
        if (model_rule(rules, options, &known[next]) != rule)
            return false;
        for (unsigned step = 0; step < STEPS; step++) {
            struct string made;
            unsigned i = 0;
            take_step(step, &known[next], &made);
            while (i < count && (known[i].n != made.n || memcmp(known[i].p, made.p, made.n) != 0))
                i++;
            if (i < count)
                continue;
            if (count == READINGS_MAX)
                return false;
            known[count++] = made;
        }
    }
    return true;
}

/* --- the property --- */

static unsigned forwarded, refused, rewritten;

static void compare(const struct policy *policy, const struct model_rules *rules,
                    const struct model_options *options, const char *path)
{
    static struct route_room room;
    static struct request_head head;
    struct string raw = {.n = strlen(path)}, shown, without, normal;
    struct refusal refusal;
    struct route route;
    char bytes[LONGEST + 64];
    int n = snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path);

    ck_assert_msg(request_head_parse((struct slice){bytes, (size_t)n}, &head, &refusal), "%s: %s",
                  path, refusal.why);
    struct identity identity = {.has_ip = true};
    struct request_facts request = {.head = &head, .identity = &identity};
    const char *why = policy_route(policy, &request, &room, &route);

    memcpy(raw.p, path, raw.n);
    show_dots(&raw, &shown);
    bool dots = model_remove_dots(&shown, &without), good = !dots || options->normalize;
    if (!dots)
        without = raw;
    good = good && model_normalise(&without, &normal);
    unsigned rule = good ? model_rule(rules, options, &normal) : 0;
    good = good && model_agrees(rules, options, &normal, rule);

    ck_assert_msg(good == !why, "%s: %s", path, why ? why : "forwarded");
    forwarded += good;
    refused += !good;
    if (!good)
        return;
    ck_assert_msg(route.rule->index == rule, "%s: rule %u, not %u", path, route.rule->index, rule);
    ck_assert_msg((route.path.n > 0) == dots, "%s", path);
    ck_assert_msg(
        !dots || (route.path.n == without.n && memcmp(route.path.p, without.p, without.n) == 0),
        "%s: %.*s", path, SLICE_ARG(route.path));
    rewritten += dots;
}

static uint64_t setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

START_TEST(all_readings_select_the_rule_or_the_request_is_refused)
{
    uint64_t steps = setting("STEPS", 20000);
    struct model_options options;
    struct model_rules rules;
    char path[LONGEST];

    seed = setting("SEED", 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (uint64_t step = 0; step < steps;) {
        struct policy *policy = random_policy(&rules, &options);
        for (unsigned i = 0; i < 100; i++, step++) {
            random_path(path);
            compare(policy, &rules, &options, path);
        }
        policy_drop(policy);
    }
    ck_assert_uint_gt(forwarded, steps / 10); /* the paths are neither all good nor all bad */
    ck_assert_uint_gt(refused, steps / 10);
    ck_assert_uint_gt(rewritten, steps / 200);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("route model");
    TCase *tests = tcase_create("route model");
    tcase_set_timeout(tests, 3600);
    tcase_add_test(tests, all_readings_select_the_rule_or_the_request_is_refused);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
