/* redis_guard.h - guards hiredis' reader against a server that says too much.
 *
 * An answer that nobody asked for would trip an assertion in redisProcessCallbacks(), which ends the process; refusing to build its object makes
 * it a protocol error instead. So does an array of absurd length. */
#ifndef WEIR_STORE_REDIS_GUARD_H
#define WEIR_STORE_REDIS_GUARD_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

struct redis_guard {
    redisReplyObjectFunctions *plain, guarded;
    const unsigned *unanswered;
    bool extra_answer; /* there was one that nobody asked for */
};

/* `*unanswered` is the number of commands given to hiredis that have no answer yet; it and the guard outlive the reader. */
void redis_guard(struct redis_guard *guard, redisReader *reader, const unsigned *unanswered);

#endif
