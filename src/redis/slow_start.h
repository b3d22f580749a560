/* redis_slow_start.h - the way back to a Redis that has failed: how many calls may be under way at once.
 *
 *   begin -> 1 call; twice as many with every answer in time; from SLOW_START_END on, any number
 *
 * So a Redis that has just come back is not met by all that has gathered, and one that is sick still costs the decisions of one
 * call their wait and not those of hundreds. */
#ifndef WEIR_REDIS_SLOW_START_H
#define WEIR_REDIS_SLOW_START_H

#include <stdbool.h>

enum { SLOW_START_END = 64 };

struct redis_slow_start {
    unsigned room; /* 0: any number */
};

static inline void redis_slow_start_begin(struct redis_slow_start *slow_start)
{
    slow_start->room = 1;
}

static inline bool redis_slow_start_is_on(const struct redis_slow_start *slow_start)
{
    return slow_start->room != 0;
}

static inline bool redis_slow_start_has_room(const struct redis_slow_start *slow_start, unsigned under_way)
{
    return slow_start->room == 0 || under_way < slow_start->room;
}

/* An answer came in time. True: with it slow start has ended. */
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
