/* fuzz.h - shared by the harnesses. A property that does not hold ends the process, with NDEBUG as
 * well. */
#ifndef WEIR_FUZZ_H
#define WEIR_FUZZ_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define PROPERTY(holds)                                                                            \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #holds);             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A copy in a block of memory of exactly its size, so that AddressSanitizer detects every read past
 * its end. */
static inline char *fuzz_copy(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1);
    PROPERTY(copy != NULL);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

/* A hash of the input (FNV-1a). It chooses the pieces into which the input is split, so that the
 * files of tests/http can be used as seeds unchanged. */
static inline uint32_t fuzz_choice(const uint8_t *data, size_t size)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 16777619u;
    return hash;
}

#endif
