/* clock.h - the monotonic and the wall clock, in microseconds. Deadlines use the monotonic clock;
 * log lines and epochs use the wall clock. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t clock_read_us(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* Monotonic time in microseconds, from an arbitrary start. */
static inline uint64_t clock_us(void)
{
    return clock_read_us(CLOCK_MONOTONIC);
}

/* Wall-clock time in microseconds since 1970. */
static inline uint64_t clock_wall_us(void)
{
    return clock_read_us(CLOCK_REALTIME);
}

/* Most timestamps on the request path can be approximate, and reading the clock ten times costs 2%
 * of a request. An event-loop thread calls clock_iteration_begin() before it waits for events. From
 * then on, clock_cached_us() and clock_cached_wall_us() return a cached time.
 *
 * - The cached time is refreshed every 32 uses (about 0.1 ms) and after each wait.
 * - In threads that never call clock_iteration_begin(), the time is exact.
 * - Cached times never go backwards and are never later than clock_us(). Subtract a cached time
 *   from clock_us(), not the other way round. */
void clock_iteration_begin(void);

/* Sets a limit on the duration of this thread's loop iterations. `passed` is called when a clock
 * read finds that `us` microseconds have passed since the first read in the iteration. It may be
 * called several times per iteration. */
void clock_iteration_limit(uint64_t us, void (*passed)(void *context), void *context);

/* Refreshes the cached time. Call after slow work, such as a TLS handshake. */
void clock_cached_read(void);

/* Private to clock.h and clock.c. */
enum { CLOCK_CACHED_USES = 32 };
struct clock_iteration {
    uint64_t us, wall_us;
    unsigned uses_left;
    bool begun;
    bool is_long;
    uint64_t limit_us, long_at_us; /* long_at_us 0: not read yet in this iteration */
    void (*passed)(void *context); /* NULL: no limit */
    void *context;
};
extern _Thread_local struct clock_iteration clock_iteration;

/* Returns whether this iteration exceeded the limit of clock_iteration_limit() at the last clock
 * read. */
static inline bool clock_iteration_is_long(void)
{
    return clock_iteration.is_long;
}

static inline uint64_t clock_cached_us(void)
{
    if (clock_iteration.uses_left == 0)
        clock_cached_read();
    else
        clock_iteration.uses_left--;
    return clock_iteration.us;
}

static inline uint64_t clock_cached_wall_us(void)
{
    (void)clock_cached_us();
    return clock_iteration.wall_us;
}

#endif
