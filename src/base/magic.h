/* magic.h - magic numbers in long-lived structs, checked when a void pointer is converted back to
 * the struct.
 *
 * A use after free aborts at the first access, with file and line, instead of corrupting another
 * connection. */
#ifndef WEIR_BASE_MAGIC_H
#define WEIR_BASE_MAGIC_H

#include <stdint.h>

#include "base/macros.h"

/* Prints a message and ends the process. */
_Noreturn void magic_broken(uint32_t found, uint32_t expected, const char *file, int line);

static inline void magic_check(uint32_t found, uint32_t expected, const char *file, int line)
{
    if (found != expected)
        magic_broken(found, expected, file, line);
}

#define MAGIC_SET(object, number)   ((object)->magic = (number))
#define MAGIC_WIPE(object)          ((object)->magic = 0xdeadbeefu)
#define MAGIC_CHECK(object, number) magic_check((object)->magic, (number), __FILE__, __LINE__)

#endif
