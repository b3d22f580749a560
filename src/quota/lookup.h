/* lookup.h - lookups and the quota fetcher. Included by lookup.c and fetcher.c only. */
#ifndef WEIR_QUOTA_LOOKUP_H
#define WEIR_QUOTA_LOOKUP_H

#include "quota/quotas_internal.h"

enum { CHAINS = 2048, ADDRESSES = 1024, TOKEN_SIZE = 40 };

enum stage { STAGE_REDIS, STAGE_OTHERS, STAGE_QUEUED, STAGE_QUERY, STAGE_OVER };
enum lookup_call { LOOKUP_CALL_GET, LOOKUP_CALL_PUT, LOOKUP_CALL_FREE };

struct lookup {
    uint32_t magic;
    struct fetcher *fetcher;
    enum stage stage;
    LIST_ENTRY(lookup) chain;  /* not in stage OVER */
    TAILQ_ENTRY(lookup) entry; /* queue entry in stage QUEUED */
    TAILQ_ENTRY(lookup) of_all;
    struct quota_requests requests;
    struct quota_entry before; /* previous entry; usable_us 0: none */
    struct redis_call call;
    enum lookup_call lookup_call;
    bool calling;      /* the call is in flight in Redis */
    bool passed;       /* Redis timed out: its reply is not waited for */
    bool locked;       /* this lookup holds the lock in Redis */
    bool dropped;      /* the client was reset: the result is not stored */
    bool trying;       /* retries the query while the database is down; no request waits */
    unsigned tries;    /* number of queries */
    unsigned address;  /* index into of_address */
    uint64_t until_us; /* no query starts after this time */
    struct deadline deadline;
    char token[TOKEN_SIZE];
    size_t id_size;
    char id[];
};
TAILQ_HEAD(lookups, lookup);

enum queue {
    QUEUE_KNOWN,
    QUEUE_FIRST,
    QUEUES
}; /* renewals of known quotas precede unknown ids, which anybody can make up */

struct fetcher {
    struct quotas *quotas;
    struct event_base *base;
    struct deadlines deadlines;
    struct deadline_queue redis_wait, look_again;
    struct policy *policy; /* holds a reference; NULL: no quotas */

    struct redis_client *redis;
    bool redis_down, changing;
    struct postgres_link *postgres;
    struct policy *postgres_policy; /* holds a reference; policy of `postgres` */

    LIST_HEAD(chain, lookup) chains[CHAINS];
    struct hash_key hash_key;
    struct lookups all, queues[QUEUES];
    unsigned count;
    uint16_t of_address[ADDRESSES];
    struct lookup *querying; /* the lookup in stage QUERY */
    struct event *pace;
    /* earliest time of the next first query; runs up to 1 s behind the clock (burst) */
    uint64_t paced_us;
    char token_start[17];
    uint64_t token_count, complained_us;
};

static inline struct slice lookup_id(const struct lookup *k)
{
    return (struct slice){k->id, k->id_size};
}

static inline const struct quota_settings *fetcher_settings(const struct fetcher *fetcher)
{
    return &fetcher->policy->quotas;
}

/* The Lua script of lookups in Redis. */
extern const char lookup_script[];

/* Returns the lookup in flight for the id, or NULL. */
struct lookup *lookup_find(struct fetcher *fetcher, struct slice id);

/* Creates a lookup that has not started. `address` is the hash of the client's address. Returns
 * NULL if out of memory. */
struct lookup *lookup_new(struct fetcher *fetcher, struct slice id, uint64_t address);

/* Starts the lookup; called again when Redis becomes ready. May end the lookup. */
void lookup_query_redis(struct lookup *k);

/* Returns all waiting requests to their workers with the result. */
void lookup_send_back(struct lookup *k, enum quota_outcome outcome, const struct quota_row *row);

/* Ends the lookup after its requests were returned. It is freed at once, or when Redis has
 * completed its call. */
void lookup_end(struct lookup *k);

/* Callbacks: deadlines, the query rate limit, and the database connection (struct
 * postgres_watch). */
void lookup_on_redis_deadline(struct deadline *deadline);
void lookup_on_look_again(struct deadline *deadline);
void lookups_on_pace(evutil_socket_t fd, short what, void *fetcher);
void lookups_on_idle(void *fetcher);
void lookups_on_down(void *fetcher);
void lookups_on_done(void *fetcher, enum postgres_result result, const struct quota_row *row);

#endif
