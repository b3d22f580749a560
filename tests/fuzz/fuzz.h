/* fuzz.h - what the harnesses share. A property that does not hold ends the process, whatever NDEBUG says. */
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

/* A copy that ends where its memory does, so that AddressSanitizer sees each byte read past it. */
static inline char *fuzz_copy(const uint8_t *data, size_t size)
{
    char *copy = malloc(size ? size : 1);
    PROPERTY(copy != NULL);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

/* A number that depends on each byte: into what pieces an input is cut is chosen by it, so that the files of
 * tests/http are seeds as they are. (FNV-1a) */
static inline uint32_t fuzz_choice(const uint8_t *data, size_t size)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 16777619u;
    return hash;
}

#endif
