#include "policy/criteria.h"

#include "http/parse.h"
#include "http/path.h"
#include "policy/identity.h"

/* --- values of one name --- */

/* The values that servers may read for one name. */
struct values {
    const struct criterion *criterion;
    size_t *steps;
    struct slice joined; /* the values that all servers read, if there are several */
    unsigned certain;    /* their number */
    unsigned uncertain;  /* occurrences of the name that only some servers read */
    bool others;         /* a value has another reading */
    bool some_match, some_differ;
};

static bool matches(const struct criterion *criterion, struct slice value, size_t *steps)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (glob_matches(criterion->patterns[i], value, steps))
            return true;
    return false;
}

static void consider(struct values *values, struct slice value)
{
    if (matches(values->criterion, value, values->steps))
        values->some_match = true;
    else
        values->some_differ = true;
}

static bool matches_everything(const struct criterion *criterion)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (slice_equal(criterion->patterns[i], SLICE("*")))
            return true;
    return false;
}

bool criterion_has_star(const struct criterion *criterion)
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
        consider(values, values->joined);
    } else if (!matches_everything(values->criterion)) {
        values->some_differ = true;
        values->some_match |= criterion_has_star(values->criterion);
    }
}

static enum truth truth_of(struct values *values)
{
    consider_joined(values);
    if (!values->some_match)
        return TRUTH_NO;
    return values->some_differ || values->certain == 0 ? TRUTH_MAYBE : TRUTH_YES;
}

static const char *text_fault(struct slice value)
{
    return slice_has_control_bytes(value) ? "contains control bytes" : NULL;
}

/* --- header --- */

static const char *header_fault(struct slice name)
{
    if (!slice_is_token(name) || name.n > 128)
        return "is not a header name";
    switch (field_id_of(name)) {
    case FIELD_HOST: return "is matched by host";
    case FIELD_X_FORWARDED_PROTO: return "is matched by scheme";
    case FIELD_X_FORWARDED_FOR:
    case FIELD_PROXY_CLAIM:
    case FIELD_FORWARDED:
        return "is a proxy's, and anyone can send it; for addresses use client: ip:...";
    case FIELD_OTHER:
    case FIELD_CONTENT_TYPE:
    case FIELD_METHOD_OVERRIDE:
    case FIELD_REFERER:
    case FIELD_USER_AGENT:
    case FIELD_X_CLIENT_ID: return NULL;
    default: return "is set, changed or dropped by weir, so rules cannot match on it";
    }
}

static enum truth header_truth(const struct criterion *criterion,
                               const struct criteria_request *request)
{
    struct values values = {.criterion = criterion, .steps = request->steps};
    struct text joined = text_over(request->room, CRITERIA_ROOM);
    struct slice last = SLICE_NONE;
    const struct field *field = NULL;

    while ((field = fields_next_named(&request->facts->head->fields, criterion->name, field))) {
        if (field->hop_by_hop)
            continue;
        if (values.certain++) {
            text_put(&joined, last);
            text_literal(&joined, ", ");
        }
        last = field->value;
        consider(&values, last);
    }
    if (values.certain > 1) {
        text_put(&joined, last);
        *request->steps += joined.n;
        values.joined = text_slice(&joined);
    }
    return truth_of(&values);
}

/* --- query --- */

/* Characters that servers decode or split names at are excluded, so that names are compared
 * alike. */
static const char *parameter_fault(struct slice name)
{
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] <= ' ' || name.p[i] > '~' || strchr("%&+;=#\"<>", name.p[i]))
            return "is not a parameter name; use printable ASCII without %, &, +, ; and =";
    return name.n == 0 || name.n > 128 ? "is not a parameter name; use 1 to 128 bytes" : NULL;
}

static void consider_query(struct values *values, const struct query_value *value)
{
    values->certain += value->reading == QUERY_ALL;
    values->uncertain += value->reading == QUERY_SOME;
    values->others |= value->reading == QUERY_OTHERS;
    consider(values, value->text);
}

/* For more values than are kept: considers each as it is read, and joins those of all servers. The
 * room holds these and one more. */
static void read_query(struct values *values, struct slice query, char *room)
{
    struct query_reader reader = query_reader(query, values->criterion->name, room);
    struct query_value value;

    while (query_next(&reader, &value)) {
        consider_query(values, &value);
        if (value.reading == QUERY_ALL) {
            reader.room += value.text.n;
            *reader.room++ = ',';
        }
    }
    values->joined = (struct slice){room, (size_t)(reader.room - room) - (values->certain > 0)};
}

static enum truth query_truth(const struct criterion *criterion,
                              const struct criteria_request *request)
{
    struct values values = {.criterion = criterion, .steps = request->steps};
    struct slice query = request->facts->head->query;

    if (request->query_doubt || *request->steps > MATCH_STEPS_MAX)
        return TRUTH_MAYBE;
    const struct query_parameter *kept =
        query_parameter(request->query, query, criterion->name, request->steps);
    if (!kept) {
        read_query(&values, query, request->room);
        return truth_of(&values);
    }
    *request->steps += kept->count;
    for (unsigned i = 0; i < kept->count; i++)
        consider_query(&values, &kept->values[i]);
    values.joined = kept->joined;
    return truth_of(&values);
}

/* --- json --- */

static const char *json_fault(struct slice name)
{
    struct json_path path;

    return json_path_parse(name, &path) ? "is not a path: names joined by dots, such as a.b or "
                                          "a.\"b c\""
                                        : NULL;
}

