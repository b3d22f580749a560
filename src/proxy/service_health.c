/* service_health.c - the health of weir for callers of the rate limit service: grpc.health.v1, and
 * GET /healthcheck.
 *
 * A Watch stays in SERVICE until its client leaves or weir stops. It belongs to no policy: it moves
 * to the current generation, which would otherwise never be freed. */
#include "proxy/grpc.h"
#include "proxy/reply.h"
#include "proxy/service_internal.h"
#include "proxy/step.h"

bool service_is_ready(const struct worker *w)
{
    return !w->draining && !w->stopping &&
           !atomic_load_explicit(&w->shared->unready, memory_order_relaxed);
}

static enum health_status health_of(const struct worker *w)
{
    return service_is_ready(w) ? HEALTH_SERVING : HEALTH_NOT_SERVING;
}

static bool service_is_known(struct slice service)
{
    return service.n == 0 || slice_equal(service, SLICE("ratelimit")) ||
           slice_equal(service, SLICE("envoy.service.ratelimit.v3.RateLimitService"));
}

/* ---- Check and /healthcheck ------------------------------------------------------------------ */

static const char *read_service(struct exchange *x, struct slice message, bool *known)
{
    struct slice service;

    if (!health_request_read(&x->worker->service.memory, message, &service) ||
        !text_is_utf8(service))
        return "the message is malformed";
    *known = service_is_known(service);
    return NULL;
}

enum step service_check(struct exchange *x, struct slice message)
{
    bool known = false;
    const char *why = read_service(x, message, &known);

    if (why)
        return service_unreadable(x, why);
    return known ? step_reply_with(x, 200) : step_fail(x, CAUSE_UNKNOWN_SERVICE, NULL);
}

/* A frame: the prefix and the message. */
enum { FRAME_MAX = GRPC_PREFIX + 8 };

static struct text frame_of(char bytes[FRAME_MAX], enum health_status status)
{
    struct text frame = text_over(bytes, FRAME_MAX);

    frame.n = GRPC_PREFIX;
    frame.failed = !health_response_write(status, &frame);
    grpc_message_prefix(bytes, frame.n - GRPC_PREFIX);
    return frame;
}

enum downstream_sent service_check_reply(struct exchange *x)
{
    char bytes[FRAME_MAX];
    struct text frame = frame_of(bytes, health_of(x->worker));

    return service_send_message(x, text_slice(&frame), true);
}

enum step service_healthcheck(struct exchange *x, struct slice content)
{
    (void)content;
    return step_reply_with(x, service_is_ready(x->worker) ? 200 : 503);
}

enum downstream_sent service_healthcheck_reply(struct exchange *x)
{
    bool ready = x->record.status == 200;

    return reply_send_document(x, SLICE("text/plain; charset=utf-8"),
                               ready ? SLICE("OK\n") : SLICE("not ready\n"));
}

/* ---- Watch ----------------------------------------------------------------------------------- */

static enum health_status status_for(const struct service_request *s)
{
    return s->names_service ? health_of(s->exchange->worker) : HEALTH_SERVICE_UNKNOWN;
}

static enum step sent(struct exchange *x, enum downstream_sent result)
{
    if (result == DOWNSTREAM_GONE || result == DOWNSTREAM_TOO_LARGE)
        return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    exchange_watch(x, true, false);
    if (exchange_is_answered(x) && !x->downstream->pending)
        return step_end(x, DOWNSTREAM_COMPLETE);
    return STEP_WAIT;
}

static enum step begin_watch(struct exchange *x)
{
    struct service_worker *w = &x->worker->service;
    struct service_request *s = x->service;
    char bytes[FRAME_MAX];

    s->is_public = !service_trusts_peer(x);
    if (w->watch_count == WATCHES_MAX ||
        (s->is_public && w->public_watch_count == PUBLIC_WATCHES_MAX))
        return step_fail(x, CAUSE_TOO_MANY_WATCHES, NULL);
    w->public_watch_count += s->is_public;
    if (w->watch_count++ == 0)
        w->shown_ready = service_is_ready(x->worker);
    TAILQ_INSERT_TAIL(&w->watches, s, watch);
    s->is_watch = true;
    s->shown = status_for(s);
    deadline_cancel(&x->whole); /* timeouts.exchange does not apply, as in a tunnel */
    x->record.status = 200;
    x->response.progress = MESSAGE_CONTENT;
    struct text frame = frame_of(bytes, s->shown);
    return sent(x, service_send_message(x, text_slice(&frame), false));
}

enum step service_watch(struct exchange *x, struct slice message)
{
    const char *why = read_service(x, message, &x->service->names_service);

    return why ? service_unreadable(x, why) : begin_watch(x);
}

/* weir stops: the last message, and the end of the call with UNAVAILABLE. */
static enum step end_watch(struct exchange *x)
{
    struct service_request *s = x->service;
    char bytes[FRAME_MAX];
    struct text frame = frame_of(bytes, status_for(s));
    bool says_it = s->shown == status_for(s);
    struct content_piece piece = {.bytes = bytes,
                                  .size = says_it ? 0 : frame.n,
                                  .last = true,
                                  .trailers = service_trailers(x, GRPC_UNAVAILABLE)};

    enum downstream_sent result = x->downstream->ops->send_body(x->downstream, &piece);
    if (result != DOWNSTREAM_GONE)
        x->response.progress = MESSAGE_END;
    x->record.reply_bytes += piece.size;
    return sent(x, result);
}

static void move_to_current_policy(struct exchange *x)
{
    struct worker *w = x->worker;

    x->generation->exchanges--;
    x->generation = w->now;
    x->generation->exchanges++;
    x->policy = w->policy;
}

enum step service_watch_go_on(struct exchange *x)
{
    struct service_request *s = x->service;
    char bytes[FRAME_MAX];

    if (x->generation != x->worker->now)
        move_to_current_policy(x);
    if (x->downstream->pending) {
        exchange_watch(x, exchange_has(x, EVENT_CLIENT_WRITABLE), false);
        return STEP_WAIT;
    }
    if (exchange_is_answered(x))
        return step_end(x, DOWNSTREAM_COMPLETE);
    if (x->worker->stopping)
        return end_watch(x);
    if (s->shown == status_for(s))
        return STEP_WAIT;
    s->shown = status_for(s);
    struct text frame = frame_of(bytes, s->shown);
    struct content_piece piece = {.bytes = bytes, .size = frame.n};
    x->record.reply_bytes += frame.n;
    return sent(x, x->downstream->ops->send_body(x->downstream, &piece));
}

void service_watch_end(struct service_request *s)
{
    struct service_worker *w = &s->exchange->worker->service;

    if (!s->is_watch)
        return;
    TAILQ_REMOVE(&w->watches, s, watch);
    w->watch_count--;
    w->public_watch_count -= s->is_public;
}
