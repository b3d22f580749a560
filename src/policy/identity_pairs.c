/* identity_pairs.c - ids from "name=value" pairs, and from query parameters.
 *
 * weir must not read another value than the server does: a client could then choose the id that is
 * counted and use another one. Servers differ on repeated names, on the spelling of names (PHP
 * reads "a.b" as "a_b", others ignore case), on ";" between parameters and "," between cookies. A
 * request that they may read differently is rejected. */
#include "base/text.h"
#include "policy/identity_internal.h"
#include "policy/pairs.h"

/* Takes the value of one pair. Equal values of one name count once. */
static enum found use_pair(const struct identity_search *search, const struct identity_from *from,
                           const struct pair *pair, enum found before)
{
    const struct identity_settings *settings = &search->input->policy->identity;
    struct identity *identity = search->identity;
    struct identity other;

    if (before == FOUND_NONE)
        return identity_write_id(settings, from->source, pair->value, identity, search->why);
    enum found found = identity_write_id(settings, from->source, pair->value, &other, search->why);
    if (found != FOUND || !slice_equal(identity_text(&other), identity_text(identity)))
        return identity_bad(search,
                            "the cookie or query parameter of the identity has several values");
    return FOUND;
}

enum found identity_take_pair(const struct identity_search *search,
                              const struct identity_from *from, const struct pair *pair, char odd,
                              enum found before)
{
    switch (name_match(pair->name, slice_of(from->name))) {
    case NAME_DIFFERS: return before;
    case NAME_TWIN:
        return identity_bad(search,
                            "a cookie or query parameter has a name that servers may take for that "
                            "of the identity");
    case NAME_EQUAL: break;
    }
    if (pair->before == odd || pair->after == odd)
        return identity_bad(search, odd == ';'
                                        ? "\";\" stands beside the query parameter of the identity"
                                        : "\",\" stands beside the cookie of the identity");
    return pair->has_value ? use_pair(search, from, pair, before) : before;
}

/* Some servers read ";" as a separator too. */
static const char query_separators[] = "&;";

enum found identity_find_query(const struct identity_search *search,
                               const struct identity_from *from)
{
    struct slice query = search->input->query;
    enum found found = FOUND_NONE;
    struct pair pair;

    if (query.n == 0)
        return FOUND_NONE;
    struct pairs pairs = pairs_of((struct slice){query.p + 1, query.n - 1}, query_separators);
    while (found != FOUND_BAD && pairs_next(&pairs, &pair)) {
        if (pair.has_value && percent_is_malformed(pair.name))
            return identity_bad(search, "the name of a query parameter has malformed "
                                        "percent-encoding, so servers may take it for that of the "
                                        "identity");
        found = identity_take_pair(search, from, &pair, ';', found);
    }
    return found;
}

/* --- Logs --- */

/* Returns whether the source reads the query; with a name, whether it reads this parameter. */
static bool source_reads(const struct identity_from *from, struct slice name)
{
    return from->source && from->source->find == identity_find_query &&
           (!name.n || percent_is_malformed(name) ||
            name_match(name, slice_of(from->name)) != NAME_DIFFERS);
}

/* Returns whether an identity or a limit's key reads the query, or this parameter of it. */
static bool query_is_read(const struct policy *policy, struct slice name)
{
    for (unsigned i = 0; i < policy->identity.from_count; i++)
        if (source_reads(&policy->identity.from[i], name))
            return true;
    for (unsigned i = 0; i < policy->key_source_count; i++)
        if (source_reads(&policy->key_sources[i].from, name))
            return true;
    return false;
}

struct slice identity_redact(const struct policy *policy, struct slice target, struct text *out)
{
    const char *question = target.n ? memchr(target.p, '?', target.n) : NULL;

    if (!question || !query_is_read(policy, SLICE_NONE))
        return target;
    const char *end = target.p + target.n, *copied = target.p;
    struct pairs pairs =
        pairs_of((struct slice){question + 1, (size_t)(end - question) - 1}, query_separators);
    struct pair pair;

    while (pairs_next(&pairs, &pair)) {
        if (pair.value.n == 0 || pair.name.n == 0 || !query_is_read(policy, pair.name))
            continue;
        const char *value = (const char *)memchr(pair.text.p, '=', pair.text.n) + 1;
        text_put(out, (struct slice){copied, (size_t)(value - copied)});
        text_literal(out, "***");
        copied = pair.text.p + pair.text.n;
    }
    if (copied == target.p)
        return target;
    text_put(out, (struct slice){copied, (size_t)(end - copied)});
    return text_slice(out);
}
