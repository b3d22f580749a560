#include "limit/queue.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "limit/limiter_parts.h"

enum {
    GATHER_US = 500, /* maximum time to wait for more decisions to share a call, see may_gather() */
    GATHER_MAX = 32, /* maximum number of decisions that wait */
    GATHER_WORTH = 4,
    OPS_UNDER_WAY_MAX = 512, /* about 4 ms of Redis; further ops wait here, not in its socket */
    TRY_AGAIN_US = 2000,
};

struct op_queue {
    struct op_list gathered;
    /* Sent before these: permit calls, then ops of op_queue_holds_back() and op_queue_return(). The
     * total that a permit call states leaves out the charges of both lists. */
    struct op_list first;
    struct op_list later;               /* `again` gathers these again */
    struct event *again;                /* timer; also ends the wait of gathered ops */
    struct event *resume;               /* triggers a loop iteration */
    unsigned gathered_count, under_way; /* ops gathered; calls without a reply */
    unsigned ops_under_way;             /* in these calls */
    uint64_t replied_us;                /* when the last call was answered */
    unsigned gathered_before;           /* gathered before this loop iteration; see may_gather() */
    uint64_t gathered_since_us;
    uint64_t gather_us, sent_us; /* how long ops may wait; when the last call was sent */
    unsigned density;            /* see note_density() */
    uint64_t round_trip_us;      /* of a call, smoothed */
};

/* --- Creation --------------------------------------------------------------------------------- */

static void on_again(evutil_socket_t fd, short what, void *arg)
{
    struct op_queue *q = arg;
    (void)fd, (void)what;

    TAILQ_CONCAT(&q->gathered, &q->later, sending.entry);
}

static void on_resume(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg; /* the worker flushes after every loop iteration */
}

struct op_queue *op_queue_new(struct event_base *base, uint64_t timeout_us)
{
    struct op_queue *q = calloc(1, sizeof *q);

    if (!q)
        return NULL;
    TAILQ_INIT(&q->gathered);
    TAILQ_INIT(&q->first);
    TAILQ_INIT(&q->later);
    q->gather_us = timeout_us / 4 < GATHER_US ? timeout_us / 4 : GATHER_US;
    q->resume = event_new(base, -1, 0, on_resume, q);
    q->again = evtimer_new(base, on_again, q);
    if (q->resume && q->again)
        return q;
    op_queue_free(q);
    return NULL;
}

void op_queue_free(struct op_queue *q)
{
    if (!q)
        return;
    event_drop(q->resume);
    event_drop(q->again);
    free(q);
}

/* --- Gathering -------------------------------------------------------------------------------- */

void op_gather_quietly(struct limit_op *op)
{
    op_enter(op, OP_GATHERED);
    op->limiter->unflushed = true;
    TAILQ_INSERT_TAIL(&op->limiter->queue->gathered, op, sending.entry);
}

void op_gather(struct limit_op *op)
{
    struct op_queue *q = op->limiter->queue;

    op_gather_quietly(op);
    if (q->gathered_count++ == 0)
        q->gathered_since_us = clock_cached_us();
}

void op_gather_first(struct limit_op *op)
{
    struct op_queue *q = op->limiter->queue;

    if (!TAILQ_EMPTY(&q->gathered))
        op->now_us = TAILQ_FIRST(&q->gathered)->now_us;
    op_enter(op, OP_GATHERED);
    TAILQ_INSERT_HEAD(&q->first, op, sending.entry);
}

void op_gather_later(struct limit_op *op)
{
    struct op_queue *q = op->limiter->queue;

    op_enter(op, OP_GATHERED);
    TAILQ_INSERT_TAIL(&q->later, op, sending.entry);
    if (!evtimer_pending(q->again, NULL))
        event_timer_arm(q->again, TRY_AGAIN_US);
}

void op_queue_wake(struct op_queue *q)
{
    event_active(q->resume, EV_TIMEOUT, 1);
}

/* Decides whether gathered ops wait for more, to be sent in one call. A call costs Redis, weir
 * and the kernel as much as about ten of the decisions in it.
 *
 * Ops wait at most gather_us while the loop runs. If the loop sleeps, they wait for the pending
 * reply or for `again`. `again` uses libevent's clock with a precision of 4 ms; a precise timer
 * would cost two system calls each time.
 *
 * - If a call is in progress, ops wait for its reply, which wakes the loop. They wait only if Redis
 *   is near and its reply is not late, or if many decisions arrive.
 * - If no call is in progress and this loop iteration brought two or more ops, they wait as long as
 *   each iteration brings more. The loop then runs without sleeping, so the only delay is reading
 *   other requests.
 * - A single op does not wait.
 * - In a cluster no op waits: a slow node would delay the ops of the other nodes. */
