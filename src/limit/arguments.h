/* arguments.h - builds the arguments of a call of the driver, and groups ops into one request. */
#ifndef WEIR_LIMIT_ARGUMENTS_H
#define WEIR_LIMIT_ARGUMENTS_H

#include "limit/limit_reply.h"
#include "limit/op_leases.h"
#include "limit/operation.h"

enum {
    BATCH_REQUESTS_MAX = 64, /* per EVALSHA: it blocks Redis for about 0.2 ms */
    BATCH_KEYS_MAX = BATCH_REQUESTS_MAX * LIMITS_PER_RULE_MAX,
};

/* One request to the driver: one op, or several ops that are charged alike. */
struct group {
    const struct limit_op *first; /* valid until one of the call's ops has its reply */
    unsigned count;               /* limits per op */
    unsigned size, answered;      /* ops; ops that have their reply */
    unsigned first_reply;         /* index in the call's replies */
    bool plain;                   /* sent in a plain run, see lua/driver.lua */
    struct lease_request leased;
};

/* The ops of a call, and the groups that they form. */
struct call_ops {
    unsigned count, group_count;
    struct limit_op *list[BATCH_REQUESTS_MAX];
    uint8_t group_of[BATCH_REQUESTS_MAX];
    struct group groups[BATCH_REQUESTS_MAX];
};

struct call_arguments {
    int count;
    const char **bytes;
    size_t *sizes;
};

/* Memory for the arguments of one call; reused. */
struct arguments;

/* NULL: out of memory. */
struct arguments *arguments_new(void);
void arguments_free(struct arguments *a);
/* Forms groups of the ops and builds the call's arguments, which are valid until the next call. */
const struct call_arguments *arguments_make(struct arguments *a, struct call_ops *ops);

/* Returns the reply that the group's next op would have received on its own, in order. `replies`:
 * the group's. `own`: storage for it. NULL: the op is rejected, and its wait is not known. */
const struct limit_reply *group_answer(struct group *group, const struct limit_reply *replies,
                                       struct limit_reply *own);

#endif
