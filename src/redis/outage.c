#include "redis/outage.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/clock.h"

struct redis_outage {
    LIST_ENTRY(redis_outage) entry;
    char *name;
    unsigned links, down, up;
    bool open;
    uint64_t since_us, until_us; /* of the outage; until the last link became ready, or left */
    uint64_t logged_us;          /* time of the last log line */
    uint32_t logged_causes;      /* bit set of logged causes */
    uint64_t complained_us[REDIS_FAILURE_COUNT];
    uint64_t refusing_us, refused_us; /* first and last error reply; refusing_us 0: calls succeed */
};

static LIST_HEAD(outages, redis_outage) outages = LIST_HEAD_INITIALIZER(outages);
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Caller holds the lock. Returns NULL if out of memory. */
static struct redis_outage *outage_new(const char *name)
{
    struct redis_outage *outage = calloc(1, sizeof *outage);

    if (!outage || !(outage->name = strdup(name))) {
        free(outage);
        return NULL;
    }
    LIST_INSERT_HEAD(&outages, outage, entry);
    return outage;
}

struct redis_outage *redis_outage_join(const char *name)
{
    struct redis_outage *outage;

    pthread_mutex_lock(&lock);
    for (outage = LIST_FIRST(&outages); outage && strcmp(outage->name, name) != 0;)
        outage = LIST_NEXT(outage, entry);
    if (!outage)
        outage = outage_new(name);
    if (outage)
        outage->links++;
    pthread_mutex_unlock(&lock);
    return outage;
}

/* Counts a link by its new state. Caller holds the lock. */
static void count_link(struct redis_outage *outage, enum outage_link before, enum outage_link state)
{
    outage->down -= before == OUTAGE_LINK_DOWN;
    outage->up -= before == OUTAGE_LINK_UP;
    outage->down += state == OUTAGE_LINK_DOWN;
    outage->up += state == OUTAGE_LINK_UP;
}

/* A link is no longer down since `us`. Returns true and closes the outage if no other link is down
 * and at least one is up. Error replies from before end as well: the next one begins anew.
 * Caller holds the lock. */
static bool has_ended(struct redis_outage *outage, uint64_t until_us, uint64_t *us)
{
    if (until_us > outage->until_us)
        outage->until_us = until_us;
    if (!outage->open || outage->down || !outage->up)
        return false;
    outage->open = false;
    if (outage->refused_us <= outage->until_us)
        outage->refusing_us = 0;
    *us = outage->until_us - outage->since_us;
    return true;
}

bool redis_outage_leave(struct redis_outage *outage, enum outage_link state, uint64_t *us)
{
    bool ended = false;

    pthread_mutex_lock(&lock);
    count_link(outage, state, OUTAGE_LINK_NEW);
    if (--outage->links > 0)
        ended = has_ended(outage, state == OUTAGE_LINK_DOWN ? clock_us() : 0, us);
    else {
        LIST_REMOVE(outage, entry);
        free(outage->name);
        free(outage);
    }
    pthread_mutex_unlock(&lock);
    return ended;
}

/* A dead, frozen or unreachable server shows as one of three causes at random: they share a bit. */
static uint32_t bit_of(enum redis_failure cause)
{
    bool unreachable = cause == REDIS_FAILURE_CLOSED || cause == REDIS_FAILURE_CONNECT ||
                       cause == REDIS_FAILURE_TIMEOUT;
    return (uint32_t)1 << (unreachable ? REDIS_FAILURE_CONNECT : cause);
}

enum outage_event redis_outage_down(struct redis_outage *outage, enum outage_link *state,
                                    enum redis_failure cause, uint64_t *us)
{
    enum outage_event event = OUTAGE_KNOWN;

    pthread_mutex_lock(&lock);
    uint64_t now = clock_us(); /* under the lock: never earlier than another thread's report */
    count_link(outage, *state, OUTAGE_LINK_DOWN);
    *state = OUTAGE_LINK_DOWN;
    if (!outage->open) {
        outage->open = true;
        outage->since_us = outage->until_us = now;
        outage->logged_causes = 0;
        event = OUTAGE_BEGINS;
    } else if (!(outage->logged_causes & bit_of(cause)))
        event = OUTAGE_CHANGES;
    else if (now - outage->logged_us >= OUTAGE_REMIND_US)
        event = OUTAGE_LASTS;
    if (event != OUTAGE_KNOWN)
        outage->logged_us = now;
    outage->logged_causes |= bit_of(cause);
    *us = now - outage->since_us;
    pthread_mutex_unlock(&lock);
    return event;
}

bool redis_outage_up(struct redis_outage *outage, enum outage_link *state, uint64_t ready_us,
                     uint64_t *us)
{
    pthread_mutex_lock(&lock);
    count_link(outage, *state, OUTAGE_LINK_UP);
    *state = OUTAGE_LINK_UP;
    bool ended = has_ended(outage, ready_us, us);
    pthread_mutex_unlock(&lock);
    return ended;
}

bool redis_outage_may_complain(struct redis_outage *outage, enum redis_failure cause,
                               uint64_t every_us)
{
    pthread_mutex_lock(&lock);
    uint64_t now = clock_us();
    bool may = outage->complained_us[cause] == 0 || now - outage->complained_us[cause] >= every_us;
    if (may)
        outage->complained_us[cause] = now;
    pthread_mutex_unlock(&lock);
    return may;
}

void redis_outage_refused(struct redis_outage *outage, uint64_t us)
{
    pthread_mutex_lock(&lock);
    if (outage->refusing_us == 0)
        outage->refusing_us = us;
    if (us > outage->refused_us)
        outage->refused_us = us;
    pthread_mutex_unlock(&lock);
}

bool redis_outage_accepted(struct redis_outage *outage, uint64_t calm_us, uint64_t *us, bool *over)
{
    uint64_t now = clock_us();

    pthread_mutex_lock(&lock);
    *over = outage->refusing_us == 0;
    bool calm = !*over && !outage->open && now >= outage->refused_us + calm_us;
    if (calm) {
        *us =
            outage->refused_us > outage->refusing_us ? outage->refused_us - outage->refusing_us : 0;
        outage->refusing_us = 0;
        *over = true;
    }
    pthread_mutex_unlock(&lock);
    return calm;
}

bool redis_outage_any_refuses(uint64_t within_us)
{
    const struct redis_outage *outage;
    uint64_t now = clock_us();
    bool any = false;

    pthread_mutex_lock(&lock);
    LIST_FOREACH (outage, &outages, entry)
        any |= outage->refusing_us && now < outage->refused_us + within_us;
    pthread_mutex_unlock(&lock);
    return any;
}
