/* identity_pairs.c - ids from cookies (RFC 6265 section 4.2) and query parameters.
 *
 * weir must not read another value than the server does: a client could then choose the id that is
 * counted and use another one. Servers differ on repeated names, on the spelling of names (PHP
 * reads "a.b" as "a_b", others ignore case) and on ";" between parameters. A request that they may
 * read differently is rejected. */
#include <ctype.h>

#include "base/text.h"
#include "http/chars.h"
#include "policy/identity_internal.h"

int percent_next(struct percent *percent)
{
    if (percent->p == percent->end)
        return PERCENT_END;
    int code = percent_code_at(percent->p, percent->end);
    if (code >= 0) {
        percent->p += 3;
        return code;
    }
    char c = *percent->p++;
    return c == '+' ? ' ' : c == '%' ? PERCENT_MALFORMED : (unsigned char)c;
}

/* --- Names --- */

enum match { MATCH_NO, MATCH_TWIN, MATCH_EXACT };

static int in_variable(int c)
{
    return c >= 0 && c < 128 && isalnum(c) ? ascii_lower((char)c) : '_';
}

/* Compares a name, as sent, with that of a source. MATCH_TWIN: some servers take it for the same
 * name. */
static enum match match_name(struct slice sent, const char *wanted)
{
    struct percent percent = {sent.p, sent.p + sent.n};
    bool exact = true;
    int c;

    while ((c = percent_next(&percent)) == ' ')
        exact = false;
    for (; *wanted; wanted++, c = percent_next(&percent)) {
        if (c == PERCENT_END || in_variable(c) != in_variable((unsigned char)*wanted))
            return MATCH_NO;
        exact &= c == (unsigned char)*wanted;
    }
    if (c == PERCENT_END)
        return exact ? MATCH_EXACT : MATCH_TWIN;
    return c == '[' || c == 0 ? MATCH_TWIN : MATCH_NO; /* an array; the end of a C string */
}

/* --- Pairs --- */

struct pair {
    struct slice name, value;
    bool has_value;
};

static struct pair pair_of(struct slice text)
{
    const char *equals = text.n ? memchr(text.p, '=', text.n) : NULL;
    struct pair pair = {.name = text, .has_value = equals != NULL};

    if (equals) {
        pair.name.n = (size_t)(equals - text.p);
        pair.value = (struct slice){equals + 1, text.n - pair.name.n - 1};
    }
    pair.name = slice_trim_ows(pair.name);
    pair.value = slice_trim_ows(pair.value);
    return pair;
}

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

static enum found consider(const struct identity_search *search, const struct identity_from *from,
                           struct slice text, bool separated_oddly, enum found before)
{
    struct pair pair = pair_of(text);

    switch (match_name(pair.name, from->name)) {
    case MATCH_NO: return before;
    case MATCH_TWIN:
        return identity_bad(search,
                            "a cookie or query parameter has a name that servers may take for that "
                            "of the identity");
    case MATCH_EXACT: break;
    }
    if (separated_oddly)
        return identity_bad(search, "\";\" stands beside the query parameter of the identity");
    return pair.has_value ? take(search, from, &pair, before) : before;
}

/* Reads all Cookie fields: HTTP/2 splits them (RFC 9113 section 8.2.3). */
enum found identity_find_cookie(const struct identity_search *search,
                                const struct identity_from *from)
{
    enum found found = FOUND_NONE;
    const struct field *field = NULL;

    while (found != FOUND_BAD &&
           (field = fields_next_named(search->input->fields, SLICE("Cookie"), field)) != NULL) {
        const char *p = field->value.p, *end = p + field->value.n;
        while (p < end && found != FOUND_BAD) {
            const char *semicolon = memchr(p, ';', (size_t)(end - p)),
                       *stop = semicolon ? semicolon : end;
            found = consider(search, from, (struct slice){p, (size_t)(stop - p)}, false, found);
            p = stop + 1;
        }
    }
    return found;
}

/* Finds the end of a parameter: "&", or ";", which some servers read as a separator too. */
static const char *parameter_end(const char *p, const char *end)
{
    while (p < end && *p != '&' && *p != ';')
        p++;
    return p;
}

enum found identity_find_query(const struct identity_search *search,
                               const struct identity_from *from)
{
    struct slice query = search->input->query;
    const char *p = query.n ? query.p + 1 : NULL, *end = query.p + query.n;
    enum found found = FOUND_NONE;
    bool after_semicolon = false;

    while (query.n && p <= end && found != FOUND_BAD) {
        const char *stop = parameter_end(p, end);
        bool before_semicolon = stop < end && *stop == ';';
        found = consider(search, from, (struct slice){p, (size_t)(stop - p)},
                         after_semicolon || before_semicolon, found);
        after_semicolon = before_semicolon;
        p = stop + 1;
    }
    return found;
}

/* --- Logs --- */

static bool is_identity_parameter(const struct identity_settings *settings, struct slice name)
{
    for (unsigned i = 0; i < settings->from_count; i++)
        if (settings->from[i].source->find == identity_find_query &&
            match_name(name, settings->from[i].name) != MATCH_NO)
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
    if (target.n == 0 || !reads_query(settings))
        return target;
    const char *end = target.p + target.n, *copied = target.p;
    const char *question = memchr(target.p, '?', target.n), *p = question ? question : end;

    while (p < end) {
        const char *stop = parameter_end(++p, end);
        struct pair pair = pair_of((struct slice){p, (size_t)(stop - p)});
        if (pair.value.n && is_identity_parameter(settings, pair.name)) {
            const char *value = (const char *)memchr(p, '=', (size_t)(stop - p)) + 1;
            text_put(out, (struct slice){copied, (size_t)(value - copied)});
            text_literal(out, "***");
            copied = stop;
        }
        p = stop;
    }
    if (copied == target.p)
        return target;
    text_put(out, (struct slice){copied, (size_t)(end - copied)});
    return text_slice(out);
}
