#include "proxy/reply.h"

#include "base/clock.h"
#include "base/json_writer.h"
#include "http/response.h"
#include "http/rewrite.h"
#include "limit/header_families.h"
#include "limit/problem.h"
#include "proxy/granted.h"
#include "proxy/grpc.h"
#include "proxy/rejection.h"

enum {
    /* bytes of a problem document, or of the values inserted into a configured body */
    REPLY_BODY_MAX = 16 * 1024, /* room for BODY_WORDS_MAX escaped ids */
    BODY_PIECES_MAX = 2 * BODY_WORDS_MAX + 1,
    REPLY_LINES_MAX = 16 * 1024 /* bytes of field lines */
};

static_assert(BODY_PIECES_MAX <= (int)DOWNSTREAM_PIECES_MAX, "a configured body is one response");

/* 200: the decision listener admits the request. 204: OPTIONS with Max-Forwards: 0. */
static bool is_success(const struct exchange *x)
{
    return x->record.status < 300;
}

static bool is_limit_rejection(const struct exchange *x)
{
    return x->record.cause == CAUSE_NONE && !is_success(x) &&
           x->decision_request.decision.verdict != VERDICT_FAILED_CLOSED;
}

/* A call of the rate limit service has no rule. */
static const struct rejection_settings *rejection_of(const struct exchange *x)
{
    return x->route.rule ? &x->route.rule->rejection : &x->policy->rejection;
}

/* The response lists the allowed methods: a 405, or the 204 to OPTIONS with Max-Forwards: 0. A
 * rejection never has status 204. */
static bool tells_methods(const struct exchange *x)
{
    return x->record.cause == CAUSE_METHOD_NOT_ALLOWED ||
           (x->record.cause == CAUSE_NONE && x->record.status == 204);
}

/* {"type":"about:blank","title":"Bad Gateway","status":502,"detail":"...","request_id":"..."} */
static void error_document(struct text *out, const struct exchange *x, const char *why)
{
    struct json_writer json = json_writer_over(out);
    bool redis = x->record.cause == CAUSE_NONE;

    json_begin(&json, NULL, '{');
    json_put_text(&json, "type", "about:blank");
    json_put_text(&json, "title", reason_phrase(x->record.status));
    json_put_u64(&json, "status", x->record.status);
    json_begin_string(&json, "detail");
    text_json(out, slice_of(redis ? "the rate limits cannot be checked at the moment"
                                  : cause_table[x->record.cause].text));
    if (why) {
        text_literal(out, ": ");
        text_json(out, slice_of(why));
    }
    json_end_string(&json);
    json_put_slice(&json, "request_id", (struct slice){x->request_id, x->id_size});
    json_end(&json, '}');
    text_char(out, '\n');
}

/* ---- configured body ------------------------------------------------------------------------ */

enum escape { ESCAPE_NONE, ESCAPE_JSON, ESCAPE_XML };

static bool ends_with(struct slice s, struct slice end)
{
    return s.n >= end.n && slice_equal_nocase((struct slice){s.p + s.n - end.n, end.n}, end);
}

/* JSON: types that end in /json or +json. XML: /html, /xml, +xml. Others: no escaping. */
static enum escape escape_of(const char *content_type)
{
    struct slice type = {content_type, strcspn(content_type, "; \t")};

    if (ends_with(type, SLICE("/json")) || ends_with(type, SLICE("+json")))
        return ESCAPE_JSON;
    if (ends_with(type, SLICE("/html")) || ends_with(type, SLICE("/xml")) ||
        ends_with(type, SLICE("+xml")))
        return ESCAPE_XML;
    return ESCAPE_NONE;
}

static void xml_text(struct text *out, struct slice value)
{
    for (size_t i = 0; i < value.n; i++)
        switch (value.p[i]) {
        case '<': text_literal(out, "&lt;"); break;
        case '>': text_literal(out, "&gt;"); break;
        case '&': text_literal(out, "&amp;"); break;
        case '"': text_literal(out, "&quot;"); break;
        case '\'': text_literal(out, "&#39;"); break;
        default: text_char(out, value.p[i]);
        }
}

