/* client_query_internal.h - shared by client_query.c and query_replies.c only. */
#ifndef WEIR_ADMIN_CLIENT_QUERY_INTERNAL_H
#define WEIR_ADMIN_CLIENT_QUERY_INTERNAL_H

#include "admin/client_query.h"
#include "base/text.h"
#include "limit/key.h"

enum {
    ARGUMENTS_PER_KEY = 7, /* the number of limits, then the driver's six arguments */
    ARGUMENTS_MAX = 2 + CLIENT_QUERY_ROWS_MAX * (1 + ARGUMENTS_PER_KEY),
    NUMBER_SIZE = 20,
    PATTERN_SIZE = 4096,
};

enum query_step { STEP_GRANT, STEP_QUOTA, STEP_SCAN, STEP_DROP, STEP_LAST, STEP_OVER };

struct client_query {
    const struct policy *policy;
    const struct identity *identity;
    const struct descriptor_match *match; /* the client is a descriptor; NULL: it is none */
    enum client_query_kind kind;
    enum query_step step;
    uint64_t until_us;
    bool full; /* the last SCAN reply contained more keys than fit */
    char cursor[24];
    unsigned parts, part;                   /* number of nodes; the node being scanned */
    char *channel, *grants_key, *key_start; /* key_start: "PREFIX:{IDENTITY}:l:" */
    struct client_result result; /* GRANT: with the quota and duration to grant from the start */
    struct client_limits grant_client_limits, row_client_limits;
    char quota_key[KEY_QUOTA_MAX + 8]; /* followed by the suffix of the lock's key */
    size_t quota_key_size;
    char pattern[PATTERN_SIZE];
    size_t pattern_size;
    struct slice found[CLIENT_QUERY_FOUND_MAX]; /* malloc'ed; not yet in result.status */
    unsigned found_count;
    int argc;
    const char *argv[ARGUMENTS_MAX];
    size_t sizes[ARGUMENTS_MAX];
    struct text numbers; /* digits that arguments point to */
    char digits[ARGUMENTS_MAX * NUMBER_SIZE];
};

/* Returns true if the first `per` key of the limit is this client, or the IP address of a client
 * that is identified by it. No limit counts a descriptor by its own `per`. */
static inline bool counts_client(const struct client_query *q, const struct limit *limit)
{
    enum limit_per first = limit->per[0].per;
    return !q->match && (first == PER_CLIENT || (first == PER_IP && !q->identity->is_id));
}

static inline bool is_list(const struct limit *limit)
{
    return limit->per_count > 1;
}

/* Starts after the client's limits are known: collects the keys to show or delete. Returns false
 * if out of memory. */
bool client_query_begin(struct client_query *q);

/* Adds a row for a state key and takes ownership of `key`; `rest` as in struct limit_status. The
 * caller checks that there is room. */
struct limit_status *client_query_add_row(struct client_query *q, const struct limit *limit,
                                          struct slice key, struct slice rest);

/* Frees the keys that SCAN has found. */
void client_query_drop_found(struct client_query *q);

#endif
