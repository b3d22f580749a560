/* retry.h - decides whether a request is sent again: one table and one function.
 *
 * If no connection could be made, nothing was sent: any request may go to the next server. A
 * request that was sent goes to another server only if all of these are true:
 *   - repeating it is safe (RFC 9110 section 9.2.2);
 *   - the client has received no part of a response;
 *   - the upstream's retry limits (retry.tries, retry.budget) allow it.
 * The limits keep retries from multiplying the load on overloaded servers. */
#ifndef WEIR_PROXY_RETRY_H
#define WEIR_PROXY_RETRY_H

#include <stdbool.h>
#include <stdint.h>

struct exchange;

/* name, label in metrics */
#define RETRY_CAUSES(X)                                                                                      \
    X(RETRY_NONE, "none")               /* the first try */                                                  \
    X(RETRY_IDLE_CLOSED, "idle_closed") /* server closed a reused connection; on a new one */                \
    X(RETRY_CONNECT, "connect")         /* no connection, or no TLS handshake */                             \
    X(RETRY_RESET, "reset")             /* connection ended before any byte of the response */               \
    X(RETRY_TIMEOUT, "timeout")         /* no byte of the response within response_timeout */                \
    X(RETRY_502, "502")                                                                                      \
    X(RETRY_503, "503")                                                                                      \
    X(RETRY_504, "504")

enum retry_cause {
#define X(name, label) name,
    RETRY_CAUSES(X)
#undef X
        RETRY_CAUSE_COUNT
};

extern const char *const retry_label[RETRY_CAUSE_COUNT];

/* Returns whether the request may be sent again after failure `cause`. If a budget applies and
 * the retry is allowed, charges it to the upstream's retry budget and marks the server as
 * tried. */
bool retry_may(struct exchange *x, enum retry_cause cause);

/* Maps a response status to its retry cause. RETRY_NONE: no retry. */
static inline enum retry_cause retry_cause_of_status(uint16_t status)
{
    if (status < 502)
        return RETRY_NONE;
    return status == 502 ? RETRY_502 : status == 503 ? RETRY_503 : status == 504 ? RETRY_504 : RETRY_NONE;
}

#endif
