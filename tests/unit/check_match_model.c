/* check_match_model.c - compares the choice of a rule with models of servers, for random rules on
 * method, path, host, header, query, client and scheme, and random requests.
 *
 * A server model reads repeated fields and parameters, encodings and separators in one way, and
 * searches the rules one by one. If weir accepts a request, every model must select weir's rule. A
 * request without repetitions and odd encodings must be accepted. A rule that covers another must
 * match whenever that one does.
 *
 *   STEPS=1000000 SEED=7 check_match_model   number of requests (default 20000) and seed (default 1) */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "config/policy_file.h"
#include "http/path.h"
#include "policy/criteria.h"
#include "policy/identity.h"
#include "policy/rule_choice.h"
#include "run_suite.h"

enum { RULES_MOST = 40, VALUES_MOST = 8, TEXT = 256 };

static uint64_t seed = 1;

static unsigned below(unsigned n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (unsigned)((seed >> 20) % n);
}

static const char *const methods[] = {"GET", "POST"};
static const char *const rule_paths[] = {"/**",     "/v1/**", "/v1/a", "/v1/*",
                                         "/v1/*/c", "/a",     "/*",    "/v1/a*"};
static const char *const paths[] = {"/",      "/a",      "/v1",      "/v1/a",
                                    "/v1/ab", "/v1/b/c", "/v1/a/c/", "/x/y"};
static const char *const rule_hosts[] = {"a.example", "*.example", "b.a.example", "*.a.example"};
static const char *const hosts[] = {"a.example",  "A.Example:8080", "b.a.example",
                                    "x.example.", "example",        "b"};
static const char *const headers[] = {"X-Plan", "X-Kind"};
static const char *const parameters[] = {"format", "v", "filter[type]"};
static const char *const patterns[] = {"gold", "csv",        "g*",  "*",     "*v",
                                       "c*v",  "gold, gold", "a b", "%63sv", ""};
static const char *const values[] = {"gold", "csv", "gov", "json", "", "gold, gold"};
static const char *const pieces[] = {
    "format=csv",
    "format=gold",
    "format=json",
    "format",
    "v=csv",
    "v=",
    "FORMAT=csv",
    "format[]=csv",
    "%66ormat=csv",
    "format=%63sv",
    "format=%2563sv",
    "%u0066ormat=csv",
    "format=%u0063sv",
    "filter[type]=gold",
    "a=1",
    "x",
    "format=a+b",
    "format=a%20b",
    "filter%5Btype%5D=csv",
    "v=g",
    "format=csv%00x",
    "v=%2500",
};
static const char *const clients[] = {"partner",        "bob",          "ip:10.0.0.0/8",
                                      "ip:10.1.0.0/16", "ip:192.0.2.1", "ip:unix"};
static const char *const identities[] = {"id:partner", "id:bob", "id:other", "ip:10.1.2.3"};
static const char *const addresses[] = {"10.1.2.3", "10.2.0.1", "192.0.2.1", "2001:db8::1"};
static const char *const protos[] = {"https",       "http", "wss", "https, http",
                                     "https,https", "ftp",  ""};

#define ONE_OF(list) ((list)[below(COUNT_OF(list))])

/* --- random rules --- */

struct named { /* NULL: no condition */
    const char *name, *pattern[2];
};

struct model_rule {
    const char *method, *path, *host, *scheme, *client[2];
    struct named header, query;
};

static const char *maybe(const char *text, unsigned one_in)
{
    return below(one_in) ? NULL : text;
}

static struct model_rule random_rule(void)
{
    struct model_rule rule = {maybe(ONE_OF(methods), 6),
                              maybe(ONE_OF(rule_paths), 2),
                              maybe(ONE_OF(rule_hosts), 4),
                              maybe(below(2) ? "http" : "https", 6),
                              {maybe(ONE_OF(clients), 4), ONE_OF(clients)},
                              {maybe(ONE_OF(headers), 3), {0}},
                              {maybe(ONE_OF(parameters), 3), {0}}};
    for (unsigned i = 0; i < 2; i++) {
        rule.header.pattern[i] = ONE_OF(patterns);
        rule.query.pattern[i] = ONE_OF(patterns);
    }
    return rule;
}

