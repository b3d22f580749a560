/* next_unit.h - the time until a limit has more units available than now: the parameter t of the
 * field RateLimit (draft-ietf-httpapi-ratelimit-headers-11).
 *
 * bucket         until the next unit arrives
 * fixed window   until its end
 * sliding window until its oldest unit leaves; only its script has that time (limit_reply.h)
 * custom script  until its reset
 *
 * Times are in microseconds. 0: nothing of the limit is used, or more units are available now. */
#ifndef WEIR_LIMIT_NEXT_UNIT_H
#define WEIR_LIMIT_NEXT_UNIT_H

#include "limit/decision.h"

/* Derives the time from the state that a script returns. `quota`: units per period. `remaining`
 * and `reset_us` must belong to one instant. `longest_us`: the longest delay in a queue; 0: the
 * limit delays nothing. */
int64_t next_unit_us(const struct limit *limit, int64_t quota, int64_t capacity, int64_t remaining,
                     int64_t reset_us, int64_t longest_us);

/* Returns the time that is left of `next_us` after `elapsed_us`. If a bucket's unit has arrived
 * since, it is the time until the one after it. */
int64_t next_unit_left(const struct limit_result *result, int64_t next_us, uint64_t elapsed_us);

/* Sets result->next_us, at most to the wait of a rejected request. */
void next_unit_set(struct limit_result *result, int64_t next_us);

#endif
