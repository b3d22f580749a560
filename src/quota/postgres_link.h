/* postgres_link.h - one non-blocking PostgreSQL connection that runs one query for one id at a
 * time.
 *
 *   DOWN --timer--> CONNECTING --SET statement_timeout--> IDLE <--> BUSY
 *    ^                  |                                            |
 *    `------------------+------------- link_fail(cause) -------------'
 *
 * Every failure closes the connection, and weir reconnects with back-off. If the connection was
 * merely lost, weir reconnects at once. After a failed attempt or a failed query, the next attempt
 * begins with the next server of the connection string.
 *
 * The link counts as down from a failure until it is connected again. If the query failed, it
 * counts as down until a query succeeds. While it is down, callers need not wait for it. */
#ifndef WEIR_QUOTA_POSTGRES_LINK_H
#define WEIR_QUOTA_POSTGRES_LINK_H

#include <event2/event.h>

#include "policy/policy.h"
#include "quota/quota_row.h"

/* Returns true if weir was built with libpq. */
bool postgres_is_there(void);

struct postgres_link;

enum postgres_result {
    POSTGRES_ROW,    /* the query completed; there may be no row */
    POSTGRES_LOST,   /* the connection was lost during the query: retry */
    POSTGRES_FAILED, /* the query was rejected or timed out */
};

/* All run from the event loop, never from inside a function of the link. */
struct postgres_watch {
    void (*idle)(void *context); /* a query can be started */
    void (*down)(void *context);
    /* The query's result. Runs once per query, except for queries in flight at
     * postgres_link_free(). */
    void (*done)(void *context, enum postgres_result result, const struct quota_row *row);
    void *context;
};

/* Starts to connect; `settings` must outlive the link. Returns NULL if
 * out of memory, or if weir was built without libpq. Logs one line per change of state. */
struct postgres_link *postgres_link_new(struct event_base *base,
                                        const struct quota_settings *settings,
                                        const struct postgres_watch *watch);
/* Must not be called from inside its callbacks. */
void postgres_link_free(struct postgres_link *link);

bool postgres_link_is_idle(const struct postgres_link *link);
bool postgres_link_is_down(const struct postgres_link *link);

/* Starts the query for `id`, which is copied. The link must be idle. */
void postgres_link_query(struct postgres_link *link, struct slice id);

#endif
