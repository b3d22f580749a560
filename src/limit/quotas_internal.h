/* quotas_internal.h - what the clerk (quotas.c, quota_clerk.c, quota_lookup.c) and the workers' desks (quota_desk.c) share. Nobody else includes it. */
#ifndef WEIR_LIMIT_QUOTAS_INTERNAL_H
#define WEIR_LIMIT_QUOTAS_INTERNAL_H

#include <pthread.h>
#include <sys/queue.h>

#include "base/hash.h"
#include "limit/quotas.h"
#include "store/postgres_link.h"
#include "store/redis_store.h"

enum {
    TICKETS_MAX = 8192,       /* requests that wait, in the process */
    LOOKUPS_MAX = 1024,       /* ids that are looked up at once */
    LOOKUPS_OF_ADDRESS = 256, /* of these, for clients of one address */
    FOUND_MAX = 65536,        /* in the table */
    ABSENT_MAX = 16384,
    FIRST_QUERIES_MAX = 1000, /* a second, for ids of which nothing is known */
    ABSENT_US = 300000000,    /* that there is no row is believed for so long at most */
    UNKNOWN_US = 1000000,     /* that nothing can be known now, likewise */
    AGAIN_US = 5000000,       /* an answer past its time, while the database is down: when to look again */
    LOOK_AGAIN_US = 10000,    /* somebody else asks the database */
    FORGETS_MAX = 4096,       /* not yet read */
};
#define QUOTA_STALE_US (UINT64_C(86400) * 1000000) /* past its time, while the database is down */

/* One request's wait. The clerk owns it from quota_desk_ask until it is back in the post box; `wait` is the worker's alone. */
struct quota_ticket {
    STAILQ_ENTRY(quota_ticket) entry; /* of the inbox, of its lookup, of the post box */
    struct quota_post *post;
    struct quota_wait *wait; /* NULL: nobody waits any more */
    enum quota_outcome outcome;
    struct quota_row row;
    uint64_t address; /* stands for the client's address */
    size_t id_size;
    char id[];
};
STAILQ_HEAD(quota_tickets, quota_ticket);

/* Where a worker's tickets come back. */
struct quota_post {
    pthread_mutex_t lock;
    struct quota_tickets back;
    int fd; /* eventfd: there is something */
};

/* What the clerk is told. */
struct forget {
    STAILQ_ENTRY(forget) entry;
    size_t id_size;
    char id[];
};
STAILQ_HEAD(forgets, forget);

struct quotas {
    struct quota_table *table; /* from the first policy with quotas on */
    struct quota_stats stats;
    _Atomic unsigned tickets; /* that are out */
    struct hash_key address_key;
    pthread_t thread;
    bool running;

    pthread_mutex_t lock; /* of the inbox: */
    struct quota_tickets asked;
    struct forgets forgets;
    unsigned forget_count;
    struct policy *policy; /* held; the newest that the clerk has not taken */
    bool stop;
    int fd; /* eventfd: there is something */

    struct clerk *clerk; /* the thread's alone */
};

/* quota_clerk.c: the thread's part. Ends the process when there is no memory. */
struct clerk *clerk_new(struct quotas *quotas);
void clerk_free(struct clerk *clerk); /* every ticket goes */
/* Takes the reference. */
void clerk_apply(struct clerk *clerk, struct policy *policy);
void clerk_take(struct clerk *clerk, struct quota_ticket *ticket);
void clerk_forget(struct clerk *clerk, struct slice id);
struct event_base *clerk_base(const struct clerk *clerk);
void clerk_flush(struct clerk *clerk); /* once per loop turn */

/* The ticket goes back to its worker. */
void quota_post_back(struct quotas *quotas, struct quota_ticket *ticket, enum quota_outcome outcome,
                     const struct quota_row *row);

#endif
