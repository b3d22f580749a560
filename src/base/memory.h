/* memory.h - allocation at start and reload, where weir exits if out of memory.
 *
 * The request path does not use these functions: there a failed allocation fails one request, not
 * the process. */
#ifndef WEIR_BASE_MEMORY_H
#define WEIR_BASE_MEMORY_H

#include <stddef.h>

/* Same as malloc, calloc, realloc and strdup, but end the process with a message if out of
 * memory. */
void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *old, size_t size);
char *xstrdup(const char *text);

#endif
