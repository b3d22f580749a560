/* header_families.h - the rate-limit fields of responses, in the families of the option `headers`.
 *
 * A family is a row of the table in header_families.c: its word in the policy, a writer, the id
 * of its fields in http/head.h, so that the same fields of servers are replaced, and whether
 * cached rejections may have its fields. */
#ifndef WEIR_LIMIT_HEADER_FAMILIES_H
#define WEIR_LIMIT_HEADER_FAMILIES_H

#include "limit/numbers.h"

/* The words of the families, NULL-terminated. Family i is bit i of policy->headers. */
extern const char *const header_family_words[];

/* Returns true if rejections by the same limits differ only in marked numbers of these families.
 * A cached rejection can then be reused. */
bool header_families_patchable(unsigned headers);

/* Returns the limit that fields show which have only one: the one that rejected, else the one with
 * the smallest share left. NULL: no limit may be shown. */
const struct limit_result *decision_shown(const struct decision *decision);

/* Writes the parts of the fields that are the same in all responses to clients with a limit's own
 * numbers. Call once when the policy is read, within memory_try(). Optional. */
void header_families_prepare(struct policy *policy);

/* Appends the fields of the families in `headers` as lines "Name: value CRLF", and Retry-After for
 * rejections that have one. `wall_us` (Unix time) is for fields with a time of day. Appends
 * nothing if no limit applied. Records the positions of numbers in `marks`, unless it is NULL.
 * Returns the FIELD_BITs of the families that it has appended. */
uint64_t decision_fields_write(struct text *out, const struct decision *decision, unsigned headers,
                               uint64_t wall_us, struct marks *marks);

#endif
