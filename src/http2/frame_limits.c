#include "http2/frame_limits.h"

enum { THOUSAND = 1000, RESETS_BURST_SECONDS = 2 };

/* LIMIT_RESETS: from http2.resets_per_second. */
static const struct {
    uint32_t burst, per_second;
    uint32_t per_frame_sent; /* tokens for each DATA or HEADERS frame that weir has sent ... */
    uint32_t frame_min;      /* ... with at least so many bytes */
} limit_table[LIMIT_COUNT] = {
    [LIMIT_SETTINGS] = {.burst = 50, .per_second = 5},
    /* gRPC measures the bandwidth with a PING for DATA received */
    [LIMIT_PINGS] = {.burst = 100, .per_second = 10, .per_frame_sent = 1},
    [LIMIT_PRIORITIES] = {.burst = 1000, .per_second = 100, .per_frame_sent = 2},
    /* one for the stream and one for the connection, per DATA frame */
    [LIMIT_WINDOW_UPDATES] = {.burst = 1000, .per_second = 100, .per_frame_sent = 3},
    [LIMIT_EMPTY_FRAMES] = {.burst = 100, .per_second = 10},
    [LIMIT_OTHER_FRAMES] = {.burst = 100, .per_second = 10},
    /* a window that is opened in small steps while much is sent leaves small rests */
    [LIMIT_SMALL_WINDOWS] = {.burst = 1000,
                             .per_second = 50,
                             .per_frame_sent = 2,
                             .frame_min = 1024},
};

static uint32_t burst_of(const struct frame_limits *limits, enum frame_limit which)
{
    return (which == LIMIT_RESETS ? limits->resets_per_second * RESETS_BURST_SECONDS
                                  : limit_table[which].burst) *
           THOUSAND;
}

void frame_limits_begin(struct frame_limits *limits, uint32_t resets_per_second, uint64_t now_us)
{
    limits->resets_per_second = resets_per_second;
    for (enum frame_limit i = 0; i < LIMIT_COUNT; i++) {
        limits->tokens[i] = burst_of(limits, i);
        limits->refilled_ms[i] = (uint32_t)(now_us / 1000);
    }
}

static void add_thousandths(struct frame_limits *limits, enum frame_limit which,
                            uint64_t thousandths)
{
    uint64_t tokens = limits->tokens[which] + thousandths, most = burst_of(limits, which);
    limits->tokens[which] = (uint32_t)(tokens < most ? tokens : most);
}

bool frame_limits_take(struct frame_limits *limits, enum frame_limit which, uint64_t now_us)
{
    uint32_t now_ms = (uint32_t)(now_us / 1000), elapsed_ms = now_ms - limits->refilled_ms[which];
    uint32_t rate =
        which == LIMIT_RESETS ? limits->resets_per_second : limit_table[which].per_second;

    add_thousandths(limits, which,
                    (uint64_t)elapsed_ms * rate); /* per second = thousandths per millisecond */
    limits->refilled_ms[which] = now_ms;
    if (limits->tokens[which] < THOUSAND)
        return false;
    limits->tokens[which] -= THOUSAND;
    return true;
}

void frame_limits_add(struct frame_limits *limits, enum frame_limit which, uint32_t tokens)
{
    add_thousandths(limits, which, (uint64_t)tokens * THOUSAND);
}

void frame_limits_sent(struct frame_limits *limits, size_t size)
{
    for (enum frame_limit i = 0; i < LIMIT_COUNT; i++)
        if (limit_table[i].per_frame_sent && size >= limit_table[i].frame_min)
            frame_limits_add(limits, i, limit_table[i].per_frame_sent);
}
