/* retry.h - decides whether a request is sent again: one table and one function.
 *
 * If no connection could be made, nothing was sent: any request may go to the next server. A
 * request that was sent goes to another server only if all of these are true:
 *   - repeating it is safe (RFC 9110 section 9.2.2);
 *   - the client has received no part of a response;
 *   - the upstream's retry limits (retry.tries, retry.budget) allow it.
 * If an HTTP/2 server states that it has not processed a request, it is sent again with any method,
 * with the content that weir has kept (relay.h).
 * The limits keep retries from multiplying the load on overloaded servers. */
#ifndef WEIR_PROXY_RETRY_H
#define WEIR_PROXY_RETRY_H

#include <stdbool.h>

#include "proxy/cause.h"

struct exchange;

/* Returns whether the request may be sent again after failure `cause`. If a budget applies and
 * the retry is allowed, charges it to the upstream's retry budget and marks the server as
 * tried. */
bool retry_may(struct exchange *x, enum retry_cause cause);

/* Retries the request if retry_may() allows it after failure `why`: releases the link and enters
 * CONNECT. If no server can be reached then, the exchange fails with `without_server` (CAUSE_NONE:
 * with the failure of an earlier try, or else with the cause of that). False: no retry, nothing
 * changed. */
bool retry_start(struct exchange *x, enum retry_cause why, enum cause without_server);

/* Maps a response status to the cause with which the request may be sent again. CAUSE_NONE: no
 * retry. */
static inline enum cause cause_of_status(uint16_t status)
{
    if (status < 502)
        return CAUSE_NONE;
    return status == 502   ? CAUSE_STATUS_502
           : status == 503 ? CAUSE_STATUS_503
           : status == 504 ? CAUSE_STATUS_504
                           : CAUSE_NONE;
}

#endif
