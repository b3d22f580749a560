/* link.h - one connection to one Redis server: connect, log in, load the script, pipeline, deadlines,
 * back-off.
 *
 *   DOWN --timer--> CONNECTING --AUTH, SELECT, SCRIPT LOAD--> READY <--PONG-- SUSPECT
 *    ^                  |                                       |               ^ |
 *    `------------------+------------ link_fail(cause) ---------+---------------+-'
 *
 * It speaks of keys and scripts, not of HTTP or limits. It owns the redisAsyncContext and every call given to
 * it until that call's callback has run. SUSPECT: Redis has not answered several calls in time; nothing but a
 * PING is asked until it answers. READY after a failure begins with slow start, see redis_slow_start.h, in which one call without an
 * answer in time is enough to be SUSPECT again. */
#ifndef WEIR_REDIS_LINK_H
#define WEIR_REDIS_LINK_H

#include <event2/event.h>
#include <hiredis/hiredis.h>

#include "base/slice.h"
#include "policy/policy.h"
#include "redis/failure.h"

struct redis_link;

/* One call of the script. The caller owns the struct (usually inside its own) and must keep it until `done`
 * has run, which is exactly once for every call accepted, never from inside redis_link_call. After an answer
 * later than the deadline `done` runs as well: whoever no longer waits must remember so itself. */
struct redis_call {
    void (*done)(struct redis_call *call, const redisReply *reply,
                 enum redis_failure failure); /* reply NULL: failure says why */
    uint64_t sent_us;
    struct redis_link *link; /* that has the call; NULL: none yet */
    bool retried;            /* the link's: sent again as EVAL after NOSCRIPT */
    unsigned redirects;      /* a cluster's: how often another node was named */
};

/* What the link reports upward; all may be NULL, and run from the event loop, or from inside redis_link_new.
 */
struct redis_link_watch {
    void (*ready)(void *context);                               /* answers may be asked for */
    void (*not_ready)(void *context, enum redis_failure cause); /* none will be accepted until ready */
    void *context;
    bool quiet; /* others say what is wrong with this Redis */
    /* A node of a cluster answered `error`, MOVED, ASK or CLUSTERDOWN: true takes the call over, to give it to another link with
     * redis_link_pass. `arguments` are the `argc` behind the SHA as they were sent; they live until it returns. */
    bool (*redirected)(void *context, struct redis_call *call, const char *error, int argc,
                       struct slice arguments);
};

/* Creates the link and starts to connect to `address`, where that has a length; else it waits for
 * redis_link_set_address. `settings` (all but where Redis is) and `script`, the whole Lua text, outlive the link. Log
 * lines name the address, the cause and what to do, once a change of state. */
struct redis_link *redis_link_new(struct event_base *base, const struct redis_settings *settings,
                                  const struct address *address, struct slice script,
                                  const struct redis_link_watch *watch);

/* Connect to another address from now on: the master is elsewhere. Calls under way end as when a connection is lost.
 * False: it is the same address, and nothing was done. */
bool redis_link_set_address(struct redis_link *link, const struct address *address);

bool redis_link_is_ready(const struct redis_link *link);

/* Where it connects to, as text; it lasts until another address is set. */
const char *redis_link_address(const struct redis_link *link);

/* After a failure few calls may be under way at once until answers come in time, see redis_slow_start.h. False: whoever can, keeps
 * the next call back until one is answered. Calls are accepted all the same. */
bool redis_link_has_room(const struct redis_link *link);

/* Why it is not ready, while it is not; DOWN: nothing has been tried in vain yet. */
enum redis_failure redis_link_cause(const struct redis_link *link);

/* The state of the circuit breaker: asked freely, asked with care, not asked. Worse ones are larger. */
enum redis_breaker { REDIS_BREAKER_CLOSED, REDIS_BREAKER_HALF_OPEN, REDIS_BREAKER_OPEN };
enum redis_breaker redis_link_breaker(const struct redis_link *link);

/* EVALSHA of the link's script with `argc` arguments after the SHA: numkeys, keys..., args... . NOSCRIPT is
 * answered once by EVAL within the same call. False: refused (down, suspect, or too many pending) and `done`
 * will not run. The arguments are copied. Nothing is written until redis_link_flush. */
MUST_CHECK bool redis_link_call(struct redis_link *link, struct redis_call *call, int argc, const char **argv,
                                const size_t *argv_sizes);

/* The same for a call that another node has redirected; `asking`: the node takes the key for this once (ASKING). */
MUST_CHECK bool redis_link_pass(struct redis_link *link, struct redis_call *call, int argc,
                                struct slice arguments, bool asking);

/* Writes what was gathered; once per loop iteration. When the connection turns out dead, `done` runs from inside.
 */
void redis_link_flush(struct redis_link *link);

/* Takes the answers that are there already: `done` of their calls runs from inside. Not from inside its callbacks. */
void redis_link_read(struct redis_link *link);

/* A call's deadline passed with no answer (once a call): enough of these in a row make the link SUSPECT, and
 * a watchdog closes it. `done` of other calls may run from inside. */
void redis_link_note_timeout(struct redis_link *link);

/* Calls without an answer yet. */
unsigned redis_link_pending(const struct redis_link *link);

/* Runs `done` of all pending calls (reply NULL) and frees the link. Not from inside its callbacks. */
void redis_link_free(struct redis_link *link);

#endif
