#include "http2/frame_limits.h"

enum {
    KIB = 1024,
    THOUSAND = 1000,
    RESETS_BURST_SECONDS = 2,
    CREDIT_MAX = 1000 * 1000 /* tokens: about 1 GiB of DATA, the largest window that Go grants */
};

/* LIMIT_RESETS: from http2.resets_per_second. */
static const struct {
    uint32_t burst, per_second;
    uint32_t per_frame_sent; /* tokens for each DATA or HEADERS frame that weir has sent ... */
    uint32_t frame_min;      /* ... with at least so many bytes */
    uint32_t per_kib_sent;   /* tokens for each KiB of their payload */
} limit_table[LIMIT_COUNT] = {
    [LIMIT_SETTINGS] = {.burst = 50, .per_second = 5},
    /* gRPC measures the bandwidth with a PING for DATA received */
    [LIMIT_PINGS] = {.burst = 100, .per_second = 10, .per_frame_sent = 1},
    [LIMIT_PRIORITIES] = {.burst = 1000, .per_second = 100, .per_frame_sent = 2},
    /* Go updates the windows of stream and connection for every 4 KiB. Other peers update both for
     * every DATA frame, however small. */
    [LIMIT_WINDOW_UPDATES] = {.burst = 1000,
                              .per_second = 100,
                              .per_frame_sent = 3,
                              .per_kib_sent = 1},
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

/* Adds the tokens for the time since the last call, up to the burst. Tokens above it are credit. */
static void refill(struct frame_limits *limits, enum frame_limit which, uint64_t now_us)
{
    uint32_t now_ms = (uint32_t)(now_us / 1000), elapsed_ms = now_ms - limits->refilled_ms[which];
    uint32_t rate =
        which == LIMIT_RESETS ? limits->resets_per_second : limit_table[which].per_second;
    uint32_t most = burst_of(limits, which);

    limits->refilled_ms[which] = now_ms;
    if (limits->tokens[which] < most) {
        uint64_t tokens = limits->tokens[which] +
                          (uint64_t)elapsed_ms * rate; /* per second = thousandths per ms */
        limits->tokens[which] = (uint32_t)(tokens < most ? tokens : most);
    }
}

bool frame_limits_take(struct frame_limits *limits, enum frame_limit which, uint64_t now_us)
{
    refill(limits, which, now_us);
    if (limits->tokens[which] < THOUSAND)
        return false;
    limits->tokens[which] -= THOUSAND;
    return true;
}

void frame_limits_add(struct frame_limits *limits, enum frame_limit which, size_t tokens)
{
    uint64_t sum = limits->tokens[which] + (uint64_t)tokens * THOUSAND;
    uint32_t most = burst_of(limits, which) + CREDIT_MAX * THOUSAND;
    limits->tokens[which] = (uint32_t)(sum < most ? sum : most);
}

void frame_limits_sent(struct frame_limits *limits, size_t size)
{
    for (enum frame_limit i = 0; i < LIMIT_COUNT; i++)
        if (limit_table[i].per_frame_sent && size >= limit_table[i].frame_min)
            frame_limits_add(limits, i,
                             limit_table[i].per_frame_sent +
                                 size / KIB * limit_table[i].per_kib_sent);
}
