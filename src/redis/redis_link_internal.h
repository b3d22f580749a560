/* redis_link_internal.h - shared by redis_link.c, redis_link_io.c, redis_link_outage.c,
 * redis_link_setup.c and calls.c only. */
#ifndef WEIR_REDIS_REDIS_LINK_INTERNAL_H
#define WEIR_REDIS_REDIS_LINK_INTERNAL_H

#include "redis/redis_link.h"

#include <hiredis/async.h>
#include <sys/queue.h>

#include "base/magic.h"
#include "redis/outage.h"
#include "redis/redis_reply_reader.h"
#include "redis/secure.h"
#include "redis/slow_start.h"

enum { SHA_SIZE = 40, REDIS_LINK_MAGIC = 0x4c494e4b };

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_READY, LINK_SUSPECT };

TAILQ_HEAD(sent_call_list, sent_call);

struct redis_link {
    uint32_t magic;
    struct event_base *base;
    const struct redis_settings *settings;
    struct slice script;
    struct redis_link_watch watch;
    struct address address;
    char address_text[ADDRESS_TEXT_MAX];

    enum link_state state;
    redisAsyncContext *ac; /* NULL when DOWN; hiredis owns it */
    struct tls_pump *tls;  /* under ac; NULL: no TLS, or DOWN */
    bool holds_writes;     /* commands given to hiredis wait for the flush */
    bool has_held;         /* there are such commands */
    bool replied;          /* a reply was received on this connection */
    bool freeing;
    enum redis_failure cause; /* of the last failure */
    struct redis_reply_reader reader;
    struct redis_slow_start slow_start; /* after a failure */

    struct sent_call_list waiting, spare;
    unsigned spare_count;
    unsigned pending;    /* number of calls in `waiting` */
    unsigned unanswered; /* all commands without a reply, including set-up and PING */
    char sha[SHA_SIZE + 1];
    bool loading_script; /* a SCRIPT LOAD after NOSCRIPT is in flight */

    struct event *retry_timer;   /* DOWN: reconnect; SUSPECT: next PING */
    struct event *connect_timer; /* CONNECTING: limits the time until READY */
    struct event *watchdog;      /* armed while replies are pending (approximately) */
    struct event *idle_timer;    /* READY: the next PING if no command is under way */
    uint64_t retry_us;           /* next back-off delay */
    uint64_t down_since_us;      /* 0: has not failed, or has recovered */
    unsigned timeouts, unfit;    /* consecutive */
    uint64_t ping_us;            /* when the PING was sent; 0: none */
    uint64_t complained_us[REDIS_FAILURE_COUNT];
    /* outage record shared by all workers' links to this Redis; NULL: watch.quiet */
    struct redis_outage *outage;
    enum outage_link outage_link; /* as counted there */
    struct event *recovery_timer; /* READY: fires when the link may count as recovered */
    uint64_t ready_us;            /* when it last became READY */
    bool answered;                /* a call was answered in time since ready_us */
    bool relapsed;                /* it failed before it counted as recovered */
    /* a call was answered with an error, and the end of the errors is not logged yet */
    bool refusing;
    uint64_t refused_us; /* when `outage` was last logged */
    bool moving;         /* closed because of a new address: log nothing */
};

static inline struct redis_link *redis_link_of(void *pointer)
{
    struct redis_link *link = pointer;
    MAGIC_CHECK(link, REDIS_LINK_MAGIC);
    return link;
}

/* ---- redis_link.c ---- */

/* Closes the connection. All pending calls fail with `cause`: at once, or, if called from inside
 * one of hiredis' reply callbacks, right after it returns. Must not be called from hiredis'
 * connect and disconnect callbacks. */
void redis_link_close(struct redis_link *link, enum redis_failure cause, const char *detail);

/* Set-up is complete: calls are accepted. */
void redis_link_ready(struct redis_link *link);

/* Call first in every reply callback. Returns the link that `ac` belongs to and decrements
 * `unanswered`. */
struct redis_link *redis_link_answered(redisAsyncContext *ac, const struct redis_reply *reply);

/* A call was answered in time: the breaker may close. */
void redis_link_note_good(struct redis_link *link);

/* Redis answered that it cannot serve at present (`failure`). Several of these in a row close
 * the connection and log that. Outside of a cluster, one READONLY or MASTERDOWN does. Returns true
 * if the connection was closed. */
MUST_CHECK bool redis_link_note_unfit(struct redis_link *link, enum redis_failure failure,
                                      const char *message);

/* Starts the watchdog: a command is now unanswered. */
void redis_link_start_watchdog(struct redis_link *link);

/* ---- redis_link_io.c ---- */

/* Starts to connect. Returns false on failure, and sets `why`; link->ac may be set then. */
enum { REDIS_LINK_WHY_MAX = 128 };
MUST_CHECK bool redis_link_open(struct redis_link *link, char why[static REDIS_LINK_WHY_MAX]);
/* Attaches link->ac to the event loop. Returns false if out of memory. */
MUST_CHECK bool redis_link_attach(struct redis_link *link);
/* Pass a command to hiredis, which calls `callback` once, also if the connection ends. Return false
 * if out of memory: then the callback does not run, and the link may be about to close. The
 * formatted command is followed by a NUL. */
MUST_CHECK bool redis_link_command(struct redis_link *link, redisCallbackFn *callback, void *arg,
                                   int argc, const char **argv, const size_t *sizes);
MUST_CHECK bool redis_link_formatted(struct redis_link *link, redisCallbackFn *callback, void *arg,
                                     const char *command, size_t size);
/* Writes the commands that were held for the flush. */
void redis_link_write_held(struct redis_link *link);

/* ---- redis_link_outage.c ---- */

/* Logs that the link is down. `detail` may be NULL. */
void redis_link_report_down(struct redis_link *link, enum redis_failure cause, const char *detail);
/* The link is READY: it counts as recovered if it works for a second. */
void redis_link_watch_recovery(struct redis_link *link);
void redis_link_on_recovery_timer(evutil_socket_t fd, short what, void *arg);
/* The link has recovered; logs the end of the outage. */
void redis_link_recovered(struct redis_link *link);
/* A link that is down is freed (for example, after a reload with a corrected password). This may
 * end the outage if all other links are up. */
void redis_link_leave_outage(struct redis_link *link);

/* ---- redis_link_setup.c ---- */

/* Queues the set-up commands in hiredis. Returns false if out of memory. */
MUST_CHECK bool redis_link_set_up(struct redis_link *link);

/* ---- calls.c ---- */

void redis_calls_init(struct redis_link *link);

/* Returns when the longest-waiting call was written (clock_us); 0: none. */
uint64_t redis_calls_oldest(const struct redis_link *link);

/* A call succeeded after others were answered with errors. */
void redis_calls_accepted(struct redis_link *link);

/* Call only if no call is pending. */
void redis_calls_free(struct redis_link *link);

#endif
