/* fallback_counts.h - the usage of one limit in this process, for fallback.c. Pure functions: no
 * table, no lock, no clock. */
#ifndef WEIR_LIMIT_FALLBACK_COUNTS_H
#define WEIR_LIMIT_FALLBACK_COUNTS_H

#include "limit/fallback.h"

enum { IN_FLIGHT = -1 /* as `scale` of a state */ };

/* The usage of a limit, with the numbers under which it was counted, so that usage can be
 * converted when the limit or the client's plan changes.
 * - Bucket: the theoretical arrival time of GCRA is at_us + fraction / scale. Requests see it
 *   slack_us earlier, if a smaller burst has cut it off; see lua/gcra.lua. The last charge left it
 *   owed_us beyond a full bucket; see `debt` of struct fallback_request.
 * - Window: it began at at_us, and `fraction` units were used.
 *
 * `scale` is the limit. */
struct fallback_state {
    int64_t at_us;
    int64_t fraction, scale;
    int64_t period_us, capacity, slack_us, owed_us;
    bool window;
};

/* Converts the usage to the current numbers. Call before any charge, so that time passes by them
 * even if the request is rejected. `now`: wall clock, µs. */
void fallback_renumber(struct fallback_state *state, const struct limit_result *r, int64_t now);
/* Charges a request, if it is admitted or has `debt`, and sets its result. */
void fallback_charge(struct fallback_state *state, const struct fallback_request *request,
                     int64_t now);
/* Takes back `units` that were charged in the same window, or since the bucket was last full. A
 * lockout's rest ends if units become available. Units in flight are not changed. */
void fallback_uncharge(struct fallback_state *state, const struct limit *limit, int64_t units,
                       int64_t now);
/* The units in flight of a concurrency limit. */
int64_t fallback_in_flight(const struct fallback_state *state);

#endif
