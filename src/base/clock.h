/* clock.h - two clocks, both in microseconds. Deadlines use the monotonic one; log lines and epochs the wall
 * clock. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* Never goes backwards; starts anywhere. */
static inline uint64_t clock_us(void)
{
    return clock_read_us(CLOCK_MONOTONIC);
}

/* Since 1970. */
static inline uint64_t clock_wall_us(void)
{
    return clock_read_us(CLOCK_REALTIME);
}

#endif