static int write_rule(char *out, size_t room, const struct model_rule *rule)
{
    int n =
        snprintf(out, room, "  - match:\n      path: \"%s\"\n", rule->path ? rule->path : "/**");
    if (rule->method)
        n += snprintf(out + n, room - (size_t)n, "      methods: [ %s ]\n", rule->method);
    if (rule->host)
        n += snprintf(out + n, room - (size_t)n, "      host: \"%s\"\n", rule->host);
    if (rule->scheme)
        n += snprintf(out + n, room - (size_t)n, "      scheme: %s\n", rule->scheme);
    if (rule->client[0])
        n += snprintf(out + n, room - (size_t)n, "      client: [ \"%s\", \"%s\" ]\n",
                      rule->client[0], rule->client[1]);
    if (rule->header.name)
        n += snprintf(out + n, room - (size_t)n, "      header: { %s: [ \"%s\", \"%s\" ] }\n",
                      rule->header.name, rule->header.pattern[0], rule->header.pattern[1]);
    if (rule->query.name)
        n += snprintf(out + n, room - (size_t)n, "      query: { \"%s\": [ \"%s\", \"%s\" ] }\n",
                      rule->query.name, rule->query.pattern[0], rule->query.pattern[1]);
    return n;
}

static struct policy *random_policy(struct model_rule *rules, unsigned *count)
{
    static char yaml[1 << 16], report_text[1 << 16];
    int n =
        snprintf(yaml, sizeof yaml, "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\nrules:\n");

    *count = 1 + below(below(2) ? 6 : RULES_MOST); /* with and without the index */
    for (unsigned i = 0; i < *count; i++) {
        rules[i] = random_rule();
        n += write_rule(yaml + n, sizeof yaml - (size_t)n, &rules[i]);
    }
    FILE *report = fmemopen(report_text, sizeof report_text, "w+");
    struct policy *policy = policy_load_text("model.yaml", slice_of(yaml), ".", report);
    fclose(report);
    ck_assert_msg(policy != NULL, "%s%s", report_text, yaml);
    return policy;
}

/* --- random requests --- */

struct random_request {
    const char *method, *path, *host, *proto[2];
    struct {
        const char *name, *value;
    } field[3];
    unsigned field_count;
    char query[TEXT];
    bool trusted, https, plain;
    const char *address; /* NULL: a unix socket */
    struct identity identity;
};

static void random_query(struct random_request *r)
{
    size_t n = 0;
    for (unsigned i = 0, count = below(4); i < count; i++) {
        const char *separator = !i ? "?" : below(6) ? "&" : ";";
        n += (size_t)snprintf(r->query + n, TEXT - n, "%s%s", separator, ONE_OF(pieces));
    }
}

static void random_identity(struct random_request *r)
{
    const char *text = ONE_OF(identities);
    r->address = maybe(ONE_OF(addresses), 5) ? NULL : ONE_OF(addresses);
    r->identity = (struct identity){.peer_trusted = r->trusted, .has_ip = r->address != NULL};
    if (r->address)
        ck_assert(ip_parse(slice_of(r->address), &r->identity.ip));
    r->identity.size = strlen(text);
    memcpy(r->identity.text, text, r->identity.size);
}

/* Names occur once, and the query has no encoding that only some servers read. */
static bool is_plain(const struct random_request *r)
{
    static const char *const odd[] = {";", "FORMAT", "[]", "%25", "%u", "%00"};
    bool plain = !r->trusted || (!strchr(r->proto[0], ',') && !r->proto[1]);

    for (unsigned i = 1; i < r->field_count; i++)
        for (unsigned k = 0; k < i; k++)
            plain &= strcmp(r->field[i].name, r->field[k].name) != 0;
    for (unsigned i = 0; i < COUNT_OF(odd); i++)
        plain &= !strstr(r->query, odd[i]);
    const char *format = strstr(r->query, "ormat"), *v = strstr(r->query, "v="),
               *type = strstr(r->query, "type");
    return plain && !(format && strstr(format + 1, "ormat")) && !(v && strstr(v + 1, "v=")) &&
           !(type && strstr(type + 1, "type"));
}

