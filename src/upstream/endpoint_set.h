/* endpoint_set.h - the server addresses (endpoints) of one policy's upstreams, for all threads.
 *
 *   main thread   names --resolver--> endpoints --checks--> failing   workers  endpoints -> pools
 *                                         `-- ejected: number of workers that eject it --'
 *
 * A server written as an address is one permanent endpoint. A server written as a host name has
 * one endpoint per current address. Addresses change without a restart. If DNS fails, the last
 * ones stay. The main thread changes the table and runs the health checks. Workers copy the table
 * when its version has changed. */
#ifndef WEIR_UPSTREAM_ENDPOINT_SET_H
#define WEIR_UPSTREAM_ENDPOINT_SET_H

#include <event2/event.h>

#include "policy/policy.h"

enum { ENDPOINTS_MAX = 64 }; /* per upstream; further addresses are left out */

/* One address of an upstream. Reference-counted. */
struct endpoint {
    atomic_uint references;
    const struct upstream_server *settings; /* belongs to the endpoint set's policy */
    struct address address;
    char *text; /* for logs: as written, plus the address if that was a host name */
    atomic_bool
        check_failed;    /* the last health check has failed; one is not enough for `failing` */
    atomic_bool failing; /* its health checks fail: it gets no requests */
    atomic_uint ejected; /* number of workers that ejected it (upstream.h) */
    atomic_uint down;    /* of these: workers whose connections it did not accept */
    _Atomic uint64_t down_us, answered_us; /* last: such an ejection; a response while `down` */
    unsigned streak; /* consecutive checks that contradict `failing`; main thread */
};

void endpoint_drop(struct endpoint *endpoint);

/* Returns whether the health checks allow requests to the endpoint. */
static inline bool endpoint_is_healthy(const struct endpoint *endpoint)
{
    return !atomic_load_explicit(&endpoint->failing, memory_order_relaxed);
}

/* Returns whether it gets requests that it can answer, as far as all workers together know: it
 * passes its health checks, and its last ejection for a refused connection is over, or another
 * worker has received a response since. Callable from any thread. */
bool endpoint_is_reachable(const struct endpoint *endpoint);

struct endpoint_set;

/* --- the main thread --- */

/* Callback for changes of an endpoint set. Called in the main thread, never inside
 * endpoint_set_new(). */
struct endpoint_set_listener {
    void (*changed)(void *context);
    void *context;
};

/* Creates an endpoint set and starts name lookups and health checks. Holds the policy. Copies
 * the addresses and health of the same servers from `before` (may be NULL). NULL: no memory. */
struct endpoint_set *endpoint_set_new(struct event_base *base, struct policy *policy,
                                      const struct endpoint_set *before,
                                      const struct endpoint_set_listener *listener);
/* Stops lookups and checks. Holders may still read the last state. Call once. */
void endpoint_set_close(struct endpoint_set *endpoint_set);

/* --- any thread --- */

struct endpoint_set *endpoint_set_hold(struct endpoint_set *endpoint_set);
void endpoint_set_drop(struct endpoint_set *endpoint_set); /* NULL allowed; close it first */

struct policy *endpoint_set_policy(const struct endpoint_set *endpoint_set);
/* Returns a number that changes with each change of endpoints. */
unsigned endpoint_set_version(const struct endpoint_set *endpoint_set);
/* Returns whether a name of the upstream has not been looked up yet, within a second of the set's
 * creation. Main thread only. */
bool endpoint_set_awaits(const struct endpoint_set *endpoint_set, unsigned upstream);
/* Returns whether every name lookup has ended at least once, with or without an address. */
bool endpoint_set_is_resolved(const struct endpoint_set *endpoint_set);
/* Stores the endpoints of an upstream, each held for the caller, and returns their number. */
unsigned endpoint_set_list(struct endpoint_set *endpoint_set, unsigned upstream,
                           struct endpoint *endpoints[static ENDPOINTS_MAX]);

#endif
