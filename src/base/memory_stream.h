/* memory_stream.h - a stream that collects its text in memory.
 *
 * Unlike open_memstream(3) of glibc, which drops text without an error if memory runs out. */
#ifndef WEIR_BASE_MEMORY_STREAM_H
#define WEIR_BASE_MEMORY_STREAM_H

#include <stdbool.h>
#include <stdio.h>

#include "base/macros.h"

struct memory_stream {
    FILE *file; /* write here */
    char *text;
    size_t size, room;
    bool failed; /* memory ran out: text is missing */
};

/* Returns false if out of memory. `stream` must not move until it is closed. */
MUST_CHECK bool memory_stream_open(struct memory_stream *stream);

/* Closes the stream and returns its text, NUL-terminated, which the caller frees. Returns NULL if
 * memory ran out. */
char *memory_stream_close(struct memory_stream *stream);

#endif
