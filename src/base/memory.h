/* memory.h - allocation without a result to check, for start, reload and the command line.
 *
 * If memory runs out, the innermost memory_try() of the thread ends early. Without one, the process
 * exits with a message; that is so only at start and on the command line. A running weir never
 * exits: a reload is inside memory_try(). Requests and connections do not use these functions. If
 * their malloc(3) fails, only they fail. */
#ifndef WEIR_BASE_MEMORY_H
#define WEIR_BASE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/macros.h"

/* Same as malloc, calloc, realloc and strdup, but never return NULL: see memory_exhausted(). */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);

/* Ends the innermost memory_try(), or the process. Does not return. */
_Noreturn void memory_exhausted(void);

/* Calls work(context). Returns false if memory ran out, in which case `work` has ended early by
 * longjmp(3). What it held must therefore be reachable from `context`, or be in an arena. The
 * caller releases it, and may then call memory_exhausted() to end the outer memory_try() too. */
MUST_CHECK bool memory_try(void (*work)(void *context), void *context);

#endif
