/* dry_run.h - runs the steps of one request up to its server, without a client, a server, Redis and
 * a database: for weir explain. It runs the steps that exchange_wake() runs, and stops where the
 * request would be held, sent to a server, or answered. It charges, connects and logs nothing.
 *
 * One dry run is for one request at a time. It may be used again after dry_run_end(). */
#ifndef WEIR_PROXY_DRY_RUN_H
#define WEIR_PROXY_DRY_RUN_H

#include "limit/limiter.h"
#include "proxy/cause.h"
#include "proxy/downstream.h"
#include "quota/quotas.h"

/* What a dry run asks in place of the database and of Redis. */
struct dry_run_answers {
    /* Sets the outcome of a lookup in the database, and its row. */
    void (*quota)(struct dry_run_answers *answers, const struct identity *identity,
                  enum quota_outcome *outcome, struct quota_row *row);
    /* Sets the decision of limits; see struct limiter_observer. */
    void (*decide)(struct dry_run_answers *answers, const struct planned_limit *limits,
                   unsigned count, struct decision *decision);
};

/* A request. `head` and `content` must stay until dry_run_end(). */
struct dry_request {
    struct request_head *head;
    struct framing framing;
    struct slice content;
    struct client_origin origin;
};

/* How the request ends. */
struct dry_run_result {
    uint16_t status;  /* of weir's own response; 0: the request is forwarded */
    enum cause cause; /* CAUSE_NONE: forwarded, or the limits reject it */
    const char *why;  /* detail of the cause (static text), or NULL */
};

struct dry_run;

/* Creates a dry run; holds `policy`. NULL: no memory. */
struct dry_run *dry_run_new(struct policy *policy, struct dry_run_answers *answers);
void dry_run_free(struct dry_run *run);

/* Runs a request. Its exchange stays as it is until dry_run_end(). Returns false if out of
 * memory. */
MUST_CHECK bool dry_run_request(struct dry_run *run, const struct dry_request *request,
                                struct dry_run_result *result);
/* The exchange of the request: its rule, its decision and the header to forward. NULL: none. Its
 * worker's `incoming` has the identity and the limits from the database. */
struct exchange *dry_run_exchange(struct dry_run *run);
void dry_run_end(struct dry_run *run);

#endif
