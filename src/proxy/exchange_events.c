/* exchange_events.c - everything that happens to an exchange from outside: calls of the client's
 * protocol, and callbacks of the link, the limiter, the quota client and deadlines. They note what
 * happened and wake the exchange (exchange.c). */
#include <limits.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "http/parse.h"
#include "proxy/access_log.h"
#include "proxy/exchange.h"
#include "proxy/grpc.h"
#include "proxy/send_deadline.h"
#include "proxy/service_listener.h"
#include "proxy/step.h"

enum { DECISIONS_AT_ONCE = 32 };

static void on_decided(struct decision_request *decision_request);
static void on_quota(struct quota_wait *wait);
static const struct link_owner_ops link_ops;

/* Notes the event and runs the exchange. It may have ended when this returns. */
static void note_event(struct exchange *x, unsigned event)
{
    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->noted |= event;
    exchange_wake(x);
}

static void note_failure(struct exchange *x, unsigned event, enum cause cause, const char *why)
{
    x->failure.cause = cause;
    x->failure.why = why;
    note_event(x, event);
}

/* ---- creation -------------------------------------------------------------------------------- */

static struct exchange *exchange_malloc(struct worker *w)
{
    struct exchange *x = malloc(sizeof *x);

    if (x)
        memory_take(&w->buffers.memory, sizeof *x);
    return x;
}

static struct exchange *exchange_new(struct downstream *downstream)
{
    struct worker *w = downstream->worker;
    struct exchange *x = free_list_take(&w->free_exchanges);

    if (!x && !(x = exchange_malloc(w)))
        return NULL;
    memset(x, 0, offsetof(struct exchange, decision_request));
    x->decision_request.decided = on_decided;
    x->quota.completed = on_quota;
    x->decision_request.op = x->decision_request.charge = NULL;
    x->decision_request.held_count = 0;
    x->quota.request = NULL;
    x->quota.deadline.queue = NULL;
    x->decision_request.wants_charge = true;
    x->decision_request.decision.verdict = VERDICT_UNLIMITED;
    x->decision_request.decision.result_count = 0;
    x->decision_request.decision.rejected_by = -1;
    MAGIC_SET(x, EXCHANGE_MAGIC);
    x->worker = w;
    x->downstream = downstream;
    x->upstream.owner.ops = &link_ops;
    x->generation = w->now;
    x->generation->exchanges++;
    x->policy = w->policy;
    x->record.started_us = clock_cached_us();
    if (x->policy->timeouts.exchange_us)
        deadline_arm(&w->queue.exchange, &x->whole, x->record.started_us,
                     x->policy->timeouts.exchange_us);
    downstream->exchange = x;
    counter_add(&w->stats.requests_active, 1);
    return x;
}

static bool is_plain_id(struct slice id)
{
    for (size_t i = 0; i < id.n; i++)
        if (id.p[i] <= 0x20 || id.p[i] >= 0x7f)
            return false;
    return id.n > 0 && id.n <= REQUEST_ID_MAX;
}

/* Passes the client's X-Request-Id on if it is 1 to REQUEST_ID_MAX visible ASCII characters.
 * Otherwise generates an id. */
static void set_request_id(struct exchange *x, const struct request_head *head)
{
    const struct field *given = head ? fields_find(&head->fields, FIELD_X_REQUEST_ID) : NULL;

    if (given && is_plain_id(given->value)) {
        memcpy(x->request_id, given->value.p, given->value.n);
        x->id_size = given->value.n;
        return;
    }
    x->id_size = worker_request_id(x->worker, x->request_id);
}

/* A gRPC call has a deadline of its own. Returns false if there is no memory. */
static bool set_call_deadline(struct exchange *x, const struct request_head *head)
{
    uint64_t timeout_us;

    if (!fields_have(&head->fields, FIELD_CONTENT_TYPE) || !grpc_is_call(x, head))
        return true;
    x->grpc = true;
    x->record.grpc_status = GRPC_STATUS_NONE;
    timeout_us = grpc_timeout(head);
    return !timeout_us || timer_set(&x->worker->calls, &x->call, x->record.started_us + timeout_us);
}

inline struct exchange *exchange_prepare(struct downstream *downstream, struct request_head *head,
                                         const struct framing *framing)
{
    struct exchange *x = exchange_new(downstream);

    if (!x)
        return NULL;
    x->request.method = head->method;
    x->request.continuation = head->expects_continue ? CONTINUE_EXPECTED : CONTINUE_UNEXPECTED;
    x->request.kind = framing->kind;
    x->request.progress = framing->kind == FRAMING_NONE ? MESSAGE_END : MESSAGE_CONTENT;
    x->request.max = x->policy->size_limits.request_body;
    if (downstream->origin->serves_limits)
        x->phase = PHASE_SERVICE;
    x->worker->incoming.head = head;
    x->worker->incoming.framing = *framing;
    set_request_id(x, head);
    x->noted = EVENT_ENTERED;
    if (!set_call_deadline(x, head)) {
        x->failure.cause = CAUSE_NO_MEMORY;
        x->noted = EVENT_FAILED;
    }
    return x;
}

