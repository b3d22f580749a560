/* identity_pairs.c - ids from cookies (RFC 6265 section 4.2) and query parameters.
 *
 * weir must not read another value than the server does: a client could then choose the id that is
 * counted and use another one. Servers differ on repeated names, on the spelling of names (PHP
 * reads "a.b" as "a_b", others ignore case), on ";" between parameters and "," between cookies. A
 * request that they may read differently is rejected. */
#include "base/text.h"
#include "policy/identity_internal.h"
#include "policy/pairs.h"

/* Takes the value of one pair. Equal values of one name count once. */
static enum found take(const struct identity_search *search, const struct identity_from *from,
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

/* Some servers read `odd` as a separator too. */
static enum found consider(const struct identity_search *search, const struct identity_from *from,
                           const struct pair *pair, char odd, enum found before)
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
    return pair->has_value ? take(search, from, pair, before) : before;
}

/* Returns true if the wanted name and a "=" stand behind a blank inside a cookie. Python's
 * http.cookies separates cookies by blanks too: it reads "a=b session=x" as two. */
static bool is_named_behind_blank(struct slice cookie, struct slice wanted)
{
    struct pairs words = pairs_of(cookie, " \t");
    struct slice name = SLICE_NONE; /* of the last word, if a blank stands before it */
    struct pair word;
    bool first = true;

    if (!memchr(cookie.p, ' ', cookie.n) && !memchr(cookie.p, '\t', cookie.n))
        return false;
    while (pairs_next(&words, &word)) {
        if (word.text.n == 0)
            continue;
        if (word.name.n)
            name = first ? SLICE_NONE : word.name;
        first = false;
        if (word.has_value && name.n && name_match(name, wanted) != NAME_DIFFERS)
            return true;
    }
    return false;
}

/* Reads all Cookie fields: HTTP/2 splits them (RFC 9113 section 8.2.3). Servers that follow RFC
 * 2965 section 3.3.4 also separate cookies by ",", which values must not contain (RFC 6265 section
 * 4.1.1). */
enum found identity_find_cookie(const struct identity_search *search,
                                const struct identity_from *from)
{
    enum found found = FOUND_NONE;
    const struct field *field = NULL;

    while (found != FOUND_BAD &&
           (field = fields_next_named(search->input->fields, SLICE("Cookie"), field)) != NULL) {
        struct pairs pairs = pairs_of(field->value, ";,");
        struct pair pair;
        while (found != FOUND_BAD && pairs_next(&pairs, &pair)) {
            if (is_named_behind_blank(slice_trim_ows(pair.text), slice_of(from->name)))
                return identity_bad(search,
                                    "the name of the identity's cookie stands behind a blank");
            pair.name = slice_trim_ows(pair.name);
            pair.value = slice_trim_ows(pair.value);
            found = consider(search, from, &pair, ',', found);
        }
    }
    return found;
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
    while (found != FOUND_BAD && pairs_next(&pairs, &pair))
        found = consider(search, from, &pair, ';', found);
    return found;
}

/* --- Logs --- */

static bool is_identity_parameter(const struct identity_settings *settings, struct slice name)
{
    for (unsigned i = 0; i < settings->from_count; i++)
        if (settings->from[i].source->find == identity_find_query &&
            name_match(name, slice_of(settings->from[i].name)) != NAME_DIFFERS)
            return true;
    return false;
}

static bool reads_query(const struct identity_settings *settings)
{
    for (unsigned i = 0; i < settings->from_count; i++)
        if (settings->from[i].source->find == identity_find_query)
            return true;
    return false;
}

struct slice identity_redact(const struct identity_settings *settings, struct slice target,
                             struct text *out)
{
    const char *question = target.n ? memchr(target.p, '?', target.n) : NULL;

    if (!question || !reads_query(settings))
        return target;
    const char *end = target.p + target.n, *copied = target.p;
    struct pairs pairs =
        pairs_of((struct slice){question + 1, (size_t)(end - question) - 1}, query_separators);
    struct pair pair;

    while (pairs_next(&pairs, &pair)) {
        if (pair.value.n == 0 || !is_identity_parameter(settings, pair.name))
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
