#include "policy/original_request.h"

#include "http/parse.h"

enum part { PART_METHOD, PART_TARGET, PART_HOST, PART_COUNT, PART_NONE = PART_COUNT };

struct url_parts {
    const struct field *field[PART_COUNT]; /* NULL: missing */
    struct slice value[PART_COUNT];        /* empty: missing, or in several fields */
};

/* The fields with the parts of a request. */
struct part_fields {
    struct slice method, target;
    enum field_id host;
    bool scheme_and_client; /* X-Forwarded-Proto and X-Forwarded-For are required */
};

static const struct part_fields part_fields[] = {
    [REQUEST_FROM_FORWARDED] = {SLICE("X-Forwarded-Method"), SLICE("X-Forwarded-Uri"),
                                FIELD_X_FORWARDED_HOST, true},
    [REQUEST_FROM_ORIGINAL] = {SLICE("X-Original-Method"), SLICE("X-Original-URI"), FIELD_HOST,
                               false},
};

/* The fields with method and target share an id with other fields that proxies set. */
static enum part field_part(const struct part_fields *names, const struct field *field)
{
    if (field->id == names->host)
        return PART_HOST;
    if (field->id != FIELD_PROXY_CLAIM)
        return PART_NONE;
    if (field->name.n == names->method.n && slice_equal_nocase(field->name, names->method))
        return PART_METHOD;
    return field->name.n == names->target.n && slice_equal_nocase(field->name, names->target)
               ? PART_TARGET
               : PART_NONE;
}

static struct url_parts find_parts(const struct part_fields *names, const struct fields *fields)
{
    struct url_parts parts = {.field = {NULL}};

    for (const struct field *f = fields->at; f < fields->at + fields->count; f++) {
        enum part part = field_part(names, f);
        if (part == PART_NONE)
            continue;
        parts.value[part] = parts.field[part] ? SLICE_NONE : f->value;
        parts.field[part] = f;
    }
    return parts;
}

/* Returns whether the only X-Forwarded-Proto is http or https. */
static bool has_scheme(const struct fields *fields)
{
    const struct field *field = fields_find(fields, FIELD_X_FORWARDED_PROTO);

    return field && !fields_repeat(fields, FIELD_X_FORWARDED_PROTO) &&
           (slice_equal_nocase(field->value, SLICE("http")) ||
            slice_equal_nocase(field->value, SLICE("https")));
}

/* Returns which part is missing, occurs twice or is malformed; NULL: none. The target is a path
 * with a query: an absolute target would replace the host. */
static const char *original_fault(const struct part_fields *names, const struct url_parts *parts,
                                  enum method known, const struct fields *fields)
{
    struct slice method = parts->value[PART_METHOD], target = parts->value[PART_TARGET],
                 host = parts->value[PART_HOST];

    if (!method.n)
        return "the field with the method is missing, or occurs twice; see decisions.request_from";
    if (!slice_is_token(method) || known == METHOD_CONNECT)
        return "the field with the method is malformed, or names CONNECT";
    if (!target.n || target.p[0] != '/')
        return "the field with the target is missing, occurs twice or has no path; see "
               "decisions.request_from";
    if (!host.n)
        return "the field with the host is missing, or occurs twice; see decisions.request_from";
    if (!authority_is_valid(host))
        return "the field with the host is malformed";
    if (names->scheme_and_client && !has_scheme(fields))
        return "X-Forwarded-Proto is missing, occurs twice, or is neither http nor https";
    if (names->scheme_and_client && !fields_have(fields, FIELD_X_FORWARDED_FOR))
        return "X-Forwarded-For is missing";
    return NULL;
}

/* Fields about the connection and the content of the other proxy's request. */
static bool is_of_connection(const struct field *field)
{
    const uint64_t ids = FIELD_BIT(FIELD_CONNECTION) | FIELD_BIT(FIELD_CONTENT_LENGTH) |
                         FIELD_BIT(FIELD_EXPECT) | FIELD_BIT(FIELD_MAX_FORWARDS) |
                         FIELD_BIT(FIELD_TE) | FIELD_BIT(FIELD_TRAILER) |
                         FIELD_BIT(FIELD_TRANSFER_ENCODING) | FIELD_BIT(FIELD_UPGRADE);

    return field->hop_by_hop || (ids >> field->id & 1);
}

static void keep_fields_of_client(const struct url_parts *parts, struct fields *fields)
{
    struct field *to = fields->at;
    const struct field *method = parts->field[PART_METHOD], *target = parts->field[PART_TARGET],
                       *host = parts->field[PART_HOST];
    struct slice host_value = parts->value[PART_HOST];

    fields->present = fields->repeated = 0;
    for (struct field *f = fields->at; f < fields->at + fields->count; f++) {
        if (f->id == FIELD_HOST)
            f->value = host_value;
        else if (is_of_connection(f) || f == method || f == target || f == host)
            continue;
        fields->repeated |= fields->present & FIELD_BIT(f->id);
        fields->present |= FIELD_BIT(f->id);
        *to++ = *f;
    }
    fields->count = (unsigned)(to - fields->at);
}

bool original_request(enum request_from from, struct request_head *head, const char **why)
{
    const struct part_fields *names = &part_fields[from];
    struct refusal refusal;

    head->max_forwards = -1; /* weir must not answer OPTIONS itself: 204 would mean "allowed" */
    if (from == REQUEST_FROM_REQUEST)
        return true;
    struct url_parts parts = find_parts(names, &head->fields);
    enum method method = method_of(parts.value[PART_METHOD]);
    if ((*why = original_fault(names, &parts, method, &head->fields)))
        return false;
    head->method_text = parts.value[PART_METHOD];
    head->method = method;
    head->target = parts.value[PART_TARGET];
    bool good = target_parse(head, &refusal);
    head->host = parts.value[PART_HOST];
    if (!good) {
        *why = refusal.why;
        return false;
    }
    keep_fields_of_client(&parts, &head->fields);
    return true;
}