bool exchange_begin(struct downstream *downstream, struct request_head *head,
                    const struct framing *framing)
{
    struct exchange *x = exchange_prepare(downstream, head, framing);

    if (!x) {
        log_no_memory("the connection of a request is closed");
        return false;
    }
    exchange_wake(x);
    return true;
}

bool exchange_refuse(struct downstream *downstream, enum cause cause, uint16_t status,
                     const char *why, const struct request_line *line)
{
    struct exchange *x = exchange_new(downstream);

    if (!x)
        return false;
    x->request.progress = MESSAGE_END; /* its real end is unknown */
    x->request.method = method_of(line->method);
    x->record.cause = cause;
    x->record.why = why;
    set_request_id(x, NULL);
    if (x->policy->log.access != ACCESS_OFF)
        access_log_begin_refused(x, line);
    exchange_log(x, cause, why);
    (void)step_reply_with(x, status);
    exchange_wake(x);
    return true;
}

/* ---- the client ------------------------------------------------------------------------------ */

void exchange_body_ready(struct exchange *x)
{
    note_event(x, EVENT_CLIENT_READABLE);
}

void exchange_body_cut_short(struct exchange *x)
{
    note_event(x, EVENT_CLIENT_CUT_SHORT);
}

void exchange_writable(struct exchange *x)
{
    note_event(x, EVENT_CLIENT_WRITABLE);
}

void exchange_client_gone(struct exchange *x)
{
    note_event(x, EVENT_CLIENT_GONE);
}

void exchange_cut(struct exchange *x, enum cause cause)
{
    note_failure(x, EVENT_CUT, cause, NULL);
}

/* ---- the link -------------------------------------------------------------------------------- */

static struct exchange *of_owner(struct link_owner *owner)
{
    return CONTAINER_OF(owner, struct exchange, upstream.owner);
}

static void on_connected(struct link_owner *owner, struct link *link)
{
    of_owner(owner)->upstream.link = link;
    note_event(of_owner(owner), EVENT_LINK_READY);
}

static void on_connect_failed(struct link_owner *owner, enum link_failure failure)
{
    of_owner(owner)->upstream.link = NULL;
    of_owner(owner)->upstream.failure = failure;
    note_event(of_owner(owner), EVENT_LINK_FAILED);
}

static void on_link_readable(struct link_owner *owner)
{
    note_event(of_owner(owner), EVENT_LINK_READABLE);
}

static void on_link_writable(struct link_owner *owner)
{
    note_event(of_owner(owner), EVENT_LINK_WRITABLE);
}

static void on_link_broken(struct link_owner *owner)
{
    note_event(of_owner(owner), EVENT_LINK_BROKEN);
}

static void on_link_timed_out(struct link_owner *owner)
{
    note_event(of_owner(owner), EVENT_LINK_LATE);
}

static const struct link_owner_ops link_ops = {.connected = on_connected,
                                               .connect_failed = on_connect_failed,
                                               .readable = on_link_readable,
                                               .writable = on_link_writable,
                                               .broken = on_link_broken,
                                               .timed_out = on_link_timed_out};

/* ---- the quota and the decision -------------------------------------------------------------- */

static void on_quota(struct quota_wait *wait)
{
    note_event(CONTAINER_OF(wait, struct exchange, quota), EVENT_QUOTA);
}

/* Thousands of decisions may arrive at once: in one Redis reply, or when their deadlines expire.
 * Processing them all would take a loop iteration of 40 ms and delay other decisions by as much.
 * Each iteration processes at least DECISIONS_AT_ONCE of them, however long it has lasted, unless
 * some already wait in worker->decided. */
static bool must_wait(struct worker *w)
{
    if (w->decided_iteration != w->iteration) {
        w->decided_iteration = w->iteration;
        w->decided_count = 0;
    }
    return (++w->decided_count > DECISIONS_AT_ONCE && clock_iteration_is_long()) ||
           !TAILQ_EMPTY(&w->decided);
}

static void wake_later(struct exchange *x)
{
    struct worker *w = x->worker;

    x->limits.progress = LIMITS_QUEUED;
    if (TAILQ_EMPTY(&w->decided))
        event_active(&w->act, EV_TIMEOUT, 1);
    TAILQ_INSERT_TAIL(&w->decided, x, limits.queued_link);
}

static void on_decided(struct decision_request *decision_request)
{
    struct exchange *x = CONTAINER_OF(decision_request, struct exchange, decision_request);

    MAGIC_CHECK(x, EXCHANGE_MAGIC);
    x->limits.decision_us = clock_cached_us() - x->record.started_us;
    if (must_wait(x->worker))
        wake_later(x);
    else
        note_event(x, EVENT_DECIDED);
}

