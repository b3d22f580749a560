/* identity_internal.h - sources in files of their own, and what they share. */
#ifndef WEIR_POLICY_IDENTITY_INTERNAL_H
#define WEIR_POLICY_IDENTITY_INTERNAL_H

#include "policy/identity_source.h"

enum found identity_find_cookie(const struct identity_search *search,
                                const struct identity_from *from);
enum found identity_find_query(const struct identity_search *search,
                               const struct identity_from *from);
enum found identity_find_claim(const struct identity_search *search,
                               const struct identity_from *from);

/* Rejects the request with 400. */
static inline enum found identity_bad(const struct identity_search *search, const char *why)
{
    search->identity->failure = IDENTITY_MALFORMED;
    *search->why = why;
    return FOUND_BAD;
}

#endif
