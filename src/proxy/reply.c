#include "proxy/reply.h"

#include "base/clock.h"
#include "http/rewrite.h"

enum { REPLY_BODY_MAX = 4096 };

static bool is_rejection(const struct exchange *x)
{
    return x->cause == CAUSE_NONE && x->ask.decision.verdict != VERDICT_FAILED_CLOSED;
}

/* {"type":"about:blank","title":"Bad Gateway","status":502,"detail":"...","request_id":"..."} */
static void error_document(struct text *out, const struct exchange *x, const char *why)
{
    bool redis = x->cause == CAUSE_NONE;

    text_literal(out, "{\"type\":\"about:blank\",\"title\":\"");
    text_json(out, slice_of(reason_phrase(x->status)));
    text_literal(out, "\",\"status\":");
    text_u64(out, x->status);
    text_literal(out, ",\"detail\":\"");
    text_json(out, slice_of(redis ? "the rate limits cannot be checked now" : cause_text[x->cause]));
    if (why) {
        text_literal(out, ": ");
        text_json(out, slice_of(why));
    }
    text_literal(out, "\",\"request_id\":\"");
    text_json(out, (struct slice){x->request_id, x->id_size});
    text_literal(out, "\"}\n");
}

static struct slice document(const struct exchange *x, const char *why, struct text *scratch,
                             struct slice *type)
{
    const struct rejection_settings *own = &x->policy->rejection;

    *type = SLICE("application/problem+json");
    if (is_rejection(x)) {
        *type = slice_of(own->content_type);
        if (own->body)
            return (struct slice){own->body, own->body_size};
        decision_problem_write(scratch, &x->ask.decision, x->status);
    } else
        error_document(scratch, x, why);
    return text_slice(scratch);
}

static void status_line(struct text *out, unsigned status)
{
    text_literal(out, "HTTP/1.1 ");
    text_u64(out, status);
    text_char(out, ' ');
    text_put(out, slice_of(reason_phrase(status)));
    text_literal(out, "\r\n");
}

static void write_head(struct text *out, struct exchange *x, struct slice type, size_t content)
{
    status_line(out, x->status);
    text_literal(out, "Date: ");
    text_put(out, worker_date(x->worker));
    text_literal(out, "\r\nContent-Type: ");
    text_put(out, type);
    text_literal(out, "\r\nContent-Length: ");
    text_u64(out, content);
    text_literal(out, "\r\nX-Request-Id: ");
    text_bytes(out, x->request_id, x->id_size);
    text_literal(out, "\r\n");
    decision_fields_write(out, &x->ask.decision, x->policy->headers, clock_wall_us());
    if (x->close)
        text_literal(out, "Connection: close\r\n");
    else if (x->minor == 0)
        text_literal(out, "Connection: keep-alive\r\n");
    text_literal(out, "\r\n");
}

enum sent reply_send(struct exchange *x, const char *why)
{
    struct worker *w = x->worker;
    char body_bytes[REPLY_BODY_MAX];
    struct text body = text_over(body_bytes, sizeof body_bytes), head = text_over(w->send, sizeof w->send);
    struct slice type, content = document(x, why, &body, &type);

    write_head(&head, x, type, content.n);
    if (x->method == METHOD_HEAD) /* RFC 9110 section 9.3.2: the fields of a GET, without its content */
        content = SLICE_NONE;
    struct iovec pieces[2] = {iovec_of(text_slice(&head)), iovec_of(content)};
    x->reply_bytes = content.n;
    if (head.failed || body.failed)
        return SENT_FAILED;
    return stream_send(&x->client->stream, &w->buffers, pieces, 2);
}
