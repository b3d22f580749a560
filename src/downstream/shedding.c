/* shedding.c - frees memory when buffers reach size_limits.memory (net/buffer_memory.h).
 *
 * A connection is judged by its memory, times the longest time for which one of its requests has
 * not moved, at most STILL_MAX_US: a tunnel that has been idle for hours holds little. So a client
 * with a hundred stalled streams goes before one with one slow download, and that one before
 * clients that read. */
#include "downstream/client.h"

enum { BUCKETS = 64, STILL_MAX_US = 60 * 1000000 };

/* What one connection holds. */
struct holding {
    size_t bytes;    /* 0: nothing */
    unsigned bucket; /* logarithm of memory times time, base 2 */
};

/* The requests reset by one call. */
struct shed {
    unsigned requests, most; /* most: of one connection */
    char client[ADDRESS_TEXT_MAX];
};

static struct holding holding_of(const struct client *c, uint64_t now_us)
{
    uint64_t still_us = 0;
    size_t bytes = c->protocol->memory(c, now_us, &still_us);
    uint64_t time_us = still_us < STILL_MAX_US ? still_us : STILL_MAX_US;
    uint64_t product = (bytes / 1024 + 1) * (time_us / 1000 + 1);

    return (struct holding){bytes, 63 - (unsigned)__builtin_clzll(product)};
}

struct survey {
    uint64_t now_us, target;
    uint64_t bytes[BUCKETS]; /* memory of the connections in each bucket */
    unsigned lowest;         /* the lowest bucket that is shed from */
    struct shed *shed;
};

static void add_holding(struct client *c, void *context)
{
    struct survey *survey = context;
    struct holding held = holding_of(c, survey->now_us);

    survey->bytes[held.bucket] += held.bytes;
}

/* Returns the highest bucket that has, with those above it, at least `wanted` bytes. */
static unsigned lowest_bucket(const struct survey *survey, uint64_t wanted)
{
    unsigned bucket = BUCKETS - 1;
    uint64_t sum = survey->bytes[bucket];

    while (bucket > 0 && sum < wanted)
        sum += survey->bytes[--bucket];
    return bucket;
}

static void shed_one(struct client *c, void *context)
{
    struct survey *survey = context;
    struct holding held = {0};
    struct address address;

    if (memory_used() >= survey->target)
        held = holding_of(c, survey->now_us);
    if (held.bytes == 0 || held.bucket < survey->lowest)
        return;
    unsigned requests = c->protocol->shed(c);
    survey->shed->requests += requests;
    if (requests > survey->shed->most) {
        survey->shed->most = requests;
        address_format(address_of_peer(&c->origin.peer, &address), survey->shed->client);
    }
}

void clients_shed(struct worker *w)
{
    uint64_t limit = memory_limit();
    struct shed shed = {0};
    struct survey survey = {.now_us = clock_us(), .target = limit - limit / 20, .shed = &shed};
    uint64_t used = memory_used();

    if (used < survey.target)
        return;
    clients_for_each(w, add_holding, &survey);
    survey.lowest = lowest_bucket(&survey, used - survey.target);
    clients_for_each(w, shed_one, &survey);
    if (shed.requests)
        memory_log(MEMORY_FULL, shed.requests, shed.client);
}

void clients_trim(struct worker *w)
{
    free_list_trim(&w->downstream->free_clients);
}
