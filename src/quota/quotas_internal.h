/* quotas_internal.h - what the quota fetcher (quotas.c, quota_fetcher.c, lookup.c) and the workers' desks (quota_client.c) share. Nobody else includes it. */
#ifndef WEIR_QUOTA_QUOTAS_INTERNAL_H
#define WEIR_QUOTA_QUOTAS_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/hash.h"
#include "quota/postgres_link.h"
#include "quota/quotas.h"
#include "redis/redis_client.h"

enum {
    QUOTA_REQUESTS_MAX = 8192, /* requests that wait, in the process */
    LOOKUPS_MAX = 1024,        /* ids that are looked up at once */
    LOOKUPS_OF_ADDRESS = 256,  /* of these, for clients of one address */
    FOUND_MAX = 65536,         /* in the table */
    ABSENT_MAX = 16384,
    FIRST_QUERIES_MAX = 1000, /* a second, for ids of which nothing is known */
    ABSENT_US = 300000000,    /* that there is no row is believed for so long at most */
    UNKNOWN_US = 1000000,     /* that nothing can be known now, likewise */
    AGAIN_US = 5000000,       /* an answer past its time, while the database is down: when to look again */
    LOOK_AGAIN_US = 10000,    /* somebody else asks the database */
    FORGETS_MAX = 4096,       /* not yet read */
};
#define QUOTA_STALE_US (UINT64_C(86400) * 1000000) /* past its time, while the database is down */

/* One request's wait. The quota fetcher owns it from quota_client_ask until it is back in the post box; `wait` is the worker's alone. */
struct quota_request {
    STAILQ_ENTRY(quota_request) entry; /* of the inbox, of its lookup, of the post box */
    struct quota_post *post;
    struct quota_wait *wait; /* NULL: nobody waits any more */
    enum quota_outcome outcome;
    struct quota_row row;
    uint64_t address; /* stands for the client's address */
    size_t id_size;
    char id[];
};
STAILQ_HEAD(quota_tickets, quota_request);

/* Where a worker's quota requests come back. */
struct quota_post {
    pthread_mutex_t lock;
    struct quota_tickets back;
    int fd; /* eventfd: there is something */
};

/* What the quota fetcher is told. */
struct forget {
    STAILQ_ENTRY(forget) entry;
    size_t id_size;
    char id[];
};
STAILQ_HEAD(forgets, forget);

struct quotas {
    struct quota_cache *table; /* from the first policy with quotas on */
    struct quota_stats stats;
    _Atomic unsigned requests; /* that are out */
    struct hash_key address_key;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* of the inbox: */
    struct quota_tickets asked;
    struct forgets forgets;
    unsigned forget_count;
    struct policy *policy; /* held; the newest that the quota fetcher has not taken */
    bool stop;
    int fd; /* eventfd: there is something */

    struct fetcher *fetcher; /* the thread's alone */
};

/* quota_fetcher.c: the thread's part. Ends the process when there is no memory. */
struct fetcher *fetcher_new(struct quotas *quotas);
void fetcher_free(struct fetcher *fetcher); /* every quota request goes */
/* Takes the reference. */
void fetcher_apply(struct fetcher *fetcher, struct policy *policy);
void fetcher_take(struct fetcher *fetcher, struct quota_request *request);
void fetcher_forget(struct fetcher *fetcher, struct slice id);
struct event_base *fetcher_base(const struct fetcher *fetcher);
void fetcher_flush(struct fetcher *fetcher); /* once per loop iteration */

/* The quota request goes back to its worker. */
void quota_post_back(struct quotas *quotas, struct quota_request *request, enum quota_outcome outcome,
                     const struct quota_row *row);

#endif