static struct random_request random_request(void)
{
    struct random_request r = {ONE_OF(methods),
                               ONE_OF(paths),
                               ONE_OF(hosts),
                               {ONE_OF(protos), NULL},
                               {{0}},
                               below(4),
                               "",
                               below(2),
                               below(2),
                               false,
                               NULL,
                               {0}};

    r.proto[1] = maybe(ONE_OF(protos), 8);
    for (unsigned i = 0; i < r.field_count; i++) {
        r.field[i].name = ONE_OF(headers);
        r.field[i].value = ONE_OF(values);
    }
    random_query(&r);
    random_identity(&r);
    r.plain = is_plain(&r);
    return r;
}

static void parse(const struct random_request *r, struct request_head *head)
{
    static char bytes[2048];
    struct refusal refusal;
    int n = snprintf(bytes, sizeof bytes, "%s %s%s HTTP/1.1\r\nHost: %s\r\n", r->method, r->path,
                     r->query, r->host);

    for (unsigned i = 0; i < r->field_count; i++)
        n += snprintf(bytes + n, sizeof bytes - (size_t)n, "%s: %s\r\n", r->field[i].name,
                      r->field[i].value);
    for (unsigned i = 0; i < 2 && r->proto[i]; i++)
        n +=
            snprintf(bytes + n, sizeof bytes - (size_t)n, "X-Forwarded-Proto: %s\r\n", r->proto[i]);
    n += snprintf(bytes + n, sizeof bytes - (size_t)n, "\r\n");
    ck_assert_msg(request_head_parse((struct slice){bytes, (size_t)n}, head, &refusal), "%s: %s",
                  bytes, refusal.why);
}

/* --- models of servers --- */

enum pick { PICK_FIRST, PICK_LAST, PICK_ALL, PICKS };

struct server {
    enum pick pick;
    bool semicolons, nocase, brackets, twice, unicode;
};

enum { SERVERS = 32 * PICKS };

static bool glob(const char *pattern, const char *text)
{
    if (!*pattern)
        return !*text;
    if (*pattern == '*')
        return glob(pattern + 1, text) || (*text && glob(pattern, text + 1));
    return *text && *pattern == *text && glob(pattern + 1, text + 1);
}

/* Returns the value that the server uses of `count`, or NULL. */
static const char *picked(const struct server *server, char list[][TEXT], unsigned count,
                          const char *separator)
{
    static char all[VALUES_MOST * TEXT];
    if (count == 0 || server->pick == PICK_FIRST)
        return count ? list[0] : NULL;
    if (server->pick == PICK_LAST)
        return list[count - 1];
    all[0] = 0;
    for (unsigned i = 0; i < count; i++) {
        strcat(all, i ? separator : "");
        strcat(all, list[i]);
    }
    return all;
}

static bool either(const struct named *named, const char *value)
{
    return value && (glob(named->pattern[0], value) || glob(named->pattern[1], value));
}

static void decode(const char *from, size_t n, bool plus, char *to)
{
    char digits[3] = {0};
    for (size_t i = 0; i < n; i++) {
        if (from[i] == '%' && n - i > 2 && strspn(from + i + 1, "0123456789abcdefABCDEF") >= 2) {
            memcpy(digits, from + i + 1, 2);
            *to++ = (char)strtol(digits, NULL, 16);
            i += 2;
        } else
            *to++ = plus && from[i] == '+' ? ' ' : from[i];
    }
    *to = 0;
}

/* Replaces "%u00XX" by "%XX". Returns the new length. */
static size_t ascii_codes(const char *from, size_t n, char *to)
{
    char *out = to;
    for (size_t i = 0; i < n; i++) {
        *out++ = from[i];
        if (n - i > 5 && strncmp(from + i, "%u00", 4) == 0)
            i += 3;
    }
    return (size_t)(out - to);
}

