/* alarms.h - moments of any distance, to the microsecond, on one timer.
 *
 * For what deadline.h is not: these lengths all differ, and they matter to the microsecond. A heap in order of time and one timerfd
 * (which the loop's own timer, in milliseconds, does not round). Setting and cancelling take O(log n); the timer is set anew only
 * when the earliest changes. Nothing is opened before the first alarm is set. */
#ifndef WEIR_BASE_ALARMS_H
#define WEIR_BASE_ALARMS_H

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>

struct alarm {
    uint64_t at_us;    /* monotonic */
    uint64_t sequence; /* of those of one moment the one set first goes first */
    unsigned place;    /* in the heap, from 1; 0: not set */
};

struct alarms {
    struct event_base *base;
    void (*passed)(
        struct alarm
            *alarm); /* runs once, not before at_us, with the alarm cancelled; may set and cancel any */
    struct alarm **heap;
    unsigned count, size;
    uint64_t sequence, timer_at_us; /* UINT64_MAX: the timer is not running */
    int fd;
    struct event event;
};

/* Nothing is allocated. */
void alarms_init(struct alarms *all, struct event_base *base, void (*passed)(struct alarm *alarm));
/* Forgets all alarms. */
void alarms_clear(struct alarms *all);

/* `alarm` is not set. False: no memory, or no descriptor for the timer. */
__attribute__((warn_unused_result)) bool alarm_set(struct alarms *all, struct alarm *alarm, uint64_t at_us);
/* May be called when it is not set. */
void alarm_cancel(struct alarms *all, struct alarm *alarm);

static inline bool alarm_is_set(const struct alarm *alarm)
{
    return alarm->place != 0;
}

#endif
