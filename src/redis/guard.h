/* guard.h - guards hiredis' reader against a server that says too much.
 *
 * An answer that nobody asked for would trip an assertion in redisProcessCallbacks(), which ends the process; refusing to build its object makes
 * it a protocol error instead. So does an array of absurd length. */
#ifndef WEIR_REDIS_GUARD_H
#define WEIR_REDIS_GUARD_H

#include <hiredis/hiredis.h>
#include <stdbool.h>

struct redis_kept;

struct redis_guard {
    redisReplyObjectFunctions *plain, guarded;
    const unsigned *unanswered;
    bool extra_answer;       /* there was one that nobody asked for */
    struct redis_kept *kept; /* NULL: every answer is allocated */
};

/* `*unanswered` is the number of commands given to hiredis that have no answer yet; it and the guard outlive the reader. */
void redis_guard(struct redis_guard *guard, redisReader *reader, const unsigned *unanswered);

/* From now on the guard itself holds an answer that is an array of numbers, one at a time: only for readers whose answers are freed by their own
 * freeObject, as hiredis' asynchronous context does. The guard's memory outlives its readers until redis_guard_free(). */
void redis_guard_keep(struct redis_guard *guard);
void redis_guard_free(struct redis_guard *guard);

#endif
