/* link_internal.h - what link.c (the connection) and calls.c (what is asked of it) share. Nobody else includes it. */
#ifndef WEIR_REDIS_LINK_INTERNAL_H
#define WEIR_REDIS_LINK_INTERNAL_H

#include "redis/link.h"

#include <hiredis/async.h>
#include <sys/queue.h>

#include "redis/guard.h"
#include "redis/outage.h"
#include "redis/slow_start.h"

enum { SHA_SIZE = 40 };

enum link_state { LINK_DOWN, LINK_CONNECTING, LINK_READY, LINK_SUSPECT };

TAILQ_HEAD(sent_list, sent);

struct redis_link {
    uint32_t magic;
    struct event_base *base;
    const struct redis_settings *settings;
    struct slice script;
    struct redis_link_watch watch;
    struct address address;
    char address_text[ADDRESS_TEXT_MAX];

    enum link_state state;
    redisAsyncContext *ac;                  /* NULL when DOWN; hiredis owns it */
    struct event *read_event, *write_event; /* of ac's socket */
    bool wants_write;                       /* hiredis has bytes to write */
    bool freeing;
    enum redis_failure cause; /* of the last way down */
    struct redis_guard guard;
    struct redis_slow_start slow_start; /* after a failure */

    struct sent_list waiting, spare;
    unsigned pending;    /* length of waiting */
    unsigned unanswered; /* all commands given to hiredis, set-up and PING among them */
    char sha[SHA_SIZE + 1];
    bool loading_script; /* a SCRIPT LOAD is under way since NOSCRIPT */

    struct event *retry_timer;   /* DOWN: connect again; SUSPECT: the next PING */
    struct event *connect_timer; /* CONNECTING: until READY */
    struct event *watchdog;      /* armed while anything is unanswered, roughly */
    uint64_t retry_us;           /* the next back-off */
    uint64_t down_since_us;      /* 0: it has not failed, or counts as good again */
    unsigned timeouts, unfit;    /* in a row */
    uint64_t ping_us;            /* when the PING went out, 0: none */
    uint64_t complained_us[REDIS_FAILURE_COUNT];
    struct redis_outage *outage; /* of this Redis, common to the links of all workers; NULL: watch.quiet */
    bool in_outage;              /* counted there as down */
    struct event *settle_timer;  /* READY: until the link counts as good again */
    uint64_t ready_us;           /* when it became READY last */
    bool answered;               /* a call was answered in time since then */
    bool relapsed;               /* it failed before it counted as good again */
    bool refusing;       /* a call was answered with an error, and the log does not say yet that it is over */
    uint64_t refused_us; /* when that was last told to `outage` */
    bool moving;         /* it is being closed for another address: nothing to complain of */
};

/* ---- link.c ---- */

/* Gives the connection up. All pending calls are answered with `cause`, at once or, from inside one of
 * hiredis' reply callbacks, right after it returns. Never from its connect and disconnect callbacks. */
void redis_link_close(struct redis_link *link, enum redis_failure cause, const char *detail);

/* The set-up has been answered: calls may be asked. */
void redis_link_ready(struct redis_link *link);

/* At the top of every reply callback: the link that `ac` belongs to, with one command less unanswered. */
struct redis_link *redis_link_answered(redisAsyncContext *ac, const redisReply *reply);

/* A call was answered in time: the breaker may close. */
void redis_link_note_good(struct redis_link *link);

/* Redis said that it cannot serve for now (`failure`); enough of these in a row close the connection. */
void redis_link_note_unfit(struct redis_link *link, enum redis_failure failure, const char *message);

/* Something is unanswered from now on. */
void redis_link_start_watchdog(struct redis_link *link);

/* ---- link_setup.c ---- */

/* Gives hiredis the commands of the set-up. False: no memory. */
MUST_CHECK bool redis_link_set_up(struct redis_link *link);

/* ---- calls.c ---- */

void redis_calls_init(struct redis_link *link);

/* When the call that has waited longest was written (clock_us); 0: none waits. */
uint64_t redis_calls_oldest(const struct redis_link *link);

/* A call was answered well after others were refused. */
void redis_calls_accepted(struct redis_link *link);

/* Once none waits. */
void redis_calls_free(struct redis_link *link);

#endif
