/* endpoint_set_internal.h - shared by endpoint_set.c, endpoint_names.c and health.c. Not
 * included elsewhere. */
#ifndef WEIR_UPSTREAM_ENDPOINT_SET_INTERNAL_H
#define WEIR_UPSTREAM_ENDPOINT_SET_INTERNAL_H

#include <event2/event_struct.h>
#include <pthread.h>
#include <sys/queue.h>

#include "net/iobuf.h"
#include "net/poller.h"
#include "upstream/endpoint_set.h"

/* A server written as a host name. */
struct name {
    struct endpoint_set *endpoint_set;
    const struct upstream *upstream;
    const struct upstream_server *server;
    struct ip ips[RESOLVED_MAX]; /* the addresses of the last successful lookup */
    unsigned count;
    struct dns_lookup *lookup; /* the running lookup, or NULL */
    struct event again;
    uint64_t retry_us;
    bool answered; /* at least once, with or without an address */
    bool troubled; /* the last lookup failed, and that was logged */
    bool outdated; /* memory ran out: the endpoints are not those of `ips` */
};

struct check;

struct endpoint_set {
    atomic_uint references;
    struct policy *policy; /* held */
    atomic_uint version;
    atomic_bool resolved;
    pthread_mutex_t lock; /* protects `table`; held briefly */
    struct upstream_endpoints {
        struct endpoint *endpoints[ENDPOINTS_MAX];
        unsigned count;
    } * table; /* by upstream index */

    /* Used by the main thread only. */
    struct event_base *base; /* NULL: closed */
    struct poller poller;    /* for health checks */
    struct endpoint_set_listener listener;
    struct resolver *resolver; /* NULL: no names */
    struct name *names;
    unsigned name_count;
    TAILQ_HEAD(checks, check) checks;
    struct iobuf_pool buffers;
    uint64_t created_us;
    bool ready; /* creation is complete: changes call the listener */
};

/* endpoint_set.c: rebuilds the upstream's endpoints from its servers and current addresses.
 * Copies the health of new endpoints from `before`. Returns false if out of memory: the endpoints
 * are then as before, or a health check is missing. */
MUST_CHECK bool endpoint_set_rebuild(struct endpoint_set *endpoint_set,
                                     const struct upstream *upstream,
                                     const struct endpoint_set *before);

/* endpoint_names.c: starts the lookups. False: no memory. */
bool names_begin(struct endpoint_set *endpoint_set, const struct endpoint_set *before);
void names_end(struct endpoint_set *endpoint_set);
/* Returns the lookup state of a server written as a host name. */
const struct name *endpoint_name_of(const struct endpoint_set *endpoint_set,
                                    const struct upstream_server *server);

/* health.c: starts and stops checks to match the upstream's current endpoints. False: no memory. */
MUST_CHECK bool health_follow(struct endpoint_set *endpoint_set, const struct upstream *upstream);
void health_end(struct endpoint_set *endpoint_set);

#endif