static void decode_all(const struct server *server, const char *from, size_t n, char *to)
{
    char once[TEXT], replaced[TEXT];
    if (server->unicode) /* the codes in `pieces` are of ASCII */
        n = ascii_codes(from, n, replaced), from = replaced;
    decode(from, n, true, once);
    if (server->twice)
        decode(once, strlen(once), false, to);
    else
        strcpy(to, once);
}

static bool has_name(const struct server *server, char *name, const char *wanted)
{
    size_t n = strlen(name);
    if (server->brackets && n > 2 && strcmp(name + n - 2, "[]") == 0)
        name[n - 2] = 0;
    return server->nocase ? strcasecmp(name, wanted) == 0 : strcmp(name, wanted) == 0;
}

static bool query_holds(const struct server *server, const struct random_request *r,
                        const struct named *named)
{
    char list[VALUES_MOST][TEXT], name[TEXT];
    unsigned count = 0;

    for (const char *p = r->query; *p;) {
        p++; /* "?" or a separator */
        size_t n = strcspn(p, server->semicolons ? "&;" : "&"), equals = strcspn(p, "=");
        size_t size = equals < n ? equals : n;
        decode_all(server, p, size, name);
        if (has_name(server, name, named->name)) {
            list[count][0] = 0;
            if (size < n)
                decode_all(server, p + size + 1, n - size - 1, list[count]);
            count++;
        }
        p += n;
    }
    return either(named, picked(server, list, count, ","));
}

static bool header_holds(const struct server *server, const struct random_request *r,
                         const struct named *named)
{
    char list[VALUES_MOST][TEXT];
    unsigned count = 0;

    for (unsigned i = 0; i < r->field_count; i++)
        if (strcmp(r->field[i].name, named->name) == 0)
            strcpy(list[count++], r->field[i].value);
    return either(named, picked(server, list, count, ", "));
}

static bool scheme_holds(const struct server *server, const struct random_request *r,
                         const char *scheme)
{
    const char *own = r->https ? "https" : "http", *proto = own;
    if (r->trusted && !r->proto[1] && r->proto[0][0])
        proto = r->proto[0];
    if (server->pick == PICK_LAST && strchr(proto, ','))
        proto = strchr(proto, ',') + 1;
    while (*proto == ' ')
        proto++;
    size_t n = strcspn(proto, ",");
    const char *is = n == 5 && strncmp(proto, "https", 5) == 0  ? "https"
                     : n == 3 && strncmp(proto, "wss", 3) == 0  ? "https"
                     : n == 4 && strncmp(proto, "http", 4) == 0 ? "http"
                                                                : "";
    return strcmp(is, scheme) == 0;
}

static bool client_holds(const struct random_request *r, const char *client)
{
    const char *ip = r->address ? r->address : "";
    if (strncmp(client, "ip:", 3) != 0)
        return r->identity.size == strlen(client) + 3 && memcmp(r->identity.text, "id:", 3) == 0 &&
               memcmp(r->identity.text + 3, client, strlen(client)) == 0;
    if (strcmp(client, "ip:unix") == 0)
        return !r->address;
    if (strcmp(client, "ip:10.0.0.0/8") == 0)
        return strncmp(ip, "10.", 3) == 0;
    if (strcmp(client, "ip:10.1.0.0/16") == 0)
        return strncmp(ip, "10.1.", 5) == 0;
    return strcmp(ip, client + 3) == 0;
}

static bool host_holds(const char *host, const char *pattern)
{
    char name[TEXT];
    size_t n = strcspn(host, ":"), m = strlen(pattern) - 1;
    n -= n > 1 && host[n - 1] == '.';
    snprintf(name, sizeof name, "%.*s", (int)n, host);
    if (pattern[0] != '*')
        return strcasecmp(name, pattern) == 0;
    return n > m && strcasecmp(name + n - m, pattern + 1) == 0;
}

/* "*" is one segment at most; "/" then two stars at the end is everything below. */
static bool path_holds(const char *path, const char *pattern)
{
    if (strcmp(pattern, "/**") == 0)
        return *path == 0 || *path == '/';
    if (!*pattern || (!*path && *pattern != '*'))
        return *pattern == *path;
    if (*pattern == '*')
        return path_holds(path, pattern + 1) ||
               (*path && *path != '/' && path_holds(path + 1, pattern));
    return *pattern == *path && path_holds(path + 1, pattern + 1);
}

