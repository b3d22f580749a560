/* worker_shared.h - what the workers of a process share, and waking one of them. */
#ifndef WEIR_PROXY_WORKER_SHARED_H
#define WEIR_PROXY_WORKER_SHARED_H

#include <stdatomic.h>

#include "limit/limiter.h"
#include "proxy/stats.h"
#include "quota/quotas.h"

struct counter_names;
struct worker;

/* Shared by all workers of a process. Outlives them. */
struct worker_shared {
    struct fallback *fallback;
    struct quotas *quotas;
    const struct counter_names *names; /* [enum worker_names] main thread only */
    unsigned workers;                  /* number of workers */
    struct worker **all;               /* set before the first worker starts */
    const bool *inherited;             /* [listener] its socket outlives the process */
    unsigned connections_max;          /* cap on size_limits.connections by descriptors; 0: none */
    struct ip_counts *ip_counts;       /* connections by address; NULL if connections_per_ip is 0 */
    struct ip_rates *handshakes;       /* of TLS, by address */
    /* weir should get no traffic, as /readyz says. Written by the main thread, which then wakes the
     * workers. */
    atomic_bool unready;
    atomic_uint drains;               /* responses that are read for clients that have left */
    struct ip_counts *requests_by_ip; /* requests beyond the workers' shares, see ip_shares.h */
    /* Called in a worker's thread when it accepts connections, after it switched to another
     * endpoint set's policy, and after it left its loop. */
    void (*serving)(void *context);
    void (*reloaded)(void *context);
    void (*ended)(void *context);
    void *context;
};

/* Wakes the worker so that it re-reads the endpoint set. Callable from any thread. */
void worker_wake(struct worker *worker);

#endif
