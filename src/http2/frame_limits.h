/* frame_limits.h - bounds on frames that cost weir more than their sender.
 *
 * Each kind has a token bucket, and credit for the frames that weir has sent and that are answered
 * with frames of this kind. A well-behaved peer stays far below; a peer that exceeds one is sent
 * GOAWAY with ENHANCE_YOUR_CALM (RFC 9113 section 10.5), and the kind is the cause in metrics
 * and logs. */
#ifndef WEIR_HTTP2_FRAME_LIMITS_H
#define WEIR_HTTP2_FRAME_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frame_limit {
    LIMIT_RESETS,         /* CVE-2023-44487, CVE-2025-8671 */
    LIMIT_SETTINGS,       /* CVE-2019-9515 */
    LIMIT_PINGS,          /* CVE-2019-9512 */
    LIMIT_PRIORITIES,     /* CVE-2019-9513 */
    LIMIT_WINDOW_UPDATES, /* CVE-2019-9511 */
    LIMIT_EMPTY_FRAMES,   /* CVE-2019-9518 */
    LIMIT_OTHER_FRAMES, /* unknown types (RFC 9113 section 5.5), and frames that servers do not expect */
    LIMIT_SMALL_WINDOWS, /* CVE-2019-9511, CVE-2019-9517 */
    LIMIT_COUNT
};

/* Tokens in thousandths, and the time to which they were refilled. */
struct frame_limits {
    uint32_t tokens[LIMIT_COUNT];
    uint32_t refilled_ms[LIMIT_COUNT];
    uint32_t resets_per_second;
};

void frame_limits_begin(struct frame_limits *limits, uint32_t resets_per_second, uint64_t now_us);

/* Takes a token. Returns false if none is left. */
bool frame_limits_take(struct frame_limits *limits, enum frame_limit which, uint64_t now_us);

/* Adds credit, because weir has done what the peer may react to, however late. Credit does not
 * expire, and is not bounded by the burst: a peer may first fill its window and then update it. */
void frame_limits_add(struct frame_limits *limits, enum frame_limit which, size_t tokens);

/* Adds the credit for a DATA or HEADERS frame sent, with a payload of `size` bytes. */
void frame_limits_sent(struct frame_limits *limits, size_t size);

#endif
