/* memory.h - allocation for what happens at start and on reload, where running out of memory means giving up.
 *
 * Nothing on a request's path uses these: there a failed allocation fails one request, never the process. */
#ifndef WEIR_BASE_MEMORY_H
#define WEIR_BASE_MEMORY_H

#include <stddef.h>

/* As malloc, calloc, realloc and strdup, but end the process with a message when there is no memory. */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);

#endif
