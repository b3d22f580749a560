/* roster.h - the addresses that the requests of one policy can go to, and what all threads know of them.
 *
 *   main thread   names --resolver--> members --checks--> failing        workers   members --> their pools of links
 *                                        `--------- ejected, by each worker, for whoever asks ----'
 *
 * A server that is written as an address is one member for good. One that is written as a name has a member for each
 * address that it has at the moment: addresses come and go without a restart, and while DNS is away the last ones
 * stay. The main thread changes the table and checks the members' health; workers take a copy when its version has
 * changed. */
#ifndef WEIR_PROXY_ROSTER_H
#define WEIR_PROXY_ROSTER_H

#include <event2/event.h>

#include "policy/policy.h"

enum { MEMBERS_MAX = 64 }; /* of an upstream; addresses beyond are left out */

/* One address of an upstream. Counted references. */
struct member {
    atomic_uint references;
    const struct upstream_server *settings; /* of the roster's policy */
    struct address address;
    char *text;          /* for logs: as written, and the address where that was a name */
    atomic_bool failing; /* its health checks say so: no requests go there */
    atomic_uint ejected; /* workers that leave it alone (upstream.h) */
    unsigned streak;     /* checks in a row that spoke against `failing`; main thread */
};

void member_drop(struct member *member);

/* Requests may go there for all that its health checks know. */
static inline bool member_is_healthy(const struct member *member)
{
    return !atomic_load_explicit(&member->failing, memory_order_relaxed);
}

struct roster;

/* --- the main thread --- */

/* Whom to tell that a roster has changed: in the main thread, never from inside roster_new(). */
struct roster_listener {
    void (*changed)(void *context);
    void *context;
};

/* Begins to look names up and to check members. What `before` (or NULL) knows of the same servers is taken over.
 * Holds the policy. NULL: no memory. */
struct roster *roster_new(struct event_base *base, struct policy *policy, const struct roster *before,
                          const struct roster_listener *listener);
/* No more lookups and checks; who holds the roster may go on with what it says. Once. */
void roster_close(struct roster *roster);

/* --- any thread --- */

struct roster *roster_hold(struct roster *roster);
void roster_drop(struct roster *roster); /* NULL is allowed; closed before the last one */

struct policy *roster_policy(const struct roster *roster);
/* Another number after each change of members. */
unsigned roster_version(const struct roster *roster);
/* Every name has been answered once, for good or ill. */
bool roster_is_settled(const struct roster *roster);
/* The members of an upstream, each of them held for the caller; how many. */
unsigned roster_members(struct roster *roster, unsigned upstream, struct member *members[static MEMBERS_MAX]);

#endif
