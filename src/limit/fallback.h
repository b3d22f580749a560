/* fallback.h - limits kept in this process while Redis is away (`on_failure: local`).
 *
 * One table for all workers, so that a client gets this process' whole share whichever worker it meets:
 * striped locks, held for a few hundred nanoseconds, taken only while Redis is away. Buckets are counted by
 * GCRA, windows by a fixed window; bounded: when a stripe is full its oldest entry goes. */
#ifndef WEIR_LIMIT_FALLBACK_H
#define WEIR_LIMIT_FALLBACK_H

#include "limit/decision.h"

struct fallback;

struct fallback *fallback_new(unsigned entries_max);
void fallback_free(struct fallback *fallback);

/* One limit of one request: its key, its cost, and where the answer goes (result->limit, quota and capacity
 * are set by the caller). */
struct fallback_request {
    struct slice key;
    int64_t cost;
    struct limit_result *result;
};

/* All or nothing, as in Redis: charges every limit or, when one rejects, none. `now_us`: wall clock. True:
 * admitted. Any thread. */
bool fallback_decide(struct fallback *fallback, struct fallback_request *requests, unsigned count,
                     uint64_t now_us);

/* Requests in flight, whoever admitted them: so many units of the key more, or fewer. Any thread. */
void fallback_enter(struct fallback *fallback, struct slice key, int64_t units);
void fallback_leave(struct fallback *fallback, struct slice key, int64_t units);

#endif
