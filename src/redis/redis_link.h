/* redis_link.h - one connection to one Redis server: connect, log in, load the script, pipelining,
 * deadlines and back-off.
 *
 *   DOWN --timer--> CONNECTING --AUTH, SELECT, SCRIPT LOAD--> READY <--PONG-- SUSPECT
 *    ^                  |                                       |               ^ |
 *    `------------------+------------ link_lost(cause) ---------+---------------+-'
 *
 * - The link handles keys and scripts; it contains nothing of HTTP or limits.
 * - It owns the redisAsyncContext. It uses each call until that call's `done` has run.
 * - READY without calls: a PING each second, so that a dead server is noticed without traffic.
 * - SUSPECT: several calls in a row timed out. Only a PING is sent until Redis answers it.
 * - READY after a failure begins with slow start (slow_start.h). During slow start, a single
 *   timeout makes the link SUSPECT again. */
#ifndef WEIR_REDIS_REDIS_LINK_H
#define WEIR_REDIS_REDIS_LINK_H

#include <event2/event.h>

#include "base/slice.h"
#include "policy/policy.h"
#include "redis/failure.h"
#include "redis/redis_reply.h"

struct redis_link;

/* One script call. The caller owns the struct (usually embedded in its own) and must keep it
 * until `done` has run. `done` runs exactly once per accepted call, never from inside
 * redis_link_call(). It also runs for a reply after the deadline; callers must track whether
 * they still wait. */
struct redis_call {
    void (*done)(struct redis_call *call, const struct redis_reply *reply,
                 enum redis_failure failure); /* reply NULL: see failure */
    uint64_t sent_us;
    struct redis_link *link; /* the link that holds the call; NULL: none yet */
    bool retried;            /* set by the link: sent again as EVAL after NOSCRIPT */
    unsigned redirects;      /* set by the cluster: redirections followed */
};

/* Callbacks of the link; each may be NULL. They run from the event loop or from inside
 * redis_link_new(). */
struct redis_link_watch {
    void (*ready)(void *context);                               /* calls are accepted */
    void (*not_ready)(void *context, enum redis_failure cause); /* calls are refused until ready */
    void *context;
    bool quiet; /* log no outages: other links report them */
    /* A cluster node answered `error` (MOVED, ASK or CLUSTERDOWN). Return true to take the call
     * over and pass it to another link with redis_link_pass(). `arguments` are the `argc`
     * arguments after the SHA as sent; they are valid until the callback returns. */
    bool (*redirected)(void *context, struct redis_call *call, const char *error, int argc,
                       struct slice arguments);
};

/* Creates the link. If `address` has a length, the link starts to connect; otherwise it waits
 * for redis_link_set_address(). `settings` (all but the address) and `script`, the whole Lua
 * text, must outlive the link. Each change of state logs one line with address, cause and
 * remedy. Returns NULL if out of memory. */
struct redis_link *redis_link_new(struct event_base *base, const struct redis_settings *settings,
                                  const struct address *address, struct slice script,
                                  const struct redis_link_watch *watch);

/* Connects to another address: the master has moved. Pending calls fail as on a lost connection.
 * Returns false and does nothing if the address is unchanged. */
bool redis_link_set_address(struct redis_link *link, const struct address *address);

bool redis_link_is_ready(const struct redis_link *link);

/* Returns the server's address as text, valid until another address is set. */
const char *redis_link_address(const struct redis_link *link);

/* During slow start (slow_start.h), the number of calls in flight is limited. Returns false if
 * it is reached: callers should delay the next call until a reply arrives. Calls are accepted
 * all the same. */
bool redis_link_has_room(const struct redis_link *link);

/* Returns why the link is not ready. DOWN: no attempt has failed yet. */
enum redis_failure redis_link_cause(const struct redis_link *link);

/* State of the circuit breaker: calls are unrestricted, limited, or not sent. Larger values are
 * worse. */
enum redis_breaker { REDIS_BREAKER_CLOSED, REDIS_BREAKER_HALF_OPEN, REDIS_BREAKER_OPEN };
enum redis_breaker redis_link_breaker(const struct redis_link *link);

/* Queues EVALSHA of the link's script with `argc` arguments after the SHA: numkeys, keys,
 * arguments. On NOSCRIPT, the link retries once with EVAL within the same call. Returns false if
 * the call is refused (down, suspect, or too many pending); `done` will not run. The arguments
 * are copied. Nothing is written until redis_link_flush(). */
MUST_CHECK bool redis_link_call(struct redis_link *link, struct redis_call *call, int argc,
                                const char **argv, const size_t *argv_sizes);

/* Queues a call that another node has redirected. `asking`: send ASKING first (an ASK
 * redirection). */
MUST_CHECK bool redis_link_pass(struct redis_link *link, struct redis_call *call, int argc,
                                struct slice arguments, bool asking);

/* Writes the queued commands; call once per loop iteration. If the connection is found dead,
 * `done` of pending calls runs from inside. */
void redis_link_flush(struct redis_link *link);

/* Reads the replies that have arrived; `done` of their calls runs from inside. Must not be
 * called from inside its callbacks. */
void redis_link_read(struct redis_link *link);

/* Reports a call's timeout, once per call. Several in a row make the link SUSPECT, and a
 * watchdog closes it. `done` of other calls may run from inside. */
void redis_link_note_timeout(struct redis_link *link);

/* Returns the number of calls without a reply. */
unsigned redis_link_pending(const struct redis_link *link);

/* Runs `done` of all pending calls (reply NULL) and frees the link. Must not be called from
 * inside its callbacks. */
void redis_link_free(struct redis_link *link);

#endif
