/* endpoint_set_internal.h - the endpoint set as its files see it: endpoint_set.c, endpoint_names.c, health.c. Nobody else includes it. */
#ifndef WEIR_PROXY_ENDPOINT_SET_INTERNAL_H
#define WEIR_PROXY_ENDPOINT_SET_INTERNAL_H

#include <event2/event_struct.h>
#include <pthread.h>
#include <sys/queue.h>

#include "net/iobuf.h"
#include "net/poller.h"
#include "proxy/endpoint_set.h"

/* A server that is written as a name. */
struct name {
    struct endpoint_set *endpoint_set;
    const struct upstream *upstream;
    const struct upstream_server *server;
    struct ip ips[RESOLVED_MAX]; /* the last good answer */
    unsigned count;
    struct lookup *lookup; /* under way, or NULL */
    struct event again;
    uint64_t retry_us;
    bool answered; /* at least once, for good or ill */
    bool troubled; /* the last lookup brought nothing, which was said */
};

struct check;

struct endpoint_set {
    atomic_uint references;
    struct policy *policy; /* held */
    atomic_uint version;
    atomic_bool settled;
    pthread_mutex_t lock; /* of `table`, for moments */
    struct row {
        struct endpoint *endpoints[ENDPOINTS_MAX];
        unsigned count;
    } * table; /* by upstream */

    /* The main thread's. */
    struct event_base *base; /* NULL: closed */
    struct poller poller;    /* of health checks */
    struct endpoint_set_listener listener;
    struct resolver *resolver; /* NULL: no names */
    struct name *names;
    unsigned name_count;
    TAILQ_HEAD(checks, check) checks;
    struct iobuf_pool buffers;
    bool ready; /* it is made: changes are told */
};

/* endpoint_set.c: makes the upstream's members what its servers and their names say now. What `before` knows of a new one
 * is taken over. */
void endpoint_set_rebuild(struct endpoint_set *endpoint_set, const struct upstream *upstream,
                          const struct endpoint_set *before);

/* endpoint_names.c. False: no memory. */
bool names_begin(struct endpoint_set *endpoint_set, const struct endpoint_set *before);
void names_end(struct endpoint_set *endpoint_set);
/* The addresses of a name at the moment. */
const struct name *name_of(const struct endpoint_set *endpoint_set, const struct upstream_server *server);

/* health.c: checks for exactly the members that there are. */
void health_follow(struct endpoint_set *endpoint_set, const struct upstream *upstream);
void health_end(struct endpoint_set *endpoint_set);

#endif
