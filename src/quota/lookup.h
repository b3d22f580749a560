/* lookup.h - lookups, and the quota fetcher who does them, as lookup.c and quota_fetcher.c share them. Nobody else includes it. */
#ifndef WEIR_QUOTA_LOOKUP_H
#define WEIR_QUOTA_LOOKUP_H

#include "quota/quotas_internal.h"

enum { CHAINS = 2048, ADDRESSES = 1024, TOKEN_SIZE = 40 };

enum stage { STAGE_REDIS, STAGE_OTHERS, STAGE_QUEUED, STAGE_QUERY, STAGE_OVER };
enum asked { ASKED_GET, ASKED_PUT, ASKED_FREE };

struct lookup {
    uint32_t magic;
    struct fetcher *fetcher;
    enum stage stage;
    LIST_ENTRY(lookup) chain;  /* not when OVER */
    TAILQ_ENTRY(lookup) entry; /* of all, then of a queue: QUEUED */
    TAILQ_ENTRY(lookup) of_all;
    struct quota_tickets requests;
    struct quota_entry before; /* what was known; usable_us 0: nothing */
    struct redis_call call;
    enum asked asked;
    bool calling;      /* Redis has the call */
    bool passed;       /* Redis took too long: its answer is not waited for */
    bool locked;       /* the lock is ours */
    bool dropped;      /* the client was reset: what was asked before is not kept */
    bool trying;       /* the database was down: nobody waits */
    unsigned tries;    /* queries */
    unsigned address;  /* its place among the quota fetcher's */
    uint64_t until_us; /* no query starts later */
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
}; /* who has a quota that is to be renewed goes before who may be anybody */

struct fetcher {
    struct quotas *quotas;
    struct event_base *base;
    struct deadlines deadlines;
    struct deadline_queue redis_wait, look_again;
    struct policy *policy; /* held; NULL: no quotas */

    struct redis_client *redis;
    bool redis_down, changing;
    struct postgres_link *postgres;
    struct policy *postgres_policy; /* held: with what it was made */

    LIST_HEAD(chain, lookup) chains[CHAINS];
    struct hash_key hash_key;
    struct lookups all, queues[QUEUES];
    unsigned count;
    uint16_t of_address[ADDRESSES];
    struct lookup *asking; /* QUERY */
    struct event *pace;
    uint64_t paced_us; /* a first query may start when the clock has reached it; it runs after by a second */
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

/* What lookups ask Redis by. */
extern const char lookup_script[];

/* The one that is under way for the id, or NULL. */
struct lookup *lookup_find(struct fetcher *fetcher, struct slice id);

/* A lookup that has not begun, for a client at `address` (its hash). NULL: no memory. */
struct lookup *lookup_new(struct fetcher *fetcher, struct slice id, uint64_t address);

/* Its first step; again when Redis is there at last. May end it. */
void lookup_ask_redis(struct lookup *k);

/* All who wait for it are told. */
void lookup_send_back(struct lookup *k, enum quota_outcome outcome, const struct quota_row *row);

/* After that; it is freed, or will be when Redis has given its call back. */
void lookup_end(struct lookup *k);

/* What happens to lookups: deadlines, the pace of queries, the database (struct postgres_watch). */
void lookup_on_redis_deadline(struct deadline *deadline);
void lookup_on_look_again(struct deadline *deadline);
void lookups_on_pace(evutil_socket_t fd, short what, void *fetcher);
void lookups_on_idle(void *fetcher);
void lookups_on_down(void *fetcher);
void lookups_on_done(void *fetcher, enum postgres_result result, const struct quota_row *row);

#endif
