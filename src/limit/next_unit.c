#include "limit/next_unit.h"

/* units * period / quota, at most INT64_MAX. A division of 128 bits takes many instructions. */
static int64_t time_of(int64_t units, int64_t period_us, int64_t quota)
{
    int64_t product;

    if (!__builtin_mul_overflow(units, period_us, &product))
        return product / quota;
    __int128 us = (__int128)units * period_us / quota;
    return us < INT64_MAX ? (int64_t)us : INT64_MAX;
}

/* The bucket is full after reset_us. Then the units that are missing now, but the first one, have
 * arrived at one per period / quota. */
static int64_t of_bucket(const struct limit *limit, int64_t quota, int64_t missing,
                         int64_t reset_us, int64_t longest_us)
{
    if (missing <= 0)
        return 0;
    int64_t later = missing > 1 && quota > 0 ? time_of(missing - 1, limit->period_us, quota) : 0;
    int64_t next = reset_us > later ? reset_us - later : 0;

    /* A queue without room for another delay. */
    return longest_us && next < reset_us - longest_us ? reset_us - longest_us : next;
}

int64_t next_unit_us(const struct limit *limit, int64_t quota, int64_t capacity, int64_t remaining,
                     int64_t reset_us, int64_t longest_us)
{
    if (limit->kind == LIMIT_BUCKET)
        return of_bucket(limit, quota, capacity - remaining, reset_us, longest_us);
    return reset_us > 0 ? reset_us : 0;
}

int64_t next_unit_left(const struct limit_result *r, int64_t next_us, uint64_t elapsed_us)
{
    int64_t left = next_us - (int64_t)elapsed_us;

    if (left > 0 || next_us == 0)
        return left > 0 ? left : 0;
    int64_t unit_us = r->quota > 0 ? r->limit->period_us / r->quota : 0;
    return r->limit->kind == LIMIT_BUCKET && unit_us > 0 ? unit_us - -left % unit_us : 0;
}

void next_unit_set(struct limit_result *r, int64_t next_us)
{
    bool later = r->retry_after_us > 0 && next_us > r->retry_after_us;

    r->next_us = later ? r->retry_after_us : next_us > 0 ? next_us : 0;
}
