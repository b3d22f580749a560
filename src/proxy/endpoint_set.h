/* endpoint_set.h - the addresses that the requests of one policy can go to, and what all threads know of them.
 *
 *   main thread   names --resolver--> members --checks--> failing        workers   members --> their pools of links
 *                                        `--------- ejected, by each worker, for whoever asks ----'
 *
 * A server that is written as an address is one member for good. One that is written as a name has a member for each
 * address that it has at the moment: addresses come and go without a restart, and while DNS is away the last ones
 * stay. The main thread changes the table and checks the members' health; workers take a copy when its version has
 * changed. */
#ifndef WEIR_PROXY_ENDPOINT_SET_H
#define WEIR_PROXY_ENDPOINT_SET_H

#include <event2/event.h>

#include "policy/policy.h"

enum { ENDPOINTS_MAX = 64 }; /* of an upstream; addresses beyond are left out */

/* One address of an upstream. Counted references. */
struct endpoint {
    atomic_uint references;
    const struct upstream_server *settings; /* of the endpoint set's policy */
    struct address address;
    char *text;          /* for logs: as written, and the address where that was a name */
    atomic_bool failing; /* its health checks say so: no requests go there */
    atomic_uint ejected; /* workers that leave it alone (upstream.h) */
    unsigned streak;     /* checks in a row that spoke against `failing`; main thread */
};

void endpoint_drop(struct endpoint *endpoint);

/* Requests may go there for all that its health checks know. */
static inline bool endpoint_is_healthy(const struct endpoint *endpoint)
{
    return !atomic_load_explicit(&endpoint->failing, memory_order_relaxed);
}

struct endpoint_set;

/* --- the main thread --- */

/* Whom to tell that a endpoint set has changed: in the main thread, never from inside endpoint_set_new(). */
struct endpoint_set_listener {
    void (*changed)(void *context);
    void *context;
};

/* Begins to look names up and to check members. What `before` (or NULL) knows of the same servers is taken over.
 * Holds the policy. NULL: no memory. */
struct endpoint_set *endpoint_set_new(struct event_base *base, struct policy *policy,
                                      const struct endpoint_set *before,
                                      const struct endpoint_set_listener *listener);
/* No more lookups and checks; who holds the endpoint set may go on with what it says. Once. */
void endpoint_set_close(struct endpoint_set *endpoint_set);

/* --- any thread --- */

struct endpoint_set *endpoint_set_hold(struct endpoint_set *endpoint_set);
void endpoint_set_drop(struct endpoint_set *endpoint_set); /* NULL is allowed; closed before the last one */

struct policy *endpoint_set_policy(const struct endpoint_set *endpoint_set);
/* Another number after each change of members. */
unsigned endpoint_set_version(const struct endpoint_set *endpoint_set);
/* Every name has been answered once, for good or ill. */
bool endpoint_set_is_resolved(const struct endpoint_set *endpoint_set);
/* The members of an upstream, each of them held for the caller; how many. */
unsigned endpoint_set_list(struct endpoint_set *endpoint_set, unsigned upstream,
                           struct endpoint *endpoints[static ENDPOINTS_MAX]);

#endif
