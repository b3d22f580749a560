/* op_leases.h - decisions from leased units; see leases.h. */
#ifndef WEIR_LIMIT_OP_LEASES_H
#define WEIR_LIMIT_OP_LEASES_H

#include "limit/leases.h"
#include "limit/limit_reply.h"
#include "limit/operation.h"

struct op_leases;

/* The leases of a limiter. Both NULL and true: the policy allows none. False: out of memory. */
MUST_CHECK bool op_leases_new(struct limiter *l, struct op_leases **leases);
/* Call before the spare ops are freed. */
void op_leases_free(struct op_leases *leases);
/* Gives all units back to Redis, also those that arrive later. */
void op_leases_retire(struct op_leases *leases);
/* Returns true if a lease holds units. */
bool op_leases_hold_units(const struct op_leases *leases);

/* Units to request beyond those that ops need, and the lease for them; NULL: none. */
struct lease_request {
    struct lease *lease;
    int64_t units;
};

/* Looks up the lease of the op's key, if it may have one. `adjusts`: the charge may change when the
 * response is known. */
void op_meet_lease(struct limit_op *op, bool adjusts);
/* Decides from the lease. The op becomes the charge or is released. False: the lease is empty. */
MUST_CHECK bool op_spend_lease(struct limit_op *op, struct decision_request *decision_request);
struct lease_request op_request_lease(const struct limit_op *op);
/* Call before ops get their replies. `first`: one of those that requested; `size`: how many did.
 * `replies` NULL: no reply. */
void lease_answered(const struct lease_request *request, const struct limit_op *first,
                    unsigned size, const struct limit_reply *replies, int64_t time_us,
                    uint64_t requested_us);
void op_note_remaining(const struct limit_op *op, const struct limit_reply *replies,
                       uint64_t requested_us);
/* Call when the op's unit is refunded. */
void op_unspend_lease(struct limit_op *op);

#endif
