/* postgres_link.h - one connection to PostgreSQL that asks one query, for one id at a time, and never blocks.
 *
 *   DOWN --timer--> CONNECTING --SET statement_timeout--> IDLE <--> BUSY
 *    ^                  |                                            |
 *    `------------------+------------- link_fail(cause) -------------'
 *
 * Whatever goes wrong ends the connection, and after a while it is made anew; a connection that was merely lost is made
 * anew at once. It counts as down from a failure on until it stands again, or, where it was the query that failed, until
 * one has succeeded: whoever asks meanwhile need not wait for it. */
#ifndef WEIR_QUOTA_POSTGRES_LINK_H
#define WEIR_QUOTA_POSTGRES_LINK_H

#include <event2/event.h>

#include "policy/policy.h"
#include "quota/quota_row.h"

/* Was weir built with libpq? */
bool postgres_is_there(void);

struct postgres_link;

enum postgres_result {
    POSTGRES_ROW,    /* or the knowledge that there is none */
    POSTGRES_LOST,   /* the connection was lost under the query: it may be asked again */
    POSTGRES_FAILED, /* the query was refused, or took too long */
};

/* All run from the event loop, never from inside a call of the link. */
struct postgres_watch {
    void (*idle)(void *context); /* a query may be asked */
    void (*down)(void *context);
    /* The answer to the query: once for each that was asked, but for those under way in postgres_link_free. */
    void (*done)(void *context, enum postgres_result result, const struct quota_row *row);
    void *context;
};

/* Starts to connect; `settings` outlives the link. Ends the process when there is no memory; NULL where weir was built
 * without libpq. One log line a change of state. */
struct postgres_link *postgres_link_new(struct event_base *base, const struct quota_settings *settings,
                                        const struct postgres_watch *watch);
/* Not from inside its callbacks. */
void postgres_link_free(struct postgres_link *link);

bool postgres_link_is_idle(const struct postgres_link *link);
bool postgres_link_is_down(const struct postgres_link *link);

/* Where it is idle. The id is copied. */
void postgres_link_ask(struct postgres_link *link, struct slice id);

#endif