static bool model_holds(const struct server *server, const struct random_request *r,
                        const struct model_rule *rule)
{
    char path[TEXT];
    size_t n = strlen(r->path);
    snprintf(path, sizeof path, "%.*s", (int)(n > 1 && r->path[n - 1] == '/' ? n - 1 : n), r->path);
    return (!rule->method || strcmp(rule->method, r->method) == 0) &&
           (!rule->path || path_holds(path, rule->path)) &&
           (!rule->host || host_holds(r->host, rule->host)) &&
           (!rule->scheme || scheme_holds(server, r, rule->scheme)) &&
           (!rule->client[0] || client_holds(r, rule->client[0]) ||
            client_holds(r, rule->client[1])) &&
           (!rule->header.name || header_holds(server, r, &rule->header)) &&
           (!rule->query.name || query_holds(server, r, &rule->query));
}

static unsigned model_rule(const struct server *server, const struct random_request *r,
                           const struct model_rule *rules, unsigned count)
{
    unsigned i = 0;
    while (i < count && !model_holds(server, r, &rules[i]))
        i++;
    return i;
}

/* --- the properties --- */

static unsigned accepted, refused, plain_ones, covering;

static struct server server_of(unsigned i)
{
    return (struct server){i / 32, i & 1, i >> 1 & 1, i >> 2 & 1, i >> 3 & 1, i >> 4 & 1};
}

static const struct rule *selected(const struct policy *policy, const struct random_request *r,
                                   const char **why)
{
    static struct route_room room;
    static struct request_head head;
    struct request_facts request = {.head = &head, .identity = &r->identity, .https = r->https};
    struct route route;

    parse(r, &head);
    *why = policy_route(policy, &request, &room, &route);
    return *why ? NULL : route.rule;
}

static void compare(const struct policy *policy, const struct model_rule *rules, unsigned count)
{
    struct random_request r = random_request();
    const char *why;
    const struct rule *rule = selected(policy, &r, &why);

    accepted += rule != NULL;
    refused += rule == NULL;
    plain_ones += r.plain;
    ck_assert_msg(rule || !r.plain, "%s%s: %s", r.path, r.query, why);
    for (unsigned i = 0; rule && i < SERVERS; i++) {
        struct server server = server_of(i);
        unsigned expected = model_rule(&server, &r, rules, count);
        ck_assert_msg(rule->index == expected, "%s%s: rule %u, but server %u reads %u", r.path,
                      r.query, rule->index, i, expected);
    }
}

/* Only the first rule of the pair is in effect, so its rule_covers() must be true for any
 * request. */
static void compare_covers(const struct policy *policy, const struct model_rule *rules,
                           unsigned count)
{
    unsigned a = below(count), b = below(count);
    struct server server = server_of(below(SERVERS));

    if (a == b || !rule_covers(&policy->rules[a], &policy->rules[b]))
        return;
    covering++;
    for (unsigned i = 0; i < 20; i++) {
        struct random_request r = random_request();
        if (r.plain)
            ck_assert(!model_holds(&server, &r, &rules[b]) || model_holds(&server, &r, &rules[a]));
    }
}

static uint64_t setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : fallback;
}

