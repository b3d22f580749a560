/* event_timer.h - libevent's timers, in microseconds from now. */
#ifndef WEIR_BASE_EVENT_TIMER_H
#define WEIR_BASE_EVENT_TIMER_H

#include <event2/event.h>
#include <stdint.h>

static inline struct timeval timeval_of_us(uint64_t us)
{
    return (struct timeval){.tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000)};
}

/* Fires once; if it was armed before, then only at the new time. */
static inline void event_timer_arm(struct event *timer, uint64_t after_us)
{
    struct timeval after = timeval_of_us(after_us);
    event_add(timer, &after);
}

/* Tries again: after half to all of `*wait_us`, so that many weirs do not return at the same moment. The next wait is twice
 * as long, `most_us` at the most. */
void event_timer_back_off(struct event *timer, uint64_t *wait_us, uint64_t most_us);

#endif
