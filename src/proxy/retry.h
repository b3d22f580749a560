/* retry.h - whether a request is sent again, and to whom: one table and one function.
 *
 * A request whose connection could not be made was not sent: any request may go to the next server. A request that was
 * sent goes to another server only if that does no harm (RFC 9110 section 9.2.2) and nothing of an answer has gone to
 * the client, and not more often than the upstream's budget allows, so that retries do not multiply the load on
 * servers that fail because of it. */
#ifndef WEIR_PROXY_RETRY_H
#define WEIR_PROXY_RETRY_H

#include <stdbool.h>
#include <stdint.h>

struct exchange;

/* name, label in metrics */
#define RETRY_CAUSES(X)                                                                                      \
    X(RETRY_NONE, "none")               /* the first try */                                                  \
    X(RETRY_IDLE_CLOSED, "idle_closed") /* a kept connection was closed by the server; on a fresh one */     \
    X(RETRY_CONNECT, "connect")         /* no connection, or no TLS handshake */                             \
    X(RETRY_RESET, "reset")             /* the connection ended before a byte of the answer */               \
    X(RETRY_TIMEOUT, "timeout")         /* no byte of the answer within response_timeout */                  \
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

/* May the request be sent again, after the failure that `cause` names? Takes the retry from the upstream's budget
 * and marks the server as tried. */
bool retry_may(struct exchange *x, enum retry_cause cause);

/* The cause that stands for an answer's status. RETRY_NONE: no retry. */
static inline enum retry_cause retry_cause_of_status(uint16_t status)
{
    if (status < 502)
        return RETRY_NONE;
    return status == 502 ? RETRY_502 : status == 503 ? RETRY_503 : status == 504 ? RETRY_504 : RETRY_NONE;
}

#endif