static void escaped(struct text *out, struct slice value, enum escape escape)
{
    if (escape == ESCAPE_JSON)
        text_json(out, value);
    else if (escape == ESCAPE_XML)
        xml_text(out, value);
    else
        text_put(out, value);
}

static void write_word(struct text *out, const struct exchange *x, enum body_word word,
                       enum escape escape)
{
    const struct decision *d = &x->decision_request.decision;
    int64_t wait = decision_retry_after(d);

    if (word == BODY_LIMIT && d->rejected_by >= 0)
        escaped(out, slice_of(d->results[d->rejected_by].limit->name), escape);
    else if (word == BODY_CLIENT)
        escaped(out, (struct slice){x->identity, x->identity_size}, escape);
    else if (word == BODY_RETRY_AFTER && wait >= 0)
        text_i64(out, wait);
    else if (word == BODY_RETRY_AFTER)
        text_put(out, escape == ESCAPE_JSON ? SLICE("null") : SLICE("never"));
}

/* Collects the pieces of the configured body; the inserted values are written to `scratch`. */
static int own_body(const struct exchange *x, struct text *scratch, struct iovec *pieces)
{
    const struct rejection_settings *own = &x->route.rule->rejection;
    enum escape escape = own->piece_count > 1 ? escape_of(own->content_type) : ESCAPE_NONE;
    int count = 0;

    for (unsigned i = 0; i < own->piece_count; i++) {
        size_t start = scratch->n;
        pieces[count++] = iovec_of(own->pieces[i].text);
        write_word(scratch, x, own->pieces[i].then, escape);
        if (scratch->n > start)
            pieces[count++] = iovec_of((struct slice){scratch->p + start, scratch->n - start});
    }
    return count;
}

struct slice reply_configured_body(const struct exchange *x, struct call_memory *memory)
{
    const struct rejection_settings *own = rejection_of(x);
    size_t size = own->body_size + REPLY_BODY_MAX;
    char *bytes =
        own->body || own->dialect != DIALECT_PROBLEM ? call_memory_get(memory, size) : NULL;
    struct text out = text_over(bytes, bytes ? size : 0);

    if (!bytes)
        return SLICE_NONE;
    if (!own->body)
        dialect_body_write(&out, &x->decision_request.decision, own->dialect);
    for (unsigned i = 0; i < own->piece_count; i++) {
        text_put(&out, own->pieces[i].text);
        write_word(&out, x, own->pieces[i].then, escape_of(own->content_type));
    }
    return out.failed ? SLICE_NONE : text_slice(&out);
}

/* ---- response ------------------------------------------------------------------------------- */

/* Writes the body as at most BODY_PIECES_MAX pieces and sets its type. Returns the number of
 * pieces. */
static int document(const struct exchange *x, const char *why, struct text *scratch,
                    struct slice *type, struct iovec *pieces, struct marks *marks)
{
    *type = SLICE("application/problem+json");
    if (is_limit_rejection(x)) {
        const struct rejection_settings *own = &x->route.rule->rejection;
        *type = slice_of(own->content_type);
        if (own->body)
            return own_body(x, scratch, pieces);
        if (own->dialect == DIALECT_PROBLEM)
            decision_problem_write(scratch, &x->decision_request.decision, x->record.status, marks);
        else {
            *type = SLICE("application/json");
            dialect_body_write(scratch, &x->decision_request.decision, own->dialect);
        }
    } else
        error_document(scratch, x, why);
    pieces[0] = iovec_of(text_slice(scratch));
    return 1;
}

