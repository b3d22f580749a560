#include "worker/worker.h"

#include "base/clock.h"
#include "downstream/client.h"
#include "downstream/downstream_worker.h"
#include "proxy/exchange.h"

enum {
    TRIM_US = 1000000, /* memory that is not needed for this time is freed */
    SHED_US = 10000 /* time to the next search for requests to reset, if one has freed too little */
};

static void trim(struct worker *w)
{
    iobuf_pool_trim(&w->buffers);
    exchanges_trim(w);
    clients_trim(w);
}

static void trim_passed(struct deadline *deadline)
{
    trim(CONTAINER_OF(deadline, struct worker, trim));
}

void worker_memory_init(struct worker *w)
{
    deadline_queue_init(&w->deadlines, &w->trim_queue, trim_passed);
}

static bool has_free_memory(const struct worker *w)
{
    return w->buffers.free[0].first || w->buffers.free[1].first || w->free_exchanges.first ||
           w->downstream->free_clients.first;
}

/* The other workers free what they keep for reuse, and reset requests of theirs. */
static void wake_others(const struct worker *w)
{
    for (unsigned i = 0; i < w->shared->workers; i++)
        if (w->shared->all[i] != w)
            worker_wake(w->shared->all[i]);
}

static void check_high(struct worker *w)
{
    uint64_t now = clock_cached_us();

    trim(w);
    if (memory_level() == MEMORY_FULL && now - w->shed_in_vain_us >= SHED_US) {
        clients_shed(w);
        if (memory_level() == MEMORY_FULL) {
            w->shed_in_vain_us = now;
            wake_others(w);
        }
    }
    w->buffers.memory.level = (uint8_t)memory_level();
    if (w->buffers.memory.level != MEMORY_LOW)
        memory_log(MEMORY_HIGH, 0, NULL);
}

void worker_memory_check(struct worker *w)
{
    w->buffers.memory.level = (uint8_t)memory_level();
    if (w->buffers.memory.level != MEMORY_LOW)
        check_high(w);
    if (!deadline_is_armed(&w->trim) && has_free_memory(w))
        deadline_arm(&w->trim_queue, &w->trim, clock_cached_us(), TRIM_US);
}
