#include "base/clock.h"

_Thread_local struct clock_turn clock_turn;

void clock_turn_begin(void)
{
    clock_turn.begun = true;
    clock_turn.uses_left = 0;
}

void clock_turn_read(void)
{
    clock_turn.us = clock_us();
    clock_turn.wall_us = clock_wall_us();
    clock_turn.uses_left = clock_turn.begun ? CLOCK_TURN_USES : 1;
}
