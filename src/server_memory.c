/* server_memory.c - size_limits.memory, and the return of freed memory to the system.
 *
 * Large buffers are mapped one by one, so free(3) returns them to the system. Other memory stays in
 * malloc's heaps, in pieces between those still in use, until malloc_trim(3). It stops all other
 * allocation for milliseconds, so it is called only after the use of memory has fallen. */
#include <malloc.h>

#include "base/available_memory.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "net/iobuf.h"
#include "server_internal.h"

enum {
    CHECK_SECONDS = 3,
    TRIM_BYTES = 4 << 20,         /* a smaller fall is not worth a call */
    OF_A_CONNECTION = 8 * 1024,   /* memory of a connection beside its buffers, roughly */
    MEMORY_MIN = 64 * 1024 * 1024 /* of the default */
};

void apply_memory_limit(const struct policy *policy)
{
    uint64_t limit = policy->size_limits.memory;

    if (!limit)
        limit = available_memory("/proc/self/cgroup", "/sys/fs/cgroup") / 4;
    if (!policy->size_limits.memory && limit < MEMORY_MIN)
        limit = MEMORY_MIN;
    memory_set_limit(limit);
}

static uint64_t memory_in_use(const struct weir *weir)
{
    uint64_t connections = 0;

    for (unsigned i = 0; i < weir->made; i++)
        connections += counter_read(&worker_stats(weir->workers[i])->connections_open);
    return memory_used() + connections * OF_A_CONNECTION;
}

static void on_memory_check(evutil_socket_t fd, short what, void *arg)
{
    struct weir *weir = arg;
    uint64_t used = memory_in_use(weir);
    (void)fd, (void)what;

    memory_log_relief();
    if (used > weir->memory_peak)
        weir->memory_peak = used;
    if (weir->memory_peak - used < TRIM_BYTES)
        return;
    weir->memory_peak = used;
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}

bool memory_start(struct weir *weir)
{
    struct timeval interval = {CHECK_SECONDS, 0};

#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, IOBUF_LARGE);
#endif
    apply_memory_limit(weir->first);
    log_info("buffers may use %llu MiB (size_limits.memory)",
             (unsigned long long)(memory_limit() >> 20));
    weir->memory = event_new(weir->base, -1, EV_PERSIST, on_memory_check, weir);
    return weir->memory && event_add(weir->memory, &interval) == 0;
}

void memory_stop(struct weir *weir)
{
    event_drop(weir->memory);
}
