/* key_values.h - values of a request that limits count by, beside its identity: `per` with
 * jwt:CLAIM, cookie:NAME, query:NAME and path:N.
 *
 * The first three are read as identity.from reads them: from the same peers, verified, hashed, and
 * refused where servers may read another value. A segment of the path is that of the normal form
 * that rules match, without dot segments; it counts as absent where a server may read another one
 * (http/readings.h). */
#ifndef WEIR_POLICY_KEY_VALUES_H
#define WEIR_POLICY_KEY_VALUES_H

#include "policy/identity.h"
#include "policy/rule_choice.h"

/* The values by position in policy->key_sources; those that are absent or were not requested are
 * empty. */
struct key_values {
    size_t size[KEY_SOURCES_MAX];
    char text[KEY_SOURCES_MAX][IDENTITY_TEXT_MAX];
};

static inline struct slice key_value(const struct key_values *values, unsigned source)
{
    return values ? (struct slice){values->text[source], values->size[source]} : SLICE_NONE;
}

/* Reads the values that the rule's limits count by. `identity` is the request's, as identity_of()
 * has set it in the same call. Returns false if the request must be rejected, with
 * identity->failure and the reason `*why` as identity_of() has. */
MUST_CHECK bool key_values_read(const struct identity_input *input, const struct rule *rule,
                                struct identity *identity, struct key_values *values,
                                const char **why);

/* Returns a segment of a path; the first is number 1. Empty: there is none. */
struct slice key_segment(struct slice path, unsigned number);

/* Adds the segments of `path`, the one that is forwarded, without its query. Overwrites
 * room->normal, room->lower and room->readings. */
void key_values_read_path(const struct policy *policy, const struct rule *rule, struct slice path,
                          struct route_room *room, struct key_values *values);

#endif
