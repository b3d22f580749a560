/* call_response.h - the response to a call, as data, and as protobuf or proto3 JSON. */
#ifndef WEIR_SERVICE_CALL_RESPONSE_H
#define WEIR_SERVICE_CALL_RESPONSE_H

#include <event2/buffer.h>

#include "base/text.h"
#include "policy/rate_limit_service.h"
#include "service/call_memory.h"

/* Of one descriptor. */
struct call_status {
    bool over;         /* OVER_LIMIT, else OK */
    bool has_limit;    /* current_limit is set, from the next three */
    struct slice name; /* UTF-8; the first CALL_NAME_MAX bytes are sent */
    uint32_t per_unit;
    enum rate_limit_unit unit;
    uint32_t remaining;
    int64_t reset_us; /* duration_until_reset; -1: not set */
};

enum { CALL_NAME_MAX = 512 };

struct call_response {
    bool over;
    unsigned count;
    const struct call_status *statuses; /* by descriptor */
    struct slice header_lines;          /* "Name: value CRLF", for response_headers_to_add */
    struct slice body;                  /* raw_body; empty: none */
    /* Maps that are merged into dynamic_metadata: of equal keys the last one's value counts. */
    const struct metadata *const *metadata;
    unsigned metadata_count;
};

/* Appends a RateLimitResponse. Returns false if it does not fit, or if memory->lacks. */
MUST_CHECK bool call_response_write_protobuf(struct call_memory *memory,
                                             const struct call_response *response,
                                             struct text *out);

/* The same as JSON, as protobuf's own libraries write it: names in lowerCamelCase, members with
 * default values are left out. Returns false out of memory. */
MUST_CHECK bool call_response_write_json(const struct call_response *response,
                                         struct evbuffer *out);

/* ---- for the writers ------------------------------------------------------------------------- */

/* Returns the name as it is sent. */
struct slice call_name_sent(struct slice name);
/* Returns whether one of the maps has the key. */
bool call_metadata_has(const struct metadata *const *maps, unsigned count, struct slice key);

#endif
