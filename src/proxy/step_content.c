/* step_content.c - CONTENT: reads the content of a request before its decision, if a rule matches
 * on it, or if costs or keys of its limits are in it. The content stays in memory, within a bound,
 * until a server takes it. */
#include "base/clock.h"
#include "proxy/relay.h"
#include "proxy/relay_halves.h"
#include "proxy/waiting_request.h"

/* A client that waits for 100 (Continue) would never send its content (RFC 9110 section 10.1.1). */
static bool answer_expectation(struct exchange *x)
{
    static const struct fields none = {.count = 0};
    struct response response = {.status = 100, .reason = SLICE("Continue"), .fields = &none};
    enum downstream_sent sent = x->downstream->ops->send_interim(x->downstream, &response);

    x->request.continuation = CONTINUE_SENT;
    return sent != DOWNSTREAM_GONE && sent != DOWNSTREAM_TOO_LARGE;
}

enum step content_begin(struct exchange *x)
{
    if (x->request.continuation == CONTINUE_EXPECTED && !answer_expectation(x))
        return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    x->request.mark.since_us = clock_cached_us();
    deadline_arm(&x->worker->queue.content, &x->client_deadline, x->request.mark.since_us,
                 x->policy->timeouts.request_body_us);
    x->downstream->ops->want_body(x->downstream, true);
    return STEP_WAIT;
}

static enum step begin_waiting(struct exchange *x)
{
    if (!waiting_request_keep(x))
        return step_fail(x, CAUSE_NO_MEMORY, NULL);
    return content_begin(x);
}

static void stop_inspecting(struct exchange *x)
{
    deadline_cancel(&x->client_deadline);
    x->downstream->ops->want_body(x->downstream, false);
    x->request.mark.since_us = 0;
    x->request.extended = false;
}

static enum step content_is_known(struct exchange *x)
{
    waiting_request_restore(x);
    x->worker->incoming.head->expects_continue = x->request.continuation == CONTINUE_EXPECTED;
    x->request.inspection = INSPECTION_DONE;
    return step_enter(x, x->route.rule ? PHASE_LIMIT : PHASE_ROUTE);
}

enum step content_read(struct exchange *x, size_t most)
{
    const char *why = NULL;
    uint64_t now = clock_cached_us();

    switch (relay_keep_request(x, most, &why)) {
    case RELAY_SOURCE: break;
    case RELAY_ENDED: stop_inspecting(x); return STEP_NEXT;
    case RELAY_BAD: return step_fail(x, CAUSE_BAD_CONTENT, why);
    case RELAY_TOO_LARGE: return step_fail(x, CAUSE_CONTENT_TOO_LARGE, NULL);
    case RELAY_NO_MEMORY: return step_fail(x, CAUSE_NO_MEMORY, NULL);
    case RELAY_SINK:
    case RELAY_GONE:
    case RELAY_CLOSED: return step_fail(x, CAUSE_CLIENT_GONE, NULL);
    }
    if (!request_keeps_rate(x, now))
        return step_fail(x, CAUSE_CONTENT_TIMEOUT, "slower than timeouts.body_min_rate");
    deadline_arm(&x->worker->queue.content, &x->client_deadline, now,
                 x->policy->timeouts.request_body_us);
    x->downstream->ops->want_body(x->downstream, true);
    return STEP_WAIT;
}

static enum step read_inspected(struct exchange *x)
{
    enum step step = content_read(x, x->policy->size_limits.inspected_content);

    return step == STEP_NEXT ? content_is_known(x) : step;
}

enum step step_content(struct exchange *x)
{
    if (exchange_has(x, EVENT_ENTERED))
        return begin_waiting(x);
    if (exchange_has(x, EVENT_CLIENT_READABLE | EVENT_CLIENT_CUT_SHORT))
        return read_inspected(x);
    return exchange_has(x, EVENT_CONTENT_LATE) ? request_late(x) : STEP_WAIT;
}
