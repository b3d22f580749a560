#include "base/event_timer.h"

#include <sys/random.h>

void event_timer_back_off(struct event *timer, uint64_t *wait_us, uint64_t most_us)
{
    uint64_t jitter = 0;

    /* libevent's generator needs libevent's thread locks */
    (void)!getrandom(&jitter, sizeof jitter, 0);
    event_timer_arm(timer, *wait_us / 2 + jitter % (*wait_us / 2 + 1));
    *wait_us = *wait_us * 2 < most_us ? *wait_us * 2 : most_us;
}
