#include "proxy/grpc.h"

#include "limit/decision.h"
#include "policy/limit.h"

/* ---- calls ----------------------------------------------------------------------------------- */

bool grpc_is_call(const struct exchange *x, const struct request_head *head)
{
    static const struct slice prefix = SLICE("application/grpc");
    const struct field *field = fields_find(&head->fields, FIELD_CONTENT_TYPE);
    struct slice type = field ? field->value : SLICE_NONE;

    return x->downstream->origin->version != HTTP_VERSION_1 && !x->downstream->origin->decides &&
           head->method == METHOD_POST && slice_starts_with_nocase(type, prefix) &&
           (type.n == prefix.n || type.p[prefix.n] == '+' || type.p[prefix.n] == ';');
}

bool grpc_is_protobuf(const struct request_head *head)
{
    struct slice type = fields_find(&head->fields, FIELD_CONTENT_TYPE)->value;
    const char *end = memchr(type.p, ';', type.n);

    type.n = end ? (size_t)(end - type.p) : type.n;
    type = slice_trim_ows(type);
    return slice_equal_nocase(type, SLICE("application/grpc")) ||
           slice_equal_nocase(type, SLICE("application/grpc+proto"));
}

/* TimeoutValue TimeoutUnit: at most 8 digits, and a unit. */
uint64_t grpc_timeout(const struct request_head *head)
{
    static const struct {
        char unit;
        uint32_t us, per;
    } units[] = {{'H', 3600000000, 1}, {'M', 60000000, 1}, {'S', 1000000, 1},
                 {'m', 1000, 1},       {'u', 1, 1},        {'n', 1, 1000}};
    const struct field *field = fields_next_named(&head->fields, SLICE("grpc-timeout"), NULL);
    struct slice value = field ? field->value : SLICE_NONE;
    uint64_t count;

    if (value.n < 2 || value.n > 9 ||
        !slice_to_u64((struct slice){value.p, value.n - 1}, UINT64_MAX, &count))
        return 0;
    for (size_t i = 0; i < COUNT_OF(units); i++)
        if (value.p[value.n - 1] == units[i].unit)
            return count * units[i].us / units[i].per + 1;
    return 0;
}

/* ---- responses ------------------------------------------------------------------------------- */

static bool is_limited(const struct exchange *x)
{
    return x->record.cause == CAUSE_NONE &&
           x->decision_request.decision.verdict != VERDICT_FAILED_CLOSED;
}

/* As clients map HTTP statuses (doc/http-grpc-status-mapping.md), except where weir knows more. */
enum grpc_code grpc_status(const struct exchange *x)
{
    if (x->record.cause == CAUSE_BAD_CALL)
        return GRPC_INVALID_ARGUMENT;
    if (x->record.cause == CAUSE_UNKNOWN_SERVICE)
        return GRPC_NOT_FOUND;
    switch (x->record.status) {
    case 400: return GRPC_INTERNAL;
    case 401: return GRPC_UNAUTHENTICATED;
    case 403: return GRPC_PERMISSION_DENIED;
    case 404:
    case 405:
    case 501: return GRPC_UNIMPLEMENTED;
    case 408:
    case 504: return GRPC_DEADLINE_EXCEEDED;
    case 413:
    case 429:
    case 431: return GRPC_RESOURCE_EXHAUSTED;
    default: break;
    }
    if (is_limited(x))
        return GRPC_RESOURCE_EXHAUSTED;
    return x->record.status >= 500 ? GRPC_UNAVAILABLE : GRPC_UNKNOWN;
}

/* Percent-encodes everything but printable ASCII, and "%". */
static void message_put(struct text *out, struct slice message)
{
    for (size_t i = 0; i < message.n; i++) {
        unsigned char c = (unsigned char)message.p[i];
        if (c >= ' ' && c <= '~' && c != '%')
            text_char(out, (char)c);
        else
            text_percent(out, c);
    }
}

static void message_write(struct text *out, const struct exchange *x)
{
    const struct decision *d = &x->decision_request.decision;

    text_literal(out, "grpc-message: ");
    if (is_limited(x)) {
        text_literal(out, "rate limit exceeded");
        if (d->rejected_by >= 0) {
            text_literal(out, ": ");
            message_put(out, slice_of(d->results[d->rejected_by].limit->name));
        }
    } else if (x->record.cause == CAUSE_NONE)
        text_literal(out, "the rate limits cannot be checked at the moment");
    else {
        message_put(out, slice_of(cause_table[x->record.cause].text));
        if (x->record.why) {
            text_literal(out, ": ");
            message_put(out, slice_of(x->record.why));
        }
    }
    text_literal(out, "\r\n");
}

void grpc_fields_write(struct text *out, const struct exchange *x)
{
    int64_t wait = decision_retry_after(&x->decision_request.decision);

    text_literal(out, "Content-Type: application/grpc\r\ngrpc-status: ");
    text_u64(out, grpc_status(x));
    text_literal(out, "\r\n");
    message_write(out, x);
    if (!is_limited(x))
        return;
    text_literal(out, "grpc-retry-pushback-ms: ");
    text_i64(out, wait < 0 ? -1 : wait > INT32_MAX / 1000 ? INT32_MAX : wait * 1000);
    text_literal(out, "\r\n");
}
