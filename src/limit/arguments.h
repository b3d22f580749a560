/* arguments.h - builds the arguments of a call of the driver, and groups ops into one request. */
#ifndef WEIR_LIMIT_ARGUMENTS_H
#define WEIR_LIMIT_ARGUMENTS_H

#include "limit/limiter_state.h"

/* False: out of memory. arguments_free() is due in both cases. */
bool arguments_init(struct arguments *a);
void arguments_free(struct arguments *a);
/* Forms the batch's groups and builds the call's arguments. */
void arguments_make(struct arguments *a, struct batch *batch);

/* Returns the reply that the group's next op would have received on its own, in order. `replies`:
 * the group's. `own`: storage for it. NULL: the op is rejected, and its wait is not known. */
const struct limit_reply *group_answer(struct group *group, const struct limit_reply *replies,
                                       struct limit_reply *own);

#endif
