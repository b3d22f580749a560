/* timer_heap.h - moments of any distance, to the microsecond, on one timer.
 *
 * For what deadline.h is not: these lengths all differ, and they matter to the microsecond. A heap in order of time and one timerfd
 * (which the loop's own timer, in milliseconds, does not round). Setting and cancelling take O(log n); the timer is set anew only
 * when the earliest changes. Nothing is opened before the first alarm is set. */
#ifndef WEIR_BASE_TIMER_HEAP_H
#define WEIR_BASE_TIMER_HEAP_H

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>

struct timer {
    uint64_t at_us;    /* monotonic */
    uint64_t sequence; /* of those of one moment the one set first goes first */
    unsigned position; /* in the heap, from 1; 0: not set */
};

struct timer_heap {
    struct event_base *base;
    void (*passed)(
        struct timer
            *timer); /* runs once, not before at_us, with the alarm cancelled; may set and cancel any */
    struct timer **heap;
    unsigned count, size;
    uint64_t sequence, timer_at_us; /* UINT64_MAX: the timer is not running */
    int fd;
    struct event event;
};

/* Nothing is allocated. */
void timer_heap_init(struct timer_heap *all, struct event_base *base, void (*passed)(struct timer *timer));
/* Forgets all alarms. */
void timer_heap_clear(struct timer_heap *all);

/* `alarm` is not set. False: no memory, or no descriptor for the timer. */
__attribute__((warn_unused_result)) bool timer_set(struct timer_heap *all, struct timer *timer,
                                                   uint64_t at_us);
/* May be called when it is not set. */
void timer_cancel(struct timer_heap *all, struct timer *timer);

static inline bool timer_is_set(const struct timer *timer)
{
    return timer->position != 0;
}

#endif
