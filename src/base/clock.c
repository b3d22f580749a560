#include "base/clock.h"

_Thread_local struct clock_iteration clock_iteration;

void clock_iteration_begin(void)
{
    clock_iteration.begun = true;
    clock_iteration.uses_left = 0;
    clock_iteration.long_at_us = 0;
    clock_iteration.is_long = false;
}

void clock_iteration_limit(uint64_t us, void (*passed)(void *context), void *context)
{
    clock_iteration.limit_us = us;
    clock_iteration.passed = passed;
    clock_iteration.context = context;
}

void clock_cached_read(void)
{
    clock_iteration.us = clock_us();
    clock_iteration.wall_us = clock_wall_us();
    clock_iteration.uses_left =
        clock_iteration.begun ? CLOCK_CACHED_USES - 1 : 0; /* this call is one use */
    if (!clock_iteration.passed)
        return;
    if (clock_iteration.long_at_us == 0)
        clock_iteration.long_at_us = clock_iteration.us + clock_iteration.limit_us;
    else if (clock_iteration.us >= clock_iteration.long_at_us) {
        clock_iteration.is_long = true;
        clock_iteration.passed(clock_iteration.context);
    }
}
