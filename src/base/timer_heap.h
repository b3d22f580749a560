/* timer_heap.h - timers of arbitrary length with microsecond precision, on one timerfd.
 *
 * Use deadline.h for many timers of the same length. Here, timers are kept in a heap. The timerfd
 * avoids the rounding of libevent timers to milliseconds. Setting and cancelling take O(log n). The
 * timerfd is only set again when the earliest timer changes, and is opened when the first timer is
 * set. */
#ifndef WEIR_BASE_TIMER_HEAP_H
#define WEIR_BASE_TIMER_HEAP_H

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>

struct timer {
    uint64_t at_us;    /* monotonic */
    uint64_t sequence; /* timers for the same time fire in the order in which they were set */
    unsigned position; /* heap index, from 1; 0: not set */
};

struct timer_heap {
    struct event_base *base;
    /* Called once, not before at_us, after the timer is cancelled. May set and cancel any timer. */
    void (*passed)(struct timer *timer);
    struct timer **heap;
    unsigned count, size;
    uint64_t sequence, timer_at_us; /* timer_at_us UINT64_MAX: the timerfd is not armed */
    int fd;
    struct event event;
};

/* Allocates nothing. */
void timer_heap_init(struct timer_heap *all, struct event_base *base,
                     void (*passed)(struct timer *timer));
/* Cancels all timers. */
void timer_heap_clear(struct timer_heap *all);

/* `timer` must not be set already. Returns false if out of memory, or if no descriptor is available
 * for the timerfd. */
__attribute__((warn_unused_result)) bool timer_set(struct timer_heap *all, struct timer *timer,
                                                   uint64_t at_us);
/* Does nothing if the timer is not set. */
void timer_cancel(struct timer_heap *all, struct timer *timer);

static inline bool timer_is_set(const struct timer *timer)
{
    return timer->position != 0;
}

#endif
