/* log_throttle.h - bounds the lines of a log message that every request may cause. */
#ifndef WEIR_BASE_LOG_THROTTLE_H
#define WEIR_BASE_LOG_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { LOG_THROTTLE_MIN_US = 1000000, LOG_THROTTLE_MAX_US = 10000000 };

/* Of one message. Zeroed: it has not occurred. */
struct log_throttle {
    uint64_t at_us;   /* time of the last line */
    uint64_t last_us; /* time at which the message last occurred */
    uint64_t wait_us; /* from that line to the next one; 0: none was logged */
    uint64_t suppressed;
};

/* What a throttled line adds: empty, or how many others were not logged. */
struct log_more {
    char text[64];
};
static inline struct log_more log_throttle_more(uint64_t suppressed)
{
    struct log_more more = {""};

    if (suppressed)
        snprintf(more.text, sizeof more.text, " (and %llu similar ones not logged)",
                 (unsigned long long)suppressed);
    return more;
}

/* Returns whether the message may be logged at `now_us`, and sets `*suppressed` to the number of
 * times since the last line at which it was not. While it occurs again and again, the time between
 * two lines doubles from 1 s to 10 s. After 10 s without it, the next one is logged at once. */
static inline bool log_throttle_allows(struct log_throttle *throttle, uint64_t now_us,
                                       uint64_t *suppressed)
{
    if (now_us - throttle->last_us >= LOG_THROTTLE_MAX_US)
        throttle->wait_us = 0;
    throttle->last_us = now_us;
    if (throttle->wait_us && now_us - throttle->at_us < throttle->wait_us) {
        throttle->suppressed++;
        return false;
    }
    throttle->wait_us = throttle->wait_us ? 2 * throttle->wait_us : LOG_THROTTLE_MIN_US;
    if (throttle->wait_us > LOG_THROTTLE_MAX_US)
        throttle->wait_us = LOG_THROTTLE_MAX_US;
    throttle->at_us = now_us;
    *suppressed = throttle->suppressed;
    throttle->suppressed = 0;
    return true;
}

#endif