/* Not for a 204, which has neither content nor Content-Length (RFC 9110 section 8.6). */
static void content_fields(struct text *out, struct slice type, size_t content)
{
    if (type.n) {
        text_literal(out, "Content-Type: ");
        text_put(out, type);
        text_literal(out, "\r\n");
    }
    text_literal(out, "Content-Length: ");
    text_u64(out, content);
    text_literal(out, "\r\n");
}

/* Writes the response's field lines. Values that differ between rejections of one rule are marked,
 * or compared in rejection_patch(). */
static void write_lines(struct text *out, struct exchange *x, struct slice type, size_t content,
                        struct marks *marks)
{
    size_t at;

    text_literal(out, "Date: ");
    at = out->n;
    text_put(out, worker_date(x->worker));
    marks_add(marks, out, at, MARK_DATE, 0);
    text_literal(out, "\r\n");
    if (x->grpc)
        grpc_fields_write(out, x);
    else if (x->record.status != 204)
        content_fields(out, type, content);
    if (x->record.cause == CAUSE_NONE && x->record.status != 204)
        text_put(out, rejection_of(x)->header_lines);
    if (is_limit_rejection(x) && x->route.rule->rejection.dialect != DIALECT_PROBLEM)
        dialect_fields_write(out, &x->decision_request.decision);
    if (tells_methods(x)) /* RFC 9110 sections 9.3.7, 15.5.6; weir forwards other methods too */
        text_literal(out, "Allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS\r\n");
    if (x->record.cause == CAUSE_WRONG_METHOD) {
        text_literal(out, "Allow: ");
        text_put(out, x->service->methods);
        text_literal(out, "\r\n");
    }
    if (x->record.cause == CAUSE_INVALID_TOKEN) /* RFC 6750 section 3 */
        text_literal(out, "WWW-Authenticate: Bearer error=\"invalid_token\"\r\n");
    if (x->record.cause == CAUSE_CLIENT_REQUESTS || x->record.cause == CAUSE_QUOTA_UNAVAILABLE)
        text_literal(out, "Retry-After: 1\r\n");
    text_literal(out, "X-Request-Id: ");
    at = out->n;
    text_bytes(out, x->request_id, x->id_size);
    marks_add(marks, out, at, MARK_REQUEST_ID, 0);
    text_literal(out, "\r\n");
    if (x->downstream->origin->decides && is_success(x) && x->route.rule->limit_count) {
        text_literal(out, "X-Weir-Client: ");
        text_bytes(out, x->identity, x->identity_size);
        text_literal(out, "\r\n");
        if (x->policy->has_granted_headers)
            granted_fields_write(out, x);
    }
    decision_fields_write(out, &x->decision_request.decision, x->policy->headers,
                          clock_cached_wall_us(), marks);
}

/* A rejection with the default document and content: the next one of the same rule differs in
 * few bytes. */
static bool may_be_patched(const struct exchange *x)
{
    return is_limit_rejection(x) && x->route.rule && !x->grpc && !x->route.rule->rejection.body &&
           x->route.rule->rejection.dialect == DIALECT_PROBLEM &&
           header_families_patchable(x->policy->headers) && x->request.method != METHOD_HEAD &&
           x->downstream->ops->send_image;
}

static enum downstream_sent send_reply(struct exchange *x, struct slice lines,
                                       const struct iovec *content, int count,
                                       struct response_image *image)
{
    struct downstream *d = x->downstream;
    unsigned status = x->grpc ? 200 : x->record.status;
    struct response response = {.status = (uint16_t)status,
                                .reason = slice_of(reason_phrase(status)),
                                .lines = lines,
                                .body = count ? BODY_LENGTH : BODY_NONE,
                                .own = true,
                                .client_fault =
                                    x->record.cause != CAUSE_NONE && x->record.status < 500,
                                .image = image};

    return d->ops->send_head(d, &response, content, count, true);
}