START_TEST(all_server_models_select_the_same_rule_or_the_request_is_refused)
{
    static struct model_rule rules[RULES_MOST];
    uint64_t steps = setting("STEPS", 20000);
    unsigned count;

    seed = setting("SEED", 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (uint64_t step = 0; step < steps;) {
        struct policy *policy = random_policy(rules, &count);
        for (unsigned i = 0; i < 100; i++, step++) {
            compare(policy, rules, count);
            compare_covers(policy, rules, count);
        }
        policy_drop(policy);
    }
    ck_assert_uint_gt(accepted, steps / 4);
    ck_assert_uint_gt(refused, steps / 100);
    ck_assert_uint_gt(plain_ones, steps / 8);
    ck_assert_uint_gt(covering, steps / 1000);
}
END_TEST

/* --- patterns --- */

/* Tries every length of what a "*" stands for, by extending the last one. */
static bool backtracks_to_match(struct slice pattern, struct slice s)
{
    size_t i = 0, k = 0, star = SIZE_MAX, taken = 0;

    while (i < s.n) {
        if (k < pattern.n && pattern.p[k] == '*') {
            star = k++;
            taken = i;
        } else if (k < pattern.n && pattern.p[k] == s.p[i]) {
            i++, k++;
        } else if (star != SIZE_MAX) {
            k = star + 1;
            i = ++taken;
        } else {
            return false;
        }
    }
    while (k < pattern.n && pattern.p[k] == '*')
        k++;
    return k == pattern.n;
}

static struct slice random_text(char *room, unsigned longest, const char *letters)
{
    unsigned n = below(longest + 1), count = (unsigned)strlen(letters);

    for (unsigned i = 0; i < n; i++)
        room[i] = letters[below(count)];
    return (struct slice){room, n};
}

START_TEST(patterns_match_as_with_backtracking_in_linear_time)
{
    uint64_t tries = 10 * setting("STEPS", 20000);
    char pattern_room[12], text_room[24], path_room[26] = "/", rule_room[14] = "/";
    unsigned matched = 0;

    seed = setting("SEED", 1) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    for (uint64_t i = 0; i < tries; i++) {
        struct slice pattern = random_text(pattern_room, 12, "aab**");
        struct slice text = random_text(text_room, 24, "aab");
        size_t steps = 0, path_steps = 0;
        bool match = glob_matches(pattern, text, &steps);
        ck_assert_msg(match == backtracks_to_match(pattern, text), "%.*s, %.*s", SLICE_ARG(pattern),
                      SLICE_ARG(text));
        ck_assert_uint_le(steps, 2 * (pattern.n + text.n));
        matched += match;
        if (slice_equal(pattern, SLICE("**"))) /* a subtree at the end of a path */
            continue;
        memcpy(rule_room + 1, pattern.p, pattern.n);
        memcpy(path_room + 1, text.p, text.n);
        ck_assert(path_matches((struct slice){rule_room, pattern.n + 1},
                               (struct slice){path_room, text.n + 1}, &path_steps) == match);
    }
    ck_assert_uint_gt(matched, tries / 20);
}
END_TEST

/* --- the number of steps --- */

/* Returns the steps of a request under many rules that match on `match` with their number. `*why`
 * as of policy_route(). */
static __attribute__((format(printf, 2, 0))) size_t
steps_of_request(unsigned rules, const char *match, struct slice bytes, const char **why)
{
    static struct route_room room;
    static struct request_head head;
    static char yaml[1 << 17];
    struct identity identity = {.has_ip = true};
    struct refusal refusal;
    struct route route;
    size_t n = (size_t)snprintf(yaml, sizeof yaml,
                                "upstreams: { api: { servers: [ 127.0.0.1:1 ] } }\nrules:\n");

    for (unsigned i = 0; i < rules; i++) {
        n += (size_t)snprintf(yaml + n, sizeof yaml - n, "  - match: { ");
        n += (size_t)snprintf(yaml + n, sizeof yaml - n, match, i);
        n += (size_t)snprintf(yaml + n, sizeof yaml - n, " }\n");
    }
    FILE *report = tmpfile();
    struct policy *policy = policy_load_text("steps.yaml", slice_of(yaml), ".", report);
    fclose(report);
    ck_assert_ptr_nonnull(policy);
    ck_assert(request_head_parse(bytes, &head, &refusal));
    struct request_facts request = {.head = &head, .identity = &identity};
    *why = policy_route(policy, &request, &room, &route);
    policy_drop(policy);
    return room.match.steps;
}

/* The same for a request whose target is `start` and `unit`, repeated up to 15,000 bytes. */
static __attribute__((format(printf, 2, 0))) size_t
steps_of_target(unsigned rules, const char *match, const char *start, const char *unit,
                const char **why)
{
    static char bytes[16 << 10];
    size_t n = (size_t)snprintf(bytes, sizeof bytes, "GET %s", start);

    while (n < 15000)
        n += (size_t)snprintf(bytes + n, sizeof bytes - n, "%s", unit);
    n += (size_t)snprintf(bytes + n, sizeof bytes - n, " HTTP/1.1\r\nHost: a\r\n\r\n");
    return steps_of_request(rules, match, (struct slice){bytes, n}, why);
}

static size_t steps_of(unsigned rules, const char *pattern, const char *unit, const char **why)
{
    char match[64];

    snprintf(match, sizeof match, "path: '%s%%u'", pattern);
    return steps_of_target(rules, match, "/", unit, why);
}

START_TEST(the_steps_of_a_request_are_bounded)
{
    enum { ONE_RULE_MOST = 3 * (15000 + RULE_NAME_MAX) };
    const char *why;

    ck_assert_uint_le(steps_of(100, "/*a*a*a*a*ab", "a", &why), 100 * ONE_RULE_MOST);
    ck_assert_ptr_null(why);
    ck_assert_uint_le(steps_of(1000, "/v1/*/x*", "a", &why), 1000 * (RULE_NAME_MAX + 4));
    ck_assert_ptr_null(why); /* the rules do not begin as the path */
    /* each with many readings */
    const char *const units[] = {"a", "a/", "a%2f", "a;/", "%61b", "/../", "%252f"};
    for (unsigned i = 0; i < COUNT_OF(units); i++) {
        size_t steps = steps_of(1000, "/*a*a*a*a*ab", units[i], &why);
        ck_assert_uint_le(steps, MATCH_STEPS_MAX + ONE_RULE_MOST);
        ck_assert(steps <= MATCH_STEPS_MAX || why);
    }
    ck_assert_uint_gt(steps_of(1000, "/*a*a*a*a*ab", "a", &why), MATCH_STEPS_MAX);
    ck_assert_ptr_nonnull(strstr(why, "4 million steps"));
}
END_TEST

START_TEST(rules_of_other_methods_count_in_every_reading)
{
    enum { RULES = 100, METHODS = 5 }; /* the request's own method and four overrides */
    /* many readings, with one authority */
    static const char path[] = "//a%2525;x//b%2f%5cc;y/%253b;%3fq//z%25252e%2523%09";
    static const struct {
        const char *fields;
        unsigned methods;
    } cases[] = {
        {"", 1},
        {"X-HTTP-Method-Override: A,B\r\nX-HTTP-Method: C\r\nX-Method-Override: D\r\n", METHODS}};
    const char *why;
    char bytes[512];

    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        int n = snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\nHost: a\r\n%s\r\n", path,
                         cases[i].fields);
        size_t steps = steps_of_request(RULES, "methods: [ POST ], host: a, path: '/*/s-%u/**'",
                                        (struct slice){bytes, (size_t)n}, &why);
        ck_assert_ptr_nonnull(strstr(why, "too many ways")); /* 64 readings */
        ck_assert_uint_ge(steps, RULES * cases[i].methods * 64);
        ck_assert_uint_le(steps, RULES * cases[i].methods * 2 * 70);
    }
    int n = snprintf(bytes, sizeof bytes, "GET %s HTTP/1.1\r\nHost: a\r\n%s%s\r\n", path,
                     cases[1].fields, "X-HTTP-Method-Override: E\r\n");
    steps_of_request(RULES, "methods: [ POST ], path: '/*/s-%u/**'",
                     (struct slice){bytes, (size_t)n}, &why);
    ck_assert_ptr_nonnull(strstr(why, "more than 4 methods"));
}
END_TEST

