#include "policy/original_request.h"

#include "base/text.h"

/* The fields that name the parts of a request; NULL: not used. */
struct part_names {
    const char *method, *target, *host, *scheme, *client;
};

static const struct part_names part_names[] = {
    [REQUEST_FROM_FORWARDED] = {"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host",
                                "X-Forwarded-Proto", "X-Forwarded-For"},
    [REQUEST_FROM_ORIGINAL] = {"X-Original-Method", "X-Original-URI", "Host", NULL, NULL},
    [REQUEST_FROM_REQUEST] = {NULL, NULL, NULL, NULL, NULL},
};

/* Returns the value of the only field with this name. False: there is none or more than one, or it
 * is empty. */
static bool only_value(const struct fields *fields, const char *name, struct slice *value)
{
    const struct field *field = fields_next_named(fields, slice_of(name), NULL);

    if (!field || fields_next_named(fields, slice_of(name), field))
        return false;
    *value = field->value;
    return value->n > 0;
}

/* The target must be the path and query: an absolute target would replace the host. */
static bool has_parts(const struct fields *fields, const struct part_names *names,
                      struct slice *method, struct slice *target, struct slice *host,
                      const char **why)
{
    struct slice scheme;

    *why = "the field with the method is missing, or occurs twice; see decisions.request_from";
    if (!only_value(fields, names->method, method))
        return false;
    *why = "the field with the target is missing, occurs twice or has no path; see "
           "decisions.request_from";
    if (!only_value(fields, names->target, target) || target->p[0] != '/')
        return false;
    *why = "the field with the host is missing, or occurs twice; see decisions.request_from";
    if (!only_value(fields, names->host, host))
        return false;
    *why = "X-Forwarded-Proto is missing, occurs twice, or is neither http nor https";
    if (names->scheme && (!only_value(fields, names->scheme, &scheme) ||
                          !(slice_equal_nocase(scheme, SLICE("http")) ||
                            slice_equal_nocase(scheme, SLICE("https")))))
        return false;
    *why = "X-Forwarded-For is missing";
    return !names->client || fields_next_named(fields, slice_of(names->client), NULL);
}

static bool is_part(const struct part_names *names, struct slice name)
{
    return slice_equal_nocase(name, slice_of(names->method)) ||
           slice_equal_nocase(name, slice_of(names->target)) ||
           slice_equal_nocase(name, slice_of(names->host));
}

/* Fields about the asking connection and content, and fields that name the request's parts. */
static bool is_left_out(const struct part_names *names, const struct field *field)
{
    return field->hop_by_hop || field->id == FIELD_HOST || field->id == FIELD_CONTENT_LENGTH ||
           field->id == FIELD_TRANSFER_ENCODING || field->id == FIELD_CONNECTION ||
           field->id == FIELD_UPGRADE || field->id == FIELD_EXPECT || field->id == FIELD_TE ||
           field->id == FIELD_TRAILER || field->id == FIELD_MAX_FORWARDS ||
           is_part(names, field->name);
}

static void put_field(struct text *out, struct slice name, struct slice value)
{
    text_put(out, name);
    text_literal(out, ": ");
    text_put(out, value);
    text_literal(out, "\r\n");
}

struct request_head *original_request(enum request_from from, struct request_head *asked,
                                      struct original_room *room, const char **why)
{
    const struct part_names *names = &part_names[from];
    struct text out = text_over(room->bytes, sizeof room->bytes);
    struct slice method, target, host;
    struct refusal refusal;
    size_t seen = 0, size;

    asked->max_forwards = -1; /* weir must not answer OPTIONS itself: 204 would mean "allowed" */
    if (from == REQUEST_FROM_REQUEST)
        return asked;
    if (!has_parts(&asked->fields, names, &method, &target, &host, why))
        return NULL;
    text_put(&out, method);
    text_char(&out, ' ');
    text_put(&out, target);
    text_literal(&out, " HTTP/1.1\r\n");
    put_field(&out, SLICE("Host"), host);
    for (const struct field *f = asked->fields.at; f < asked->fields.at + asked->fields.count; f++)
        if (!is_left_out(names, f))
            put_field(&out, f->name, f->value);
    text_literal(&out, "\r\n");
    *why = "the request in the fields is too long";
    if (out.failed)
        return NULL;
    if (request_head_read(text_slice(&out), &seen, &size, &room->head, &refusal) == SCAN_WHOLE &&
        size == out.n)
        return &room->head;
    *why = refusal.why;
    return NULL;
}