static void wake_waiting(evutil_socket_t fd, short what, void *arg)
{
    struct worker *w = arg;
    (void)fd, (void)what;

    for (struct exchange *x; !clock_iteration_is_long() && (x = TAILQ_FIRST(&w->decided));) {
        TAILQ_REMOVE(&w->decided, x, limits.queued_link);
        x->limits.progress = LIMITS_UNDECIDED;
        note_event(x, EVENT_DECIDED);
    }
    if (!TAILQ_EMPTY(&w->decided))
        event_active(&w->act, EV_TIMEOUT, 1);
}

/* ---- keys of tokens -------------------------------------------------------------------------- */

void exchanges_keys_changed(struct worker *w)
{
    for (struct exchange *x = TAILQ_FIRST(&w->keys_awaited); x;) {
        if (token_checker_keys_may_come(x->generation->tokens)) {
            x = TAILQ_NEXT(x, keys.link);
            continue;
        }
        keys_end(x);
        note_event(x, EVENT_KEYS); /* may end others too */
        x = TAILQ_FIRST(&w->keys_awaited);
    }
}

static void keys_passed(struct deadline *deadline)
{
    struct exchange *x = CONTAINER_OF(deadline, struct exchange, client_deadline);

    keys_end(x);
    x->keys.wait = KEYS_OVERDUE;
    note_event(x, EVENT_KEYS);
}

/* ---- the rate limit service ------------------------------------------------------------------ */

void service_on_decided(struct call_request *request)
{
    struct exchange *x = CONTAINER_OF(request, struct service_request, request)->exchange;

    on_decided(&x->decision_request);
}

void service_watches_update(struct worker *w)
{
    struct service_request *next;
    bool ready = service_is_ready(w);

    if (ready == w->service.shown_ready && w->now == w->service.shown_generation && !w->stopping)
        return;
    w->service.shown_ready = ready;
    w->service.shown_generation = w->now;
    for (struct service_request *s = TAILQ_FIRST(&w->service.watches); s; s = next) {
        next = TAILQ_NEXT(s, watch);
        note_event(s->exchange, EVENT_HEALTH);
    }
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void hold_passed(struct timer *timer)
{
    note_event(CONTAINER_OF(timer, struct exchange, hold.timer), EVENT_HELD);
}

static struct exchange *of_client_deadline(struct deadline *deadline)
{
    return CONTAINER_OF(deadline, struct exchange, client_deadline);
}

static void content_passed(struct deadline *deadline)
{
    note_event(of_client_deadline(deadline), EVENT_CONTENT_LATE);
}

static void write_passed(struct deadline *deadline)
{
    struct exchange *x = of_client_deadline(deadline);

    if (!send_deadline_renew(x))
        note_event(x, EVENT_WRITE_LATE);
}

static void tunnel_passed(struct deadline *deadline)
{
    note_event(of_client_deadline(deadline), EVENT_TUNNEL_LATE);
}

/* In QUOTA and LIMIT, weir waits for the decision (at most quotas.timeout and redis.timeout): the
 * charge cannot be refunded before. step_connect() then evaluates x->overdue. */
static void note_overdue(struct exchange *x, enum cause cause)
{
    x->overdue = cause;
    if (x->phase != PHASE_QUOTA && x->phase != PHASE_LIMIT)
        note_event(x, EVENT_OVERDUE);
}

static void exchange_passed(struct deadline *whole)
{
    note_overdue(CONTAINER_OF(whole, struct exchange, whole), CAUSE_EXCHANGE_TIMEOUT);
}

static void call_passed(struct timer *timer)
{
    note_overdue(CONTAINER_OF(timer, struct exchange, call), CAUSE_CALL_TIMEOUT);
}

void exchanges_init(struct worker *w)
{
    TAILQ_INIT(&w->decided);
    TAILQ_INIT(&w->keys_awaited);
    TAILQ_INIT(&w->drains);
    event_assign(&w->act, w->base, -1, 0, wake_waiting, w);
    service_worker_init(w);
    timer_heap_init(&w->holds, w->base, hold_passed);
    timer_heap_init(&w->calls, w->base, call_passed);
    deadline_queue_init(&w->deadlines, &w->queue.content, content_passed);
    deadline_queue_init(&w->deadlines, &w->queue.write, write_passed);
    deadline_queue_init(&w->deadlines, &w->queue.reply, write_passed);
    deadline_queue_init(&w->deadlines, &w->queue.tunnel, tunnel_passed);
    deadline_queue_init(&w->deadlines, &w->queue.exchange, exchange_passed);
    deadline_queue_init(&w->deadlines, &w->queue.keys, keys_passed);
}

void exchanges_free(struct worker *w)
{
    timer_heap_clear(&w->holds);
    timer_heap_clear(&w->calls);
    if (w->decided.tqh_last)
        event_del(&w->act);
    service_worker_free(w);
    memory_give(&w->buffers.memory,
                free_list_drop(&w->free_exchanges, UINT_MAX) * sizeof(struct exchange));
}

void exchanges_trim(struct worker *w)
{
    service_worker_trim(w);
    memory_give(&w->buffers.memory, free_list_trim(&w->free_exchanges) * sizeof(struct exchange));
}