struct slice criterion_json_pattern(struct slice pattern, bool *typed)
{
    bool marked = pattern.n > 1 && pattern.p[0] == '=';

    *typed = marked && pattern.p[1] != '=';
    return marked ? (struct slice){pattern.p + 1, pattern.n - 1} : pattern;
}

/* A pattern with "*" is for texts; "*" alone is for any value. */
static bool json_pattern_matches(struct slice pattern, struct slice value, size_t *steps)
{
    bool typed;

    (void)criterion_json_pattern(value, &typed);
    return slice_equal(pattern, SLICE("*")) ||
           (typed ? slice_equal(pattern, value) : glob_matches(pattern, value, steps));
}

static bool json_matches(const struct criterion *criterion, struct slice value, size_t *steps)
{
    for (unsigned i = 0; i < criterion->count; i++)
        if (json_pattern_matches(criterion->patterns[i], value, steps))
            return true;
    return false;
}

/* Only the beginning of a value is known, which is longer than any pattern. Patterns without "*"
 * do not match it, and those that end with their only "*" are compared with the beginning. */
static enum truth cut_json_truth(const struct criterion *criterion, struct slice start,
                                 size_t *steps)
{
    enum truth truth = TRUTH_NO;

    for (unsigned i = 0; i < criterion->count; i++) {
        struct slice pattern = criterion->patterns[i];
        const char *star = pattern.n ? memchr(pattern.p, '*', pattern.n) : NULL;
        if (!star)
            continue;
        if (star < pattern.p + pattern.n - 1)
            truth = TRUTH_MAYBE;
        else if (glob_matches(pattern, start, steps))
            return TRUTH_YES;
    }
    return truth;
}

static enum truth json_truth(const struct criterion *criterion,
                             const struct criteria_request *request)
{
    const struct content_facts *content = request->facts->content;

    if (!content || content->state == CONTENT_ABSENT)
        return TRUTH_NO;
    if (content->state != CONTENT_VALUES || json_values_ambiguous(content->values, criterion->path))
        return TRUTH_MAYBE;
    struct slice value = json_values_text(content->values, criterion->path);
    if (json_values_cut(content->values, criterion->path))
        return cut_json_truth(criterion, value, request->steps);
    return value.p && json_matches(criterion, value, request->steps) ? TRUTH_YES : TRUTH_NO;
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
        if (is_client(&criterion->clients[i], request->facts->identity))
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
    const struct fields *fields = &request->facts->head->fields;
    struct values values = {.criterion = criterion, .steps = request->steps, .certain = 1};
    struct slice rest = forwarded_proto(fields, request->facts->identity->peer_trusted), element;

    if (rest.n == 0)
        rest = request->facts->https ? SLICE("https") : SLICE("http");
    while (slice_next_element(&rest, &element))
        consider(&values, scheme_of(element));
    return truth_of(&values);
}

static const char *scheme_fault(struct slice value)
{
    bool good = slice_equal(value, SLICE("http")) || slice_equal(value, SLICE("https"));
    return good ? NULL : "is unknown; expected http or https";
}

/* --- all kinds --- */

static const struct criterion_kind kinds[] = {
    {.key = "header",
     .map = "a map of headers and values, such as { X-Plan: gold }",
     .value = "a value such as gold or gold-*",
     .names_ignore_case = true,
     .is_chosen = true,
     .name_fault = header_fault,
     .value_fault = text_fault,
     .truth = header_truth},
    {.key = "query",
     .map = "a map of parameters and values, such as { format: csv }",
     .value = "a value such as gold or gold-*",
     .is_chosen = true,
     .is_logged = true,
     .name_fault = parameter_fault,
     .value_fault = text_fault,
     .truth = query_truth},
    {.key = "json",
     .map = "a map of paths and values, such as { model: \"gpt-4*\" }",
     .value = "a value such as gold or gold-*",
     .is_chosen = true,
     .is_json = true,
     .name_fault = json_fault,
     .value_fault = text_fault,
     .truth = json_truth},
    {.key = "client",
     .value = "a client such as partner or \"ip:10.0.0.0/8\"",
     .is_client = true,
     .is_logged = true,
     .truth = client_truth},
    {.key = "scheme", .value = "http or https", .value_fault = scheme_fault, .truth = scheme_truth},
};

_Static_assert(COUNT_OF(kinds) * CRITERION_NAMES_MAX <= CRITERIA_PER_RULE_MAX,
               "a rule has room for all criteria");

const struct criterion_kind *criterion_kind(const char *key)
{
    for (size_t i = 0; i < COUNT_OF(kinds); i++)
        if (strcmp(kinds[i].key, key) == 0)
            return &kinds[i];
    return NULL;
}

/* --- one criterion covers another --- */

static bool same_name(const struct criterion *a, const struct criterion *b)
{
    if (a->kind != b->kind)
        return false;
    return a->kind->names_ignore_case ? slice_equal_nocase(a->name, b->name)
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
    if (a->kind->is_client)
        return client_covers(&a->clients[i], &b->clients[k]);
    struct slice pattern = a->patterns[i], other = b->patterns[k];
    size_t steps = 0;
    if (a->kind->is_json && slice_equal(other, SLICE("*"))) /* also integers and booleans */
        return slice_equal(pattern, other);
    /* A "*" in `b` can only be matched by one in `a`, which then matches all that it stands for. */
    return a->kind->is_json ? json_pattern_matches(pattern, other, &steps)
                            : glob_matches(pattern, other, &steps);
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
