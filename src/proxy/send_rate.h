/* send_rate.h - whether a client takes its responses fast enough.
 *
 * While weir holds unsent bytes, the client has timeouts.send to take them. A write renews that
 * time only if the client took timeouts.send_min_rate since the last renewal. Otherwise one octet
 * per minute would keep a connection open without end.
 *
 * The kernel may report room for further writes late, because its send buffer is large. So after
 * half of the time, weir marks the number of bytes that the client has acknowledged. It checks the
 * growth after each further half, until the client has taken all bytes that weir holds. A rate of 0
 * requires a byte in two halves, so a client that pauses is late after at most one and a half times
 * the time. Surplus bytes count for at most another timeouts.send, because the client's kernel
 * acknowledges a slow reader's bytes in bursts.
 *
 * The caller has a deadline of timeouts.send / 2. `taken` counts the bytes that the client has
 * taken, as in struct downstream_ops. If the count has become smaller, it is one of another kind:
 * the client counts as fast. */
#ifndef WEIR_PROXY_SEND_RATE_H
#define WEIR_PROXY_SEND_RATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/macros.h"

struct timeouts;

struct rate_mark {
    uint64_t since_us; /* its time */
    uint64_t bytes;    /* the bytes until then, less the surplus that still counts */
};

struct send_rate {
    struct rate_mark mark; /* of the client's count */
    uint64_t kept_us;      /* when the client last kept the rate, or the wait began */
    bool exact;            /* the count of the mark is exact */
};

/* Returns false if the bytes since the mark are fewer than `rate` (bytes per second) requires.
 * Otherwise moves the mark to `now_us`. Surplus bytes count for at most another `period_us`. */
MUST_CHECK bool rate_mark_move(struct rate_mark *mark, uint64_t rate, uint64_t period_us,
                               uint64_t now_us, uint64_t bytes);

/* The wait for the client begins. The caller arms the deadline. */
void send_rate_begin(struct send_rate *rate, uint64_t now_us, uint64_t taken);
/* The client has taken some bytes. Returns whether the caller is to arm the deadline again. */
MUST_CHECK bool send_rate_moved(struct send_rate *rate, const struct timeouts *timeouts,
                                uint64_t now_us, uint64_t taken);
/* The deadline has passed; `taken` is exact. Returns false if the client is late; otherwise the
 * caller arms the deadline again. */
MUST_CHECK bool send_rate_renew(struct send_rate *rate, const struct timeouts *timeouts,
                                uint64_t now_us, uint64_t taken);

#endif
