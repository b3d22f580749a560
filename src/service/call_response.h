/* call_response.h - the response to a call, as data, and as protobuf or proto3 JSON. */
#ifndef WEIR_SERVICE_CALL_RESPONSE_H
#define WEIR_SERVICE_CALL_RESPONSE_H

#include "limit/call_decision.h"
#include "service/call_memory.h"

enum { CALL_NAME_MAX = 512 }; /* bytes of a name of a limit that are sent */

struct call_response {
    bool over;
    unsigned count;
    const struct descriptor_result *results; /* by descriptor */
    struct slice header_lines;               /* "Name: value CRLF", for response_headers_to_add */
    struct slice body;                       /* raw_body; empty: none */
    /* Maps that are merged into dynamic_metadata: of equal keys the last one's value counts. */
    const struct metadata *const *metadata;
    unsigned metadata_count;
};

/* Appends a RateLimitResponse. Returns false if it does not fit, or if memory->lacks. */
MUST_CHECK bool call_response_write_protobuf(struct call_memory *memory,
                                             const struct call_response *response,
                                             struct text *out);

/* The same as JSON, as protobuf's own libraries write it: names in lowerCamelCase, members with
 * default values are left out. Sets `*out`, whose `p` the caller frees. Returns false out of
 * memory. */
MUST_CHECK bool call_response_write_json(const struct call_response *response, struct text *out);

/* ---- for the writers ------------------------------------------------------------------------- */

/* Returns the name as it is sent. */
struct slice call_name_sent(struct slice name);
/* Returns whether one of the maps has the key. */
bool call_metadata_has(const struct metadata *const *maps, unsigned count, struct slice key);

#endif
