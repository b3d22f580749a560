#include "base/clock.h"

_Thread_local struct clock_turn clock_turn;

void clock_iteration_begin(void)
{
    clock_turn.begun = true;
    clock_turn.uses_left = 0;
    clock_turn.long_at_us = 0;
    clock_turn.is_long = false;
}

void clock_iteration_limit(uint64_t us, void (*passed)(void *context), void *context)
{
    clock_turn.limit_us = us;
    clock_turn.passed = passed;
    clock_turn.context = context;
}

void clock_cached_read(void)
{
    clock_turn.us = clock_us();
    clock_turn.wall_us = clock_wall_us();
    clock_turn.uses_left = clock_turn.begun ? CLOCK_CACHED_USES - 1 : 0; /* this call is one use */
    if (!clock_turn.passed)
        return;
    if (clock_turn.long_at_us == 0)
        clock_turn.long_at_us = clock_turn.us + clock_turn.limit_us;
    else if (clock_turn.us >= clock_turn.long_at_us) {
        clock_turn.is_long = true;
        clock_turn.passed(clock_turn.context);
    }
}