static struct rejection_facts facts_of(struct exchange *x)
{
    return (struct rejection_facts){.rule = (unsigned)(x->route.rule - x->policy->rules),
                                    .status = x->record.status,
                                    .decision = &x->decision_request.decision,
                                    .date = worker_date(x->worker),
                                    .request_id = {x->request_id, x->id_size}};
}

static struct response_image *image_of(struct exchange *x)
{
    struct rejection_facts facts = facts_of(x);
    return rejection_image(x->generation->rejections, &facts);
}

static enum downstream_sent write_and_send(struct exchange *x, const char *why)
{
    char body_bytes[REPLY_BODY_MAX], line_bytes[REPLY_LINES_MAX];
    struct text body = text_over(body_bytes, sizeof body_bytes),
                lines = text_over(line_bytes, sizeof line_bytes);
    struct iovec pieces[BODY_PIECES_MAX];
    struct marks of_lines, of_document;
    struct slice type;
    size_t content = 0;

    of_lines.count = of_document.count = 0;
    of_lines.too_many = of_document.too_many = false;
    int count = document(x, why, &body, &type, pieces, &of_document);
    for (int i = 0; i < count; i++)
        content += pieces[i].iov_len;
    write_lines(&lines, x, type, content, &of_lines);
    if (x->request.method == METHOD_HEAD) /* fields of a GET, no content (RFC 9110 section 9.3.2) */
        count = 0, content = 0;
    x->record.reply_bytes = content;
    if (lines.failed || body.failed)
        return DOWNSTREAM_TOO_LARGE;
    struct response_image *image = may_be_patched(x) ? image_of(x) : NULL;
    enum downstream_sent sent = send_reply(x, text_slice(&lines), pieces, count, image);
    if (image)
        rejection_keep(x->generation->rejections, (unsigned)(x->route.rule - x->policy->rules),
                       &of_lines, &of_document);
    return sent;
}

/* Sends the last rejection of the rule with this one's values. False: a new one must be written. */
static bool send_patched(struct exchange *x, enum downstream_sent *sent)
{
    struct downstream *d = x->downstream;
    struct rejection_facts facts = facts_of(x);
    const struct response_image *image = rejection_patch(x->generation->rejections, &facts);

    if (!image || !d->ops->send_image(d, image, sent))
        return false;
    x->record.reply_bytes = image->content;
    return true;
}

static enum downstream_sent send_lines_alone(struct exchange *x)
{
    char line_bytes[REPLY_LINES_MAX];
    struct text lines = text_over(line_bytes, sizeof line_bytes);

    write_lines(&lines, x, SLICE_NONE, 0, NULL);
    return lines.failed ? DOWNSTREAM_TOO_LARGE : send_reply(x, text_slice(&lines), NULL, 0, NULL);
}

enum downstream_sent reply_send_document(struct exchange *x, struct slice type,
                                         struct slice content)
{
    char line_bytes[512];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    struct iovec piece = iovec_of(content);

    text_literal(&lines, "Date: ");
    text_put(&lines, worker_date(x->worker));
    text_literal(&lines, "\r\n");
    content_fields(&lines, type, content.n);
    text_literal(&lines, "X-Request-Id: ");
    text_bytes(&lines, x->request_id, x->id_size);
    text_literal(&lines, "\r\n");
    bool head = x->request.method == METHOD_HEAD;
    x->record.reply_bytes = head ? 0 : content.n;
    return send_reply(x, text_slice(&lines), &piece, head ? 0 : 1, NULL);
}

enum downstream_sent reply_send(struct exchange *x, const char *why)
{
    enum downstream_sent sent;

    if (x->policy->rejection.jitter && is_limit_rejection(x))
        decision_spread(&x->decision_request.decision, x->policy->rejection.jitter,
                        worker_random(x->worker));
    if (x->grpc)
        x->record.grpc_status = (int)grpc_status(x);
    if (is_success(x) || x->grpc)
        return send_lines_alone(x);
    if (may_be_patched(x) && send_patched(x, &sent))
        return sent;
    return write_and_send(x, why);
}
