/* redis_ramp.h - the way back to a Redis that has failed: how many calls may be under way at once.
 *
 *   begin -> 1 call; twice as many with every answer in time; from RAMP_END on, any number
 *
 * So a Redis that has just come back is not met by all that has gathered, and one that is sick still costs the decisions of one
 * call their wait and not those of hundreds. */
#ifndef WEIR_STORE_REDIS_RAMP_H
#define WEIR_STORE_REDIS_RAMP_H

#include <stdbool.h>

enum { RAMP_END = 64 };

struct redis_ramp {
    unsigned room; /* 0: any number */
};

static inline void redis_ramp_begin(struct redis_ramp *ramp)
{
    ramp->room = 1;
}

static inline bool redis_ramp_is_on(const struct redis_ramp *ramp)
{
    return ramp->room != 0;
}

static inline bool redis_ramp_has_room(const struct redis_ramp *ramp, unsigned under_way)
{
    return ramp->room == 0 || under_way < ramp->room;
}

/* An answer came in time. True: with it the ramp has ended. */
static inline bool redis_ramp_climb(struct redis_ramp *ramp)
{
    if (ramp->room == 0)
        return false;
    ramp->room *= 2;
    if (ramp->room >= RAMP_END)
        ramp->room = 0;
    return ramp->room == 0;
}

#endif
