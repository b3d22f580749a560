/* explain_fields.c - the differences between the request as received and as forwarded. */
#include "explain/explainer.h"

/* One field of a header, and whether the other header has the same. */
struct compared {
    const struct fields *fields;
    bool *same;
};

static bool is_same(const struct field *a, const struct field *b)
{
    return slice_equal_nocase(a->name, b->name) && slice_equal(a->value, b->value);
}

/* Pairs equal fields of both, each once. */
static void pair(struct compared *a, struct compared *b)
{
    for (unsigned i = 0; i < a->fields->count; i++)
        for (unsigned k = 0; k < b->fields->count && !a->same[i]; k++)
            if (!b->same[k] && is_same(&a->fields->at[i], &b->fields->at[k]))
                a->same[i] = b->same[k] = true;
}

static const char twin_reason[] =
    "servers may take its name for that of a field which weir reads or sends";

/* Returns why a field of the request is not forwarded; NULL: another one replaces it. */
static const char *why_removed(const struct explainer *m, unsigned i,
                               const struct fields *forwarded)
{
    const struct field *field = &m->received.fields.at[i];
    uint64_t replaced = FIELD_BIT(FIELD_X_FORWARDED_FOR) | FIELD_BIT(FIELD_X_FORWARDED_HOST) |
                        FIELD_BIT(FIELD_X_FORWARDED_PROTO) | FIELD_BIT(FIELD_FORWARDED) |
                        FIELD_BIT(FIELD_PROXY_CLAIM);

    if (fields_next_named(forwarded, field->name, NULL))
        return NULL;
    if (field->id == FIELD_NEVER_FORWARDED)
        return "never forwarded";
    if (field->id == FIELD_X_WEIR_CLIENT)
        return "only weir sends this";
    if (name_is_twin_of_known(field->name))
        return twin_reason;
    if (field->hop_by_hop)
        return "for one connection only";
    if (m->sorted.fields.at[i].hop_by_hop)
        return m->identity.headers_trusted
                   ? twin_reason
                   : "not accepted: the peer is not in identity.trusted_proxies";
    if (replaced >> field->id & 1)
        return "not accepted: the peer is not in identity.trusted_proxies";
    return "weir writes it where it is needed";
}

static void note_removed(struct explainer *m, const struct compared *received,
                         const struct fields *forwarded)
{
    struct changed_field *removed =
        arena_zeroed(&m->arena, received->fields->count + 1, sizeof *removed);

    m->now.removed = removed;
    for (unsigned i = 0; i < received->fields->count; i++) {
        const struct field *field = &received->fields->at[i];
        if (!received->same[i])
            removed[m->now.removed_count++] = (struct changed_field){
                .name = field->name, .value = field->value, .why = why_removed(m, i, forwarded)};
    }
}

/* Each weir has its own name in Via. An id that the request does not bring is new. */
static bool is_generated(const struct explainer *m, const struct field *field)
{
    const struct field *given = fields_find(&m->received.fields, FIELD_X_REQUEST_ID);

    if (field->id == FIELD_VIA)
        return true;
    return field->id == FIELD_X_REQUEST_ID && !(given && slice_equal(given->value, field->value));
}

static void note_added(struct explainer *m, const struct compared *forwarded)
{
    struct changed_field *added =
        arena_zeroed(&m->arena, forwarded->fields->count + 1, sizeof *added);

    m->now.added = added;
    for (unsigned i = 0; i < forwarded->fields->count; i++) {
        const struct field *field = &forwarded->fields->at[i];
        if (!forwarded->same[i])
            added[m->now.added_count++] =
                (struct changed_field){.name = field->name,
                                       .value = slice_trim_ows(field->value),
                                       .generated = is_generated(m, field)};
    }
}

void explain_fields(struct explainer *m, struct exchange *x)
{
    struct slice whole = iobuf_slice(x->request.head);
    struct request_head *head = arena_zeroed(&m->arena, 1, sizeof *head);
    struct refusal refusal;

    if (!request_head_parse_forwarded(whole, head, &refusal))
        return; /* weir's own heads are valid */
    struct compared received = {&m->received.fields,
                                arena_zeroed(&m->arena, HEAD_FIELDS_MAX + 1, 1)};
    struct compared forwarded = {&head->fields, arena_zeroed(&m->arena, RESPONSE_FIELDS_MAX, 1)};
    pair(&received, &forwarded);
    note_removed(m, &received, &head->fields);
    note_added(m, &forwarded);
    const char *end = memchr(whole.p, '\r', whole.n);
    m->now.request_line = (struct slice){whole.p, (size_t)(end - whole.p)};
    m->now.usage_is_added = x->cost.usage_added;
}
