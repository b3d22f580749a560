#include "downstream/handoff.h"

#include <unistd.h>

enum { DIFFERENCE_MIN = 4 }; /* minimum difference to pass one on; plus 1/8 of its own */

void handoff_init(struct handoff *handoff)
{
    pthread_mutex_init(&handoff->lock, NULL);
}

void handoff_clear(struct handoff *handoff)
{
    while (handoff->count)
        close(handoff->handed[--handoff->count].fd);
    pthread_mutex_destroy(&handoff->lock);
}

void handoff_open(struct worker *w)
{
    atomic_store(&w->downstream->handoff.takes, true);
}

void handoff_close(struct worker *w)
{
    pthread_mutex_lock(&w->downstream->handoff.lock);
    atomic_store(&w->downstream->handoff.takes, false);
    pthread_mutex_unlock(&w->downstream->handoff.lock);
}

/* ---- slots ----------------------------------------------------------------------------------- */

static unsigned slots_taken(const struct worker *w)
{
    return atomic_load_explicit(&w->downstream->handoff.slots, memory_order_relaxed);
}

/* `max`: from the caller's policy, since that of `w` belongs to its thread. */
static bool take(struct worker *w, unsigned max)
{
    unsigned taken = atomic_fetch_add(&w->downstream->handoff.slots, 1);

    if (max == 0 || taken < max)
        return true;
    slot_free(w);
    return false;
}

bool slot_take_here(struct worker *w)
{
    return take(w, worker_connections_max(w));
}

void slot_take_extra(struct worker *w)
{
    atomic_fetch_add(&w->downstream->handoff.slots, 1);
}

void slot_free(struct worker *w)
{
    atomic_fetch_sub(&w->downstream->handoff.slots, 1);
}

static bool take_at(struct worker *other, const struct worker *w)
{
    return atomic_load(&other->downstream->handoff.takes) &&
           take(other, worker_share_of(w, other->number));
}

/* Chooses the worker with fewer connections of two: the accepting one and a random one. This is
 * nearly as even as choosing the least loaded of all (Mitzenmacher, "The Power of Two Choices in
 * Randomized Load Balancing", 1996), and reads one counter instead of all. */
struct worker *slot_take(struct worker *w)
{
    struct worker **all = w->shared->all;
    unsigned count = all && !w->stopping ? w->shared->workers : 1,
             start = count > 1 ? (unsigned)(worker_random(w) % (count - 1)) + 1 : 0;

    if (count > 1) {
        struct worker *other = all[(w->number + start) % count];
        unsigned here = slots_taken(w);
        if (slots_taken(other) + DIFFERENCE_MIN + here / 8 < here && take_at(other, w))
            return other;
    }
    if (slot_take_here(w))
        return w;
    for (unsigned i = 0; i + 1 < count; i++) {
        struct worker *other = all[(w->number + 1 + (start - 1 + i) % (count - 1)) % count];
        if (take_at(other, w))
            return other;
    }
    return NULL;
}

/* ---- passing --------------------------------------------------------------------------------- */

bool handoff_give(struct worker *to, const struct handed *connection)
{
    struct handoff *handoff = &to->downstream->handoff;

    pthread_mutex_lock(&handoff->lock);
    bool taken = atomic_load(&handoff->takes) && handoff->count < HANDOFFS_MAX;
    if (taken)
        handoff->handed[handoff->count++] = *connection;
    pthread_mutex_unlock(&handoff->lock);
    if (taken)
        worker_wake(to);
    return taken;
}

/* Returns the last one first. Order does not matter: all arrived within one loop iteration. */
bool handoff_receive(struct worker *w, struct handed *connection)
{
    struct handoff *handoff = &w->downstream->handoff;

    pthread_mutex_lock(&handoff->lock);
    bool any = handoff->count > 0;
    if (any)
        *connection = handoff->handed[--handoff->count];
    pthread_mutex_unlock(&handoff->lock);
    return any;
}
