/* service_listener.h - the listener of rate_limit_service, for the rest of this directory. */
#ifndef WEIR_PROXY_SERVICE_LISTENER_H
#define WEIR_PROXY_SERVICE_LISTENER_H

#include "proxy/exchange_state.h"

/* Returns whether the response is that of a resource; otherwise it is one of weir's own responses
 * to failures (reply.h). */
static inline bool service_answers(const struct exchange *x)
{
    return x->service && x->record.cause == CAUSE_NONE &&
           x->decision_request.decision.verdict != VERDICT_FAILED_CLOSED;
}

/* Writes and sends the response; that of an error, if it is too large. */
enum downstream_sent service_reply_send(struct exchange *x);

/* Ends the request's part of the exchange: counts the call, gives up its decision. */
void service_end(struct exchange *x);

/* Tells the watches of a worker if the health has changed. Call once per loop iteration while
 * service_worker.watch_count is not 0. */
void service_watches_update(struct worker *worker);

/* Returns whether weir should get calls: as /readyz says, and not while it is draining. */
bool service_is_ready(const struct worker *worker);

void service_worker_init(struct worker *worker);
void service_worker_trim(struct worker *worker);
void service_worker_free(struct worker *worker);

#endif
