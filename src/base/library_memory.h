/* library_memory.h - whether an allocation of OpenSSL or jansson has failed. Both report that as
 * something else: a certificate that cannot be decoded, a document that is no JSON. */
#ifndef WEIR_BASE_LIBRARY_MEMORY_H
#define WEIR_BASE_LIBRARY_MEMORY_H

#include <stdbool.h>

/* Call first in main(): before OpenSSL allocates anything. */
void library_memory_watch(void);
/* Returns whether an allocation has failed since the last call, in any thread. */
bool library_memory_failed(void);
/* The same since the last call in this thread, and in this thread only. */
bool library_memory_failed_here(void);

#endif
