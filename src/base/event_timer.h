/* event_timer.h - libevent timers, in microseconds from now. */
#ifndef WEIR_BASE_EVENT_TIMER_H
#define WEIR_BASE_EVENT_TIMER_H

#include <event2/event.h>
#include <stdint.h>

static inline struct timeval timeval_of_us(uint64_t us)
{
    return (struct timeval){.tv_sec = (time_t)(us / 1000000),
                            .tv_usec = (suseconds_t)(us % 1000000)};
}

/* Fires once. Replaces an earlier arming. */
static inline void event_timer_arm(struct event *timer, uint64_t after_us)
{
    struct timeval after = timeval_of_us(after_us);
    event_add(timer, &after);
}

/* Same as event_free(); `event` may be NULL. */
static inline void event_drop(struct event *event)
{
    if (event)
        event_free(event);
}

/* Arms a retry after a random time between `*wait_us` / 2 and `*wait_us`, so that many weir
 * instances do not retry at once. Doubles `*wait_us`, up to `most_us`. */
void event_timer_back_off(struct event *timer, uint64_t *wait_us, uint64_t most_us);

#endif
