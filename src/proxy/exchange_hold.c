/* exchange_hold.c - requests that wait in a queue: phase HOLD in exchange.c.
 *
 * The limiter script returns a delay in µs from its decision. weir counts it from the arrival of
 * the decision, which is later, so no request leaves early. Each connection holds at most one
 * request. */
#include "base/clock.h"
#include "proxy/exchange_internal.h"

static void hold_passed(struct timer *timer)
{
    exchange_release(CONTAINER_OF(timer, struct exchange, hold));
}

void holds_init(struct worker *worker)
{
    timer_heap_init(&worker->holds, worker->base, hold_passed);
}

void holds_clear(struct worker *worker)
{
    timer_heap_clear(&worker->holds);
}

bool hold_begin(struct exchange *x, uint64_t delay_us)
{
    x->held_since_us = clock_us();
    if (!timer_set(&x->worker->holds, &x->hold,
                   x->held_since_us + delay_us + 1)) /* +1: the clock rounds down to whole µs */
        return false;
    exchange_enter(x, PHASE_HOLD);
    counter_add(&x->worker->stats.requests_held, 1);
    return true;
}

void hold_end(struct exchange *x)
{
    x->left_queue = timer_is_set(&x->hold);
    timer_cancel(&x->worker->holds, &x->hold);
    x->held_us = clock_us() - x->held_since_us;
    counter_subtract(&x->worker->stats.requests_held, 1);
    histogram_add(&x->worker->stats.held, x->held_us);
}
