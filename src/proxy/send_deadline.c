#include "proxy/send_deadline.h"

#include "base/clock.h"

enum { OWN_RESPONSE_US = 10 * 1000000 };

/* Returns the bytes due at the minimum rate in this time. */
static uint64_t bytes_due(const struct exchange *x, uint64_t time_us)
{
    return x->policy->timeouts.send_min_rate * (time_us / 1000) / 1000;
}

/* Returns the bytes that the client took since the last mark. A count that has become smaller is
 * one of another kind (see struct downstream_ops); then the result is huge. */
static uint64_t taken_since_mark(struct exchange *x, bool exactly)
{
    return x->downstream->ops->taken(x->downstream, exactly) - x->send.taken;
}

/* Arms the deadline and marks the count. `surplus`: bytes that count for the next time as well. */
static void mark_sent(struct exchange *x, uint64_t now, bool exactly, uint64_t surplus)
{
    x->send.since_us = now;
    x->send.exact = exactly;
    x->send.taken = x->downstream->ops->taken(x->downstream, exactly) - surplus;
    deadline_arm(&x->worker->queue.write, &x->client_deadline, now,
                 x->policy->timeouts.send_us / 2);
}

static bool keeps_rate(struct exchange *x, uint64_t now)
{
    return taken_since_mark(x, false) >= bytes_due(x, now - x->send.since_us);
}

void send_deadline_run(struct exchange *x, bool moved)
{
    struct worker *w = x->worker;
    bool reply = x->phase == PHASE_REPLY, runs;
    uint64_t now, most = x->policy->timeouts.send_us;

    runs = x->client_deadline.queue == (reply ? &w->queue.reply : &w->queue.write);
    if (runs && (reply || !moved))
        return;
    now = clock_cached_us();
    if (runs && (x->send.exact || !keeps_rate(x, now)))
        return;
    x->send.kept_us = now;
    if (reply)
        deadline_arm(&w->queue.reply, &x->client_deadline, now,
                     most < OWN_RESPONSE_US ? most : OWN_RESPONSE_US);
    else
        mark_sent(x, now, false, 0);
}

bool send_deadline_renew(struct exchange *x)
{
    uint64_t now = clock_us(), due, taken, most = bytes_due(x, x->policy->timeouts.send_us);

    if (x->phase == PHASE_REPLY)
        return false;
    if (!x->send.exact) {
        mark_sent(x, now, true, 0);
        return true;
    }
    due = bytes_due(x, now - x->send.since_us);
    taken = taken_since_mark(x, true);
    if (taken == 0 || taken < due)
        return false;
    x->send.kept_us = now;
    mark_sent(x, now, true, taken - due < most ? taken - due : most);
    return true;
}
