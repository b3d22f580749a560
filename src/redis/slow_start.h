/* slow_start.h - slow start after a Redis failure: limits the number of calls in flight.
 *
 *   begin -> 1 call; doubled with every reply in time; unlimited from SLOW_START_END on
 *
 * A Redis that has just recovered does not receive all waiting calls at once. If it still does
 * not answer, only one call waits for the timeout instead of hundreds. */
#ifndef WEIR_REDIS_SLOW_START_H
#define WEIR_REDIS_SLOW_START_H

#include <stdbool.h>

enum { SLOW_START_END = 64 };

struct redis_slow_start {
    unsigned room; /* calls allowed in flight; 0: unlimited */
};

static inline void redis_slow_start_begin(struct redis_slow_start *slow_start)
{
    slow_start->room = 1;
}

static inline bool redis_slow_start_is_on(const struct redis_slow_start *slow_start)
{
    return slow_start->room != 0;
}

static inline bool redis_slow_start_has_room(const struct redis_slow_start *slow_start,
                                             unsigned under_way)
{
    return slow_start->room == 0 || under_way < slow_start->room;
}

/* A reply came in time. Returns true if this ends slow start. */
static inline bool redis_slow_start_advance(struct redis_slow_start *slow_start)
{
    if (slow_start->room == 0)
        return false;
    slow_start->room *= 2;
    if (slow_start->room >= SLOW_START_END)
        slow_start->room = 0;
    return slow_start->room == 0;
}

#endif
