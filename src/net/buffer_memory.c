#include "net/buffer_memory.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"

enum { REPORT_BYTES = 64 * 1024, LOG_INTERVAL_US = 10000000, MIB = 1024 * 1024 };

/* In cache lines of their own: workers read them in each loop iteration. */
static struct {
    _Alignas(64) _Atomic int64_t used;
    _Atomic uint64_t limit;
    _Alignas(64) _Atomic uint64_t logged_us[MEMORY_FULL + 1]; /* of each level; 0: not yet */
    _Atomic bool relief_due;
} process = {.limit = UINT64_MAX};

void memory_set_limit(uint64_t bytes)
{
    atomic_store_explicit(&process.limit, bytes, memory_order_relaxed);
}

uint64_t memory_limit(void)
{
    return atomic_load_explicit(&process.limit, memory_order_relaxed);
}

uint64_t memory_used(void)
{
    int64_t used = atomic_load_explicit(&process.used, memory_order_relaxed);
    return used > 0 ? (uint64_t)used : 0; /* a pool may report before another one */
}

enum memory_level memory_level(void)
{
    uint64_t used = memory_used(), limit = memory_limit();
    return used >= limit ? MEMORY_FULL : used >= limit - limit / 10 ? MEMORY_HIGH : MEMORY_LOW;
}

void memory_report(struct buffer_memory *memory)
{
    atomic_fetch_add_explicit(&process.used, memory->unreported, memory_order_relaxed);
    memory->unreported = 0;
    memory->level = (uint8_t)memory_level();
}

bool memory_has_room(const struct buffer_memory *memory)
{
    uint64_t limit = memory_limit();
    return memory->level != MEMORY_FULL || memory_used() < limit + limit / 8;
}

void memory_take(struct buffer_memory *memory, size_t bytes)
{
    memory->unreported += (int64_t)bytes;
    if (memory->unreported >= REPORT_BYTES)
        memory_report(memory);
}

void memory_give(struct buffer_memory *memory, size_t bytes)
{
    memory->unreported -= (int64_t)bytes;
    if (memory->unreported <= -REPORT_BYTES)
        memory_report(memory);
}

/* ---- log lines ------------------------------------------------------------------------------- */

void memory_log(enum memory_level level, unsigned reset, const char *client)
{
    _Atomic uint64_t *logged_us = &process.logged_us[level];
    uint64_t now = clock_us(), last = atomic_load(logged_us);
    unsigned long long used = memory_used() / MIB, limit = memory_limit() / MIB;

    if ((last && now - last < LOG_INTERVAL_US) ||
        !atomic_compare_exchange_strong(logged_us, &last, now))
        return;
    atomic_store(&process.relief_due, true);
    if (level == MEMORY_FULL)
        log_warn(
            "buffers reached size_limits.memory (%llu MiB): reset %u requests that held the "
            "most and did not move, most of them of client %s; block that client, or raise the "
            "limit",
            limit, reset, client);
    else
        log_warn("buffers use %llu MiB, size_limits.memory is %llu MiB: responses are not read "
                 "from servers while their clients do not take them; if that goes on, find slow "
                 "clients (weir top), or raise the limit",
                 used, limit);
}

void memory_log_relief(void)
{
    if (memory_level() == MEMORY_LOW && atomic_exchange(&process.relief_due, false))
        log_info("buffers use %llu MiB, less than 90 %% of size_limits.memory again",
                 (unsigned long long)memory_used() / MIB);
}
