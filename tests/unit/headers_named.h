/* headers_named.h - header families by their words in the policy. */
#ifndef WEIR_TESTS_HEADERS_NAMED_H
#define WEIR_TESTS_HEADERS_NAMED_H

#include <assert.h>

#include "limit/header_families.h"

/* Returns the bits of the families in `words`, which are separated by spaces. */
static inline unsigned headers_named(const char *words)
{
    unsigned bits = 0;

    for (size_t n; (n = strcspn(words, " ")) > 0; words += n + (words[n] == ' ')) {
        unsigned i = 0;
        while (strlen(header_family_words[i]) != n || memcmp(header_family_words[i], words, n) != 0)
            assert(header_family_words[++i]);
        bits |= 1u << i;
    }
    return bits;
}

#endif
