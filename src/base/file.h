/* file.h - reads whole files. */
#ifndef WEIR_BASE_FILE_H
#define WEIR_BASE_FILE_H

#include "base/arena.h"

/* Reads a whole file of at most `max` bytes into `arena`, NUL-terminated. Returns false on error,
 * with `*why` set, except if out of memory (base/memory.h). Blocks. */
bool file_read(struct arena *arena, const char *path, size_t max, struct slice *bytes,
               const char **why);

#endif
