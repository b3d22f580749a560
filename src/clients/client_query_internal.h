/* client_query_internal.h - what client_query.c and client_query_answers.c share. Nobody else includes it. */
#ifndef WEIR_CLIENTS_CLIENT_QUERY_INTERNAL_H
#define WEIR_CLIENTS_CLIENT_QUERY_INTERNAL_H

#include "base/text.h"
#include "clients/client_query.h"
#include "limit/key.h"

enum {
    ARGUMENTS_PER_LOOK = 7, /* how many limits, then the driver's six for it */
    ANSWERS_PER_LOOK = 5,
    ARGUMENTS_MAX = 2 + CLIENT_QUERY_ROWS_MAX * (1 + ARGUMENTS_PER_LOOK),
    NUMBER_SIZE = 20,
    PATTERN_SIZE = 4096,
};

enum step { STEP_GRANT, STEP_QUOTA, STEP_SCAN, STEP_DROP, STEP_LAST, STEP_OVER };

struct query {
    const struct policy *policy;
    const struct identity *identity;
    enum client_query_kind kind;
    enum step step;
    uint64_t until_us;
    bool full;      /* the last answer to SCAN named more keys than there was room for */
    bool cut, told; /* keys may have been passed over; all weirs were told */
    uint64_t removed;
    char cursor[24];
    unsigned parts, part;                   /* of Redis; the one that is looked through */
    char *channel, *grants_key, *key_start; /* the last: "PREFIX:{IDENTITY}:l:" */
    int64_t quota, us; /* to be granted; then, and after a look, what is granted and for how long */
    bool granted;
    struct client_limits grant_client_limits;
    struct quota_row row; /* of the database, as it is cached */
    int64_t row_us;       /* for how long it is believed */
    bool row_cached;
    struct client_limits row_terms;
    char quota_key[KEY_QUOTA_MAX + 8]; /* with that of its lock behind it */
    size_t quota_key_size;
    char pattern[PATTERN_SIZE];
    size_t pattern_size;
    struct limit_status rows[CLIENT_QUERY_ROWS_MAX];
    unsigned row_count;
    struct slice found[CLIENT_QUERY_FOUND_MAX]; /* malloc'ed; not yet among the rows */
    unsigned found_count;
    int argc;
    const char *argv[ARGUMENTS_MAX];
    size_t sizes[ARGUMENTS_MAX];
    struct text numbers; /* the digits that arguments point into */
    char digits[ARGUMENTS_MAX * NUMBER_SIZE];
};

/* Is the limit counted on this client, whatever else it is counted on? */
static inline bool counts_client(const struct limit *limit, const struct identity *identity)
{
    enum limit_per first = limit->per[0].per;
    return first == PER_CLIENT || (first == PER_IP && !identity->from_header);
}

static inline bool is_list(const struct limit *limit)
{
    return limit->per_count > 1;
}

/* Once it is known which terms hold for the client: what is there to look at, or to remove? False: no memory. */
bool client_query_begin(struct query *q);

/* A state key that is to be looked at, which the row takes over; `rest` as in struct standing. There is room. */
struct limit_status *client_query_add_row(struct query *q, const struct limit *limit, struct slice key,
                                          struct slice rest);

/* Frees the keys that SCAN has found. */
void client_query_drop_found(struct query *q);

#endif