START_TEST(each_reading_of_the_query_counts)
{
    enum { TARGET = 15000 /* bytes */ };
    static const char match[] = "path: /search, query: { f: plan-%u }";
    const char *const units[] = {"f=&", "%66&", "f;", "%2566&", "f=%00&"};
    const char *why;

    for (size_t i = 0; i < COUNT_OF(units); i++) {
        size_t few = steps_of_target(10, match, "/search?", units[i], &why);
        ck_assert_uint_gt(few, 10 * TARGET);
        size_t steps = steps_of_target(1000, match, "/search?", units[i], &why);
        ck_assert_ptr_nonnull(strstr(why, "4 million steps"));
        ck_assert_uint_le(steps, MATCH_STEPS_MAX + 2 * QUERY_STEPS * TARGET);
    }
    /* few values: the query is read once */
    size_t once = steps_of_target(1000, match, "/search?f=x&", "g&", &why);
    ck_assert_ptr_null(why);
    ck_assert_uint_le(once, 2 * QUERY_STEPS * TARGET + 1000 * 32);
    const char *honest = "GET /search?page=7&f=plan-998&lang=en HTTP/1.1\r\nHost: a\r\n\r\n";
    steps_of_request(1000, match, slice_of(honest), &why);
    ck_assert_ptr_null(why);
}
END_TEST

