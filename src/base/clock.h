/* clock.h - two clocks, both in microseconds. Deadlines use the monotonic one; log lines and epochs the wall
 * clock. */
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

/* What a request needs the time for seldom needs it to the microsecond, and reading it ten times a request is
 * a fiftieth of what the request costs. A thread that turns an event loop calls clock_iteration_begin() before it
 * waits; from then on clock_cached_us() and clock_cached_wall_us() are as old as 32 uses of them, a tenth of a millisecond, and never from before
 * the wait. In any other thread they are exact. They never go backwards and never run ahead of clock_us(): from
 * clock_us() one of them may be taken away, but not the other way round. */
void clock_iteration_begin(void);

/* Has `passed` run when a turn of this thread's loop has lasted for so long since the clock was first read in it: noticed when it is
 * read again, and then perhaps several times. */
void clock_iteration_limit(uint64_t us, void (*passed)(void *context), void *context);

/* The clock is read now: something was done that takes as long as many uses of it, such as a TLS handshake. */
void clock_cached_read(void);

/* Their own. */
enum { CLOCK_CACHED_USES = 32 };
struct clock_turn {
    uint64_t us, wall_us;
    unsigned uses_left;
    bool begun;
    bool is_long;
    uint64_t limit_us, long_at_us; /* 0: it was not read yet in this turn */
    void (*passed)(void *context); /* NULL: nobody minds */
    void *context;
};
extern _Thread_local struct clock_turn clock_turn;

/* Has the limit of clock_iteration_limit() passed in this iteration, as far as the clock was read? */
static inline bool clock_iteration_is_long(void)
{
    return clock_turn.is_long;
}

static inline uint64_t clock_cached_us(void)
{
    if (clock_turn.uses_left == 0)
        clock_cached_read();
    else
        clock_turn.uses_left--;
    return clock_turn.us;
}

static inline uint64_t clock_cached_wall_us(void)
{
    (void)clock_cached_us();
    return clock_turn.wall_us;
}

#endif
