/* quotas_internal.h - shared by the quota fetcher (quotas.c, fetcher.c, lookup.c) and the
 * workers' quota clients (quota_client.c) only. */
#ifndef WEIR_QUOTA_QUOTAS_INTERNAL_H
#define WEIR_QUOTA_QUOTAS_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/hash.h"
#include "quota/postgres_link.h"
#include "quota/quotas.h"
#include "redis/redis_client.h"

enum {
    QUOTA_REQUESTS_MAX = 8192, /* waiting requests in the process */
    LOOKUPS_MAX = 1024,        /* concurrent lookups */
    LOOKUPS_OF_ADDRESS = 256,  /* concurrent lookups for clients of one address */
    FOUND_MAX = 65536,         /* cached ids with a row */
    ABSENT_MAX = 16384,
    FIRST_QUERIES_MAX = 1000, /* queries per second for unknown ids */
    ABSENT_US = 300000000,    /* maximum time for which a missing row is cached */
    UNKNOWN_US = 1000000,     /* maximum time for which an unavailable result is cached */
    AGAIN_US = 5000000,       /* retry interval of an expired entry while the database is down */
    LOOK_AGAIN_US = 10000,    /* poll interval while another weir queries the database */
    FORGETS_MAX = 4096,       /* unread messages */
};
/* use of expired entries while the database is down */
#define QUOTA_STALE_US (UINT64_C(86400) * 1000000)

/* One quota request. The quota fetcher owns it from quota_client_request() until it is back in the
 * worker's queue; only the worker uses `wait`. */
struct quota_request {
    STAILQ_ENTRY(quota_request) entry; /* of the inbox, the lookup, or the worker's queue */
    struct quota_post *post;
    struct quota_wait *wait; /* NULL: abandoned */
    enum quota_outcome outcome;
    struct quota_row row;
    uint64_t address; /* hash of the client's address */
    size_t id_size;
    char id[];
};
STAILQ_HEAD(quota_requests, quota_request);

/* A worker's queue of completed quota requests. */
struct quota_post {
    pthread_mutex_t lock;
    struct quota_requests back;
    int fd; /* eventfd: not empty */
};

/* Message to the quota fetcher: the client was reset. */
struct forget {
    STAILQ_ENTRY(forget) entry;
    size_t id_size;
    char id[];
};
STAILQ_HEAD(forgets, forget);

struct quotas {
    struct quota_cache *table; /* created with the first policy that has quotas */
    struct quota_stats stats;
    _Atomic unsigned requests; /* in flight */
    struct hash_key address_key;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* guards the inbox: */
    struct quota_requests requested;
    struct forgets forgets;
    unsigned forget_count;
    struct policy *policy; /* holds a reference; newest policy not yet taken by the quota fetcher */
    bool stop;
    int fd; /* eventfd: not empty */

    struct fetcher *fetcher; /* used by the fetcher thread only */
    struct event *inbox;     /* likewise: `fd` can be read */
};

/* fetcher.c: runs on the fetcher thread. Returns NULL if out of memory. */
struct fetcher *fetcher_new(struct quotas *quotas);
void fetcher_free(struct fetcher *fetcher); /* frees all quota requests */
/* Takes over the caller's reference. */
void fetcher_apply(struct fetcher *fetcher, struct policy *policy);
void fetcher_take(struct fetcher *fetcher, struct quota_request *request);
void fetcher_forget(struct fetcher *fetcher, struct slice id);
struct event_base *fetcher_base(const struct fetcher *fetcher);
void fetcher_flush(struct fetcher *fetcher); /* once per loop iteration */

/* Returns the quota request to its worker. */
void quota_post_back(struct quota_request *request, enum quota_outcome outcome,
                     const struct quota_row *row);

#endif