static bool may_gather(struct op_queue *q, bool in_slots)
{
    unsigned came = q->gathered_count - q->gathered_before;
    uint64_t now_us = clock_cached_us();
    bool near = q->round_trip_us < q->gather_us && now_us - q->sent_us < q->gather_us;

    q->gathered_before = q->gathered_count;
    if (q->gathered_count == 0 || in_slots || q->gathered_count >= GATHER_MAX ||
        now_us - q->gathered_since_us >= q->gather_us)
        return false;
    if (!q->under_way && came >= 2)
        op_queue_wake(q);
    else if (!q->under_way || (!near && q->density < GATHER_WORTH))
        return false;
    else if (!near && !evtimer_pending(q->again, NULL))
        event_timer_arm(q->again, q->gather_us); /* wakes the loop if nothing else does */
    return true;
}

/* As many decisions are under way as Redis can make within a fraction of redis.timeout. In a
 * cluster there is no such bound: a slow node would delay the ops of the other nodes. */
static bool queue_is_full(const struct limiter *l)
{
    return !l->in_slots && l->queue->ops_under_way >= OPS_UNDER_WAY_MAX;
}

/* If the queue is held up, a call is in progress, and its reply wakes the loop. In a cluster each
 * node has its own connection. */
bool op_queue_waits(const struct limiter *l)
{
    return may_gather(l->queue, l->in_slots) ||
           (!l->in_slots && (queue_is_full(l) || !redis_client_has_room(l->redis, 0)));
}

/* --- Sending ---------------------------------------------------------------------------------- */

/* Updates q->density: decisions per gather_us, smoothed. */
static void note_density(struct op_queue *q)
{
    uint64_t now = clock_cached_us(), since_us = now - q->sent_us;
    uint64_t density = q->gathered_count * q->gather_us / (since_us + 1);

    q->density = (q->density * 3 + (density < GATHER_MAX ? (unsigned)density : GATHER_MAX) + 2) / 4;
    q->sent_us = now;
}

void op_queue_take(struct op_queue *q, struct op_list *list)
{
    if (q->gathered_count)
        note_density(q);
    q->gathered_count = q->gathered_before = 0;
    TAILQ_CONCAT(list, &q->first, sending.entry);
    TAILQ_CONCAT(list, &q->gathered, sending.entry);
}

void op_queue_each(struct op_queue *q, void (*visit)(const struct limit_op *))
{
    for (struct limit_op *op = TAILQ_FIRST(&q->first); op; op = TAILQ_NEXT(op, sending.entry))
        visit(op);
    for (struct limit_op *op = TAILQ_FIRST(&q->gathered); op; op = TAILQ_NEXT(op, sending.entry))
        visit(op);
}

void op_queue_return(struct op_queue *q, struct op_list *list,
                     bool (*must_wait)(const struct limit_op *))
{
    struct limit_op *op, *next = TAILQ_FIRST(list);

    while ((op = next)) {
        next = TAILQ_NEXT(op, sending.entry);
        if (!must_wait(op))
            continue;
        TAILQ_REMOVE(list, op, sending.entry);
        TAILQ_INSERT_TAIL(&q->first, op, sending.entry);
    }
}

struct limit_op *op_queue_pop(struct op_queue *q)
{
    struct limit_op *op;

    TAILQ_CONCAT(&q->gathered, &q->first, sending.entry);
    TAILQ_CONCAT(&q->gathered, &q->later, sending.entry);
    if ((op = TAILQ_FIRST(&q->gathered)))
        TAILQ_REMOVE(&q->gathered, op, sending.entry);
    return op;
}

/* Slow start after reconnecting limits the load on Redis. Permit calls are exempt: the count
 * that they state must arrive before the ops gathered later. */
bool op_queue_holds_back(struct op_list *list, struct limit_op *op)
{
    const struct limiter *l = op->limiter;

    if ((!queue_is_full(l) && redis_client_has_room(l->redis, op->cluster.slot)) ||
        (op->is_adjustment && op->permits.count))
        return false;
    TAILQ_REMOVE(list, op, sending.entry);
    TAILQ_INSERT_TAIL(&l->queue->first, op, sending.entry);
    return true;
}

/* The reply that ops wait for may have been lost with the connection. */
void op_queue_end(struct op_queue *q, bool waits)
{
    if (!TAILQ_EMPTY(&q->gathered) && (!waits || !q->under_way))
        op_queue_wake(q);
}

void op_queue_sent(struct op_queue *q, unsigned ops)
{
    q->under_way++;
    q->ops_under_way += ops;
}

void op_queue_answered(struct op_queue *q, unsigned ops, uint64_t sent_us)
{
    q->under_way--;
    q->ops_under_way -= ops;
    q->replied_us = clock_cached_us();
    q->round_trip_us = (q->round_trip_us * 7 + (clock_cached_us() - sent_us)) / 8;
}

bool op_queue_is_silent(const struct op_queue *q, uint64_t us)
{
    return q->under_way && clock_cached_us() - q->replied_us >= us;
}

/* A call in progress may get the reply "unknown script" or "wrong node" and be sent again. */
bool op_queue_is_empty(const struct op_queue *q)
{
    return q->under_way == 0 && TAILQ_EMPTY(&q->gathered) && TAILQ_EMPTY(&q->first) &&
           TAILQ_EMPTY(&q->later);
}
