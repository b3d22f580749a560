/* lint_match.c - warns about rules that requests bypass or never match due to their spelling, and
 * about conditions that never hold or that anyone can meet. */
#include "config/lint.h"
#include "http/path.h"
#include "http/readings.h"
#include "policy/criteria.h"
#include "policy/identity_source.h"

/* ---- paths ----------------------------------------------------------------------------------- */

enum { GLOB_RULES_MANY = 1000 };

/* Returns a reading of the pattern, taken as a path, that the pattern does not match; empty: none.
 * If another rule matches that reading, all requests for this rule are ambiguous. */
static struct slice other_reading(struct readings *readings, struct slice pattern)
{
    struct slice reading;
    size_t steps = 0;

    readings_begin(readings, pattern);
    while (readings_next(readings, &reading))
        if (!path_matches(pattern, reading, &steps))
            return reading;
    return SLICE_NONE;
}

static bool has_non_ascii(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if ((unsigned char)s.p[i] > 0x7f)
            return true;
    return false;
}

static bool names_method(const struct rule *rule, const char *method)
{
    for (unsigned i = 0; i < rule->method_count; i++)
        if (slice_equal(rule->methods[i], slice_of(method)))
            return true;
    return false;
}

static void warn_of_rule(struct loading *l, const struct node *match, const struct rule *rule,
                         struct readings *readings)
{
    const struct node *path = node_find(match, "path"), *methods = node_find(match, "methods");
    struct slice other = path ? other_reading(readings, rule->pattern) : SLICE_NONE;

    if (other.n && l->policy->paths.ambiguous == AMBIGUOUS_REJECT)
        warning(l, path,
                "requests for this path are refused as ambiguous: servers may read it as %s, which "
                "this rule "
                "does "
                "not match; see paths.ambiguous",
                QUOTE(other));
    if (slice_equal(rule->path, SLICE("*")))
        warning(l, path,
                "matches only the target of OPTIONS *; for all paths, leave path out or write /**");
    if (path && l->policy->paths.ignore_case && has_non_ascii(rule->path))
        warning(l, path,
                "paths.ignore_case applies to ASCII letters only: other letters in this path match "
                "exactly");
    if (methods && names_method(rule, "*"))
        warning(l, methods, "* is no wildcard here; for all methods, leave methods out");
    if (slice_starts_with(rule->host, SLICE(".")))
        warning(l, node_find(match, "host"),
                "matches no subdomain; for all subdomains, write \"*%.*s\"", SLICE_ARG(rule->host));
    if (methods && (names_method(rule, "TRACE") || names_method(rule, "CONNECT")))
        warning(l, methods,
                "TRACE is refused with 405 and CONNECT with 501, whatever the rules say");
    if (methods && names_method(rule, "GET") && !names_method(rule, "HEAD"))
        warning(l, methods, "HEAD is missing here, and most servers treat it like GET; add it");
}

/* Returns true for a pattern with a "*" that is not part of the last segment "**" of a subtree: the
 * index of rules finds those. */
static bool is_glob(struct slice pattern)
{
    bool tree = pattern.n >= 3 && memcmp(pattern.p + pattern.n - 3, "/**", 3) == 0;
    size_t n = pattern.n - (tree ? 3 : 0);

    return n && memchr(pattern.p, '*', n);
}

/* Each such rule may have to be compared with the whole path: see MATCH_STEPS_MAX. */
static void warn_of_globs(struct loading *l, const struct node *rules)
{
    unsigned globs = 0;

    for (unsigned i = 0; i + 1 < l->policy->rule_count; i++)
        globs += is_glob(l->policy->rules[i].pattern);
    if (globs > GLOB_RULES_MANY)
        warning(
            l, rules,
            "%u rules have a \"*\" inside their path: a request whose path is longer than about "
            "4 KB may need more than 4 million steps, and is then refused with 400; use fewer, "
            "or /** at the end",
            globs);
}

void warn_of_paths(struct loading *l)
{
    const struct node *list = node_find(l->root, "rules");
    const struct node *item = list ? list->first : NULL;
    struct readings *readings = arena_zeroed(&l->scratch, 1, sizeof *readings);

    warn_of_globs(l, list);
    for (unsigned i = 0; item && i + 1 < l->policy->rule_count; i++, item = item->next) {
        const struct node *match = node_find(item, "match");
        if (match)
            warn_of_rule(l, match, &l->policy->rules[i], readings);
    }
}

/* ---- conditions ------------------------------------------------------------------------------ */

static void warn_of_client(struct loading *l, const struct node *client,
                           const struct criterion *criterion)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (criterion->clients[i].identity.n && !identity_has_ids(&l->policy->identity)) {
            warning(l, client,
                    "client %s never occurs: it is an id, and identity.from has no source of ids "
                    "before ip",
                    QUOTE(criterion->patterns[i]));
            return;
        }
}

/* Returns true if a listener has TLS, or has none. The decision listener has both: the scheme is
 * that of the other proxy's request. */
static bool has_listener(const struct policy *policy, bool tls)
{
    for (unsigned i = 0; i < policy->listen_count; i++)
        if (policy->listen[i].decides || (policy->listen[i].tls != NULL) == tls)
            return true;
    return false;
}

static void warn_of_scheme(struct loading *l, const struct node *scheme,
                           const struct criterion *criterion)
{
    const struct policy *policy = l->policy;
    bool https = slice_equal(criterion->patterns[0], SLICE("https"));

    if (criterion->count == 1 && !has_listener(policy, https) &&
        policy->identity.trusted_count == 0 && !policy->identity.trust_unix)
        warning(l, scheme,
                "no request has this scheme: no listener has %s, and trusted_proxies is empty",
                https ? "tls" : "cleartext");
}

/* Names in quotes are meant as they are. */
static void warn_of_json(struct loading *l, const struct node *json,
                         const struct criterion *criterion)
{
    struct slice name = criterion->name;
    const struct node *node = json->first;

    if (memchr(name.p, '"', name.n) ||
        (!slice_starts_with(name, SLICE("$.")) && !memchr(name.p, '[', name.n)))
        return;
    while (node && !slice_equal(node->key, name))
        node = node->next;
    warning(
        l, node,
        "%s is not read as JSONPath; write names joined by dots, such as a.b, and put a name with "
        "such characters in quotes; elements of arrays have no name",
        QUOTE(name));
}

/* The warnings of single keys. */
static const struct {
    const char *key;
    void (*warn)(struct loading *l, const struct node *node, const struct criterion *criterion);
} checks[] = {{"client", warn_of_client}, {"json", warn_of_json}, {"scheme", warn_of_scheme}};

void warn_of_match(struct loading *l, const struct node *item, const struct rule *rule)
{
    const struct node *match = node_find(item, "match");
    bool chosen = false;

    for (unsigned i = 0; i < rule->criterion_count; i++) {
        const struct criterion *criterion = rule->criteria[i];
        chosen |= criterion->kind->is_chosen;
        for (size_t k = 0; k < COUNT_OF(checks); k++)
            if (strcmp(criterion->kind->key, checks[k].key) == 0)
                checks[k].warn(l, node_find(match, checks[k].key), criterion);
    }
    if (chosen && rule->limit_count == 0)
        warning(l, match,
                "anyone can send these headers, query parameters or contents, and is then not "
                "limited; use them for stricter limits, or match on the client");
}
