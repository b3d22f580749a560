/* limit_cost.h - limits.NAME.cost as a map: what a request costs in one limit, before its response
 * and after it. */
#ifndef WEIR_POLICY_LIMIT_COST_H
#define WEIR_POLICY_LIMIT_COST_H

#include "content/json_values.h"
#include "content/usage.h"
#include "http/head.h"

/* How a response with an error status and without a usage is charged. */
enum cost_on_error { COST_ON_ERROR_REFUND, COST_ON_ERROR_KEEP };

/* Whether weir asks for the usage of streams whose requests say nothing of it. */
enum include_usage { INCLUDE_USAGE_KEEP, INCLUDE_USAGE_ADD };

/* Whether the response to a client that has left is read to its end. */
enum on_disconnect { ON_DISCONNECT_CLOSE, ON_DISCONNECT_DRAIN };

/* The option `usage`: a format, or paths with weights. */
enum usage_kind { USAGE_KIND_NONE, USAGE_KIND_FORMAT, USAGE_KIND_PATHS };

struct usage_settings {
    enum usage_kind kind;
    enum usage_format format;
    bool weighted;       /* the paths are a map, or `weights` is written */
    struct slice *paths; /* as written */
    int64_t *weights;    /* of the paths, in 1 / USAGE_WEIGHT_ONE */
    unsigned count;
    struct usage_weights format_weights;
    struct usage usage;
};

struct limit_cost {
    bool automatic;                 /* the length of the request's content determines the reserve */
    struct json_paths request_json; /* in the request's content: the first one is the reserve */
    struct slice *request_json_texts; /* as written */
    int64_t reserve;                  /* charged before the response */
    char *request_header;             /* trusted peers only; NULL: none */
    int64_t max;                      /* upper bound before the response; 0: none */
    char *response_header;            /* NULL: none */
    struct usage_settings usage;
    enum cost_on_error on_error;
    enum include_usage include_usage;
    enum on_disconnect on_disconnect;
};

/* Returns true if the response adjusts the cost. */
static inline bool limit_cost_is_adjusted(const struct limit_cost *cost)
{
    return cost->response_header || cost->usage.kind != USAGE_KIND_NONE;
}

/* Returns what a request costs before its response if no header states it: the first integer of
 * request_json, the estimate of `reserve: auto`, or the reserve. `bytes`: length of the content;
 * BYTES_UNKNOWN: there is no estimate. */
#define BYTES_UNKNOWN UINT64_MAX
int64_t limit_cost_reserve(const struct limit_cost *cost, const struct json_values *values,
                           uint64_t bytes);

/* Returns the cost after the response; -1: as charged. `stated`: by the response; -1: not.
 * `error`: the response, or that there is none, means that the request cost nothing. `cost` may be
 * NULL. */
int64_t limit_cost_final(const struct limit_cost *cost, int64_t stated, bool error);

/* Reads the cost in a request header, at most `max`, into `*cost`; 0: the header is missing.
 * Returns false if the request must be rejected with 400 and the reason `*why`. */
MUST_CHECK bool cost_in_request(const struct fields *fields, const char *header, int64_t max,
                                int64_t *cost, const char **why);
/* Returns the cost in a response header; -1: missing or invalid. `header` NULL: none. */
int64_t cost_in_response(const struct fields *fields, const char *header);

#endif