/* More than are kept: each is considered, and all of them joined by commas. */
START_TEST(thousands_of_values_are_read_as_few_are)
{
    const char *why;

    steps_of_target(1, "query: { f: 'v*%u' }", "/?", "f=v0&", &why);
    ck_assert_ptr_null(why);
    steps_of_target(1, "query: { f: 'v%u' }", "/?", "f=v0&", &why);
    ck_assert_ptr_nonnull(strstr(why, "repeated"));
    steps_of_target(1, "query: { f: 'v%u' }", "/?f=v0&", "f=w&", &why);
    ck_assert_ptr_nonnull(strstr(why, "repeated"));
    steps_of_target(1, "query: { f: 'v%u' }", "/?", "f=w&", &why);
    ck_assert_ptr_null(why);
    steps_of_target(1, "query: { f: [ w, '*,w,%u' ] }", "/?f=w&f=0", "&g=w", &why);
    ck_assert_ptr_nonnull(strstr(why, "repeated"));
}
END_TEST

/* The query is read once for each of eight names. */
START_TEST(values_of_several_parameters_are_kept)
{
    enum { TARGET = 15000 /* bytes */ };
    static const char match[] = "query: { a: x, b: x, c: x, d: x, e: x, f: x, g: x, h: plan-%u }";
    static const char target[] = "/?a=x&b=x&c=x&d=x&e=x&f=x&g=x&h=plan-99&";
    const char *why;

    size_t kept = steps_of_target(100, match, target, "v&", &why);
    ck_assert_ptr_null(why);
    ck_assert_uint_le(kept, 9 * QUERY_STEPS * TARGET + 100 * 64);
}
END_TEST

/* 1,000 rules, each of which would copy the joined value. */
START_TEST(repeated_headers_count_as_they_are_joined)
{
    enum { VALUE = 10000 };
    static char bytes[3 * VALUE];
    const char *why;

    for (unsigned lines = 1; lines <= 2; lines++) {
        size_t n = (size_t)snprintf(bytes, sizeof bytes, "GET / HTTP/1.1\r\nHost: a\r\n");
        for (unsigned i = 0; i < lines; i++)
            n += (size_t)snprintf(bytes + n, sizeof bytes - n, "X-Plan: %0*d\r\n", VALUE, 0);
        n += (size_t)snprintf(bytes + n, sizeof bytes - n, "\r\n");
        size_t steps =
            steps_of_request(1000, "header: { X-Plan: plan-%u }", (struct slice){bytes, n}, &why);
        ck_assert(lines == 1 ? steps < 1000 * 32 : steps > MATCH_STEPS_MAX);
    }
    ck_assert_ptr_nonnull(strstr(why, "4 million steps"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("match model");
    TCase *tests = tcase_create("match model");
    tcase_set_timeout(tests, 3600);
    tcase_add_test(tests, all_server_models_select_the_same_rule_or_the_request_is_refused);
    tcase_add_test(tests, patterns_match_as_with_backtracking_in_linear_time);
    tcase_add_test(tests, the_steps_of_a_request_are_bounded);
    tcase_add_test(tests, rules_of_other_methods_count_in_every_reading);
    tcase_add_test(tests, each_reading_of_the_query_counts);
    tcase_add_test(tests, thousands_of_values_are_read_as_few_are);
    tcase_add_test(tests, values_of_several_parameters_are_kept);
    tcase_add_test(tests, repeated_headers_count_as_they_are_joined);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
