/* head_copy.h - a copy of a request head that outlives the buffer it was parsed in. */
#ifndef WEIR_HTTP_HEAD_COPY_H
#define WEIR_HTTP_HEAD_COPY_H

#include "http/head.h"

struct head_copy;

/* Copies a head, its bytes and the marks of its fields. All slices of the head lie in `head->whole`
 * or are static. NULL: no memory. */
struct head_copy *head_copy_new(const struct request_head *head);
/* Stores the copied head in `head`. Its slices are valid until head_copy_free(). */
void head_copy_restore(const struct head_copy *copy, struct request_head *head);
/* Returns the memory of a copy, in bytes. */
size_t head_copy_memory(const struct head_copy *copy);
void head_copy_free(struct head_copy *copy); /* NULL allowed */

#endif
