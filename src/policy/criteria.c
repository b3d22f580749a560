#include "policy/criteria.h"

#include "http/path.h"
#include "policy/identity.h"
#include "policy/query.h"

/* --- values of one name --- */

/* The values that servers may read for one name. */
struct values {
    const struct criterion *criterion;
    const char *separator; /* with which servers join repeated values */
    struct text joined;    /* the values that all servers read */
    unsigned certain;      /* their number */
    unsigned uncertain;    /* occurrences of the name that only some servers read */
    bool others;           /* a value has another reading */
    bool some_match, some_differ;
};

static bool matches(const struct criterion *criterion, struct slice value)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (glob_matches(criterion->patterns[i], value))
            return true;
    return false;
}

static void consider(struct values *values, struct slice value)
{
    if (matches(values->criterion, value))
        values->some_match = true;
    else
        values->some_differ = true;
}

static void add_certain(struct values *values, struct slice value)
{
    if (values->certain++)
        text_put(&values->joined, slice_of(values->separator));
    text_put(&values->joined, value);
    consider(values, value);
}

static bool matches_everything(const struct criterion *criterion)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (slice_equal(criterion->patterns[i], SLICE("*")))
            return true;
    return false;
}

static bool has_star(const struct criterion *criterion)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (criterion->patterns[i].n &&
            memchr(criterion->patterns[i].p, '*', criterion->patterns[i].n))
            return true;
    return false;
}

/* Repeated values may also be joined. If servers differ in which values they see, there are too
 * many ways to try: only "*" matches all of them, and only patterns without "*" match none. */
static void consider_joined(struct values *values)
{
    if (values->certain + values->uncertain < 2)
        return;
    if (values->uncertain == 0 && !values->others) {
        consider(values, text_slice(&values->joined));
    } else if (!matches_everything(values->criterion)) {
        values->some_differ = true;
        values->some_match |= has_star(values->criterion);
    }
}

static enum truth truth_of(struct values *values)
{
    consider_joined(values);
    if (!values->some_match)
        return TRUTH_NO;
    return values->some_differ || values->certain == 0 ? TRUTH_MAYBE : TRUTH_YES;
}

static enum truth header_truth(const struct criterion *criterion,
                               const struct criteria_request *request)
{
    struct values values = {criterion, ", ", text_over(request->room, CRITERIA_ROOM), 0, 0, false,
                            false,     false};
    const struct field *field = NULL;

    while ((field = fields_next_named(&request->head->fields, criterion->name, field)))
        if (!field->hop_by_hop)
            add_certain(&values, field->value);
    return truth_of(&values);
}

static enum truth query_truth(const struct criterion *criterion,
                              const struct criteria_request *request)
{
    struct values values = {criterion, ",",  text_over(request->room, CRITERIA_ROOM), 0, 0, false,
                            false,     false};
    struct query_reader reader = query_reader(request->head->query, criterion->name,
                                              request->room + CRITERIA_ROOM, CRITERIA_ROOM);
    struct query_value value;

    if (request->query_doubt)
        return TRUTH_MAYBE;
    while (query_next(&reader, &value)) {
        if (value.reading == QUERY_ALL) {
            add_certain(&values, value.text);
            continue;
        }
        values.uncertain += value.reading == QUERY_SOME;
        values.others |= value.reading == QUERY_OTHERS;
        consider(&values, value.text);
    }
    return truth_of(&values);
}

/* --- client --- */

static bool is_client(const struct client_pattern *pattern, const struct identity *identity)
{
    if (pattern->identity.n)
        return slice_equal(pattern->identity, identity_text(identity));
    return identity->has_ip ? !pattern->unix_peers && ip_range_holds(&pattern->range, &identity->ip)
                            : pattern->unix_peers;
}

static enum truth client_truth(const struct criterion *criterion,
                               const struct criteria_request *request)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (is_client(&criterion->clients[i], request->identity))
            return TRUTH_YES;
    return TRUTH_NO;
}

/* --- scheme --- */

/* Proxies write "wss" and "ws" for WebSockets. */
static struct slice scheme_of(struct slice element)
{
    if (slice_equal_nocase(element, SLICE("https")) || slice_equal_nocase(element, SLICE("wss")))
        return SLICE("https");
    if (slice_equal_nocase(element, SLICE("http")) || slice_equal_nocase(element, SLICE("ws")))
        return SLICE("http");
    return element;
}

/* The field of a trusted peer, as it is forwarded (http/rewrite.c); empty: weir writes its own. */
static struct slice forwarded_proto(const struct fields *fields, bool peer_trusted)
{
    const struct field *field = peer_trusted ? fields_find(fields, FIELD_X_FORWARDED_PROTO) : NULL;
    return field && !fields_repeat(fields, FIELD_X_FORWARDED_PROTO) ? field->value : SLICE_NONE;
}

/* Of several elements, some servers use the first and some the last. */
static enum truth scheme_truth(const struct criterion *criterion,
                               const struct criteria_request *request)
{
    const struct fields *fields = &request->head->fields;
    struct values values = {.criterion = criterion, .separator = ",", .certain = 1};
    struct slice rest = forwarded_proto(fields, request->identity->peer_trusted), element;

    if (rest.n == 0)
        rest = request->https ? SLICE("https") : SLICE("http");
    while (slice_next_element(&rest, &element))
        consider(&values, scheme_of(element));
    return truth_of(&values);
}

enum truth criterion_truth(const struct criterion *criterion,
                           const struct criteria_request *request)
{
    switch (criterion->kind) {
    case CRITERION_HEADER: return header_truth(criterion, request);
    case CRITERION_QUERY: return query_truth(criterion, request);
    case CRITERION_CLIENT: return client_truth(criterion, request);
    case CRITERION_SCHEME: return scheme_truth(criterion, request);
    }
    return TRUTH_MAYBE;
}

/* --- one criterion covers another --- */

static bool same_name(const struct criterion *a, const struct criterion *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind == CRITERION_HEADER ? slice_equal_nocase(a->name, b->name)
                                       : slice_equal(a->name, b->name);
}

static bool client_covers(const struct client_pattern *a, const struct client_pattern *b)
{
    if (a->identity.n || b->identity.n || a->unix_peers || b->unix_peers)
        return a->unix_peers == b->unix_peers && slice_equal(a->identity, b->identity);
    return a->range.bits <= b->range.bits && ip_range_holds(&a->range, &b->range.ip);
}

static bool pattern_covers(const struct criterion *a, unsigned i, const struct criterion *b,
                           unsigned k)
{
    if (a->kind == CRITERION_CLIENT)
        return client_covers(&a->clients[i], &b->clients[k]);
    /* A "*" in `b` can only be matched by one in `a`, which then matches all that it stands for. */
    return glob_matches(a->patterns[i], b->patterns[k]);
}

bool criterion_covers(const struct criterion *a, const struct criterion *b)
{
    if (!same_name(a, b))
        return false;
    for (unsigned k = 0; k < b->count; k++) {
        unsigned i = 0;
        while (i < a->count && !pattern_covers(a, i, b, k))
            i++;
        if (i == a->count)
            return false;
    }
    return true;
}

bool criterion_equal(const struct criterion *a, const struct criterion *b)
{
    bool equal = same_name(a, b) && a->count == b->count;
    for (unsigned i = 0; equal && i < a->count; i++)
        equal = slice_equal(a->patterns[i], b->patterns[i]);
    return equal;
}
