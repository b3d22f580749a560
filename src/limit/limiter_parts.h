/* limiter_parts.h - struct limiter for the files of this directory: what its parts share, and one
 * pointer for each part. A part's state is in its own header, or only in its source file. They are
 * layered; a file uses those above it in this list:
 *
 *   operation.h                     one decision: its phases, and the spare ops
 *   queue.h                         the ops on their way to Redis
 *   local_charges.h                 what this process charges without Redis
 *   adjust.h                        corrections of charges
 *   verdict.h                       decisions from replies, or without Redis
 *   op_permits.h  op_leases.h       concurrency limits; leased units
 *   failed_limits.h                 decisions whose own scripts failed in part
 *   split.h                         decisions over several slots of a cluster
 *   arguments.h  batch.h            calls of the driver
 *   charge.c  limiter.c             the interface (limiter.h) */
#ifndef WEIR_LIMIT_LIMITER_PARTS_H
#define WEIR_LIMIT_LIMITER_PARTS_H

#include "base/deadline.h"
#include "limit/fallback.h"
#include "limit/grants.h"
#include "limit/limiter_stats.h"
#include "redis/redis_client.h"

enum { LIMITER_MAGIC = 0x4c4d5452 };

struct limiter {
    uint32_t magic;
    bool in_slots;  /* Redis is a cluster */
    bool unflushed; /* ops were gathered, or units released, since the last flush */
    int64_t now_us; /* virtual time, see limiter_set_time(); 0: the clock of Redis */
    struct policy *policy;
    struct limiter_stats *stats; /* of the worker, over all its limiters */
    struct fallback *fallback;
    struct redis_client *redis;        /* NULL: the policy needs none */
    struct limiter_observer *observer; /* gets decisions in place of Redis; NULL: none */
    struct deadlines deadlines;
    /* Ops with a caller. All have the same timeout, except refunds of calls in a cluster. */
    struct deadline_queue waiting;
    struct grants_hold grants;
    struct op_pool *ops;
    struct op_queue *queue;
    struct batches *batches;
    struct denials *denials;
    struct permits *permits;  /* NULL: the policy has no concurrency limits */
    struct op_leases *leases; /* NULL: the policy allows none */
};

#endif
