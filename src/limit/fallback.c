/* fallback.c - see fallback.h.
 *
 *   fallback -> stripes, each: a mutex, a hash table of chains, and a list in order of use
 *
 * An entry stores a 128-bit fingerprint in place of its key: two SipHash values under independent
 * random keys. So keys of any length take the same memory, and clients that choose their ids cannot
 * make two clients share an entry.
 *
 * A decision over several limits locks its stripes in ascending order and charges one limit
 * after the other. If one of them rejects, it takes back the charges. */
#include "limit/fallback.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/memory.h"
#include "limit/fallback_counts.h"

enum {
    STRIPES_MAX = 64,
    STRIPE_ENTRIES_MIN = 2 * LIMITS_PER_RULE_MAX, /* a decision never evicts its own entries */
    NOBODY = 0xffffffff,                          /* end of a chain or list */
};

struct fallback_entry {
    uint64_t id[2];
    struct fallback_state state;
    uint32_t chain, newer, older; /* indices */
};

struct fallback_stripe {
    pthread_mutex_t lock;
    uint32_t *heads; /* [mask + 1] */
    struct fallback_entry *entries;
    uint32_t used, size;
    uint32_t newest, oldest;
} __attribute__((aligned(64)));

struct fallback {
    struct hash_key keys[2];
    unsigned stripe_count; /* a power of two */
    uint32_t mask;         /* of a stripe's heads */
    struct fallback_stripe *stripes;
};

/* --- The table -------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t n = 1;
    while (n < at_least)
        n *= 2;
    return n;
}

static void stripe_init(struct fallback_stripe *stripe, uint32_t size, uint32_t heads)
{
    pthread_mutex_init(&stripe->lock, NULL);
    stripe->entries = xcalloc(size, sizeof *stripe->entries);
    stripe->heads = xmalloc(heads * sizeof *stripe->heads);
    memset(stripe->heads, 0xff, heads * sizeof *stripe->heads);
    stripe->size = size;
    stripe->newest = stripe->oldest = NOBODY;
}

struct fallback *fallback_new(unsigned entries_max)
{
    struct fallback *fallback = xcalloc(1, sizeof *fallback);
    uint32_t size;

    fallback->keys[0] = hash_key_random();
    fallback->keys[1] = hash_key_random();
    fallback->stripe_count = STRIPES_MAX;
    while (fallback->stripe_count > 1 && entries_max / fallback->stripe_count < STRIPE_ENTRIES_MIN)
        fallback->stripe_count /= 2;
    size = entries_max / fallback->stripe_count;
    if (size < STRIPE_ENTRIES_MIN)
        size = STRIPE_ENTRIES_MIN;
    fallback->mask = power_of_two(size) - 1;
    fallback->stripes = aligned_alloc(64, fallback->stripe_count * sizeof *fallback->stripes);
    if (!fallback->stripes)
        memory_exhausted();
    memset(fallback->stripes, 0, fallback->stripe_count * sizeof *fallback->stripes);
    for (unsigned i = 0; i < fallback->stripe_count; i++)
        stripe_init(&fallback->stripes[i], size, fallback->mask + 1);
    return fallback;
}

void fallback_free(struct fallback *fallback)
{
    if (!fallback)
        return;
    for (unsigned i = 0; i < fallback->stripe_count; i++) {
        pthread_mutex_destroy(&fallback->stripes[i].lock);
        free(fallback->stripes[i].entries);
        free(fallback->stripes[i].heads);
    }
    free(fallback->stripes);
    free(fallback);
}

static void list_unlink(struct fallback_stripe *s, uint32_t i)
{
    struct fallback_entry *e = &s->entries[i];
    *(e->newer == NOBODY ? &s->newest : &s->entries[e->newer].older) = e->older;
    *(e->older == NOBODY ? &s->oldest : &s->entries[e->older].newer) = e->newer;
}

static void list_push(struct fallback_stripe *s, uint32_t i)
{
    struct fallback_entry *e = &s->entries[i];
    e->newer = NOBODY;
    e->older = s->newest;
    *(s->newest == NOBODY ? &s->oldest : &s->entries[s->newest].newer) = i;
    s->newest = i;
}

static uint32_t *head_of(const struct fallback *f, struct fallback_stripe *s, const uint64_t id[2])
{
    return &s->heads[id[1] & f->mask];
}

static void chain_remove(const struct fallback *f, struct fallback_stripe *s, uint32_t i)
{
    uint32_t *at = head_of(f, s, s->entries[i].id);
    while (*at != i)
        at = &s->entries[*at].chain;
    *at = s->entries[i].chain;
}

/* Returns a free entry, or evicts the least recently used one. */
static uint32_t entry_claim(const struct fallback *f, struct fallback_stripe *s)
{
    uint32_t i = s->oldest;
    if (s->used < s->size)
        return s->used++;
    chain_remove(f, s, i);
    list_unlink(s, i);
    return i;
}

static struct fallback_state *state_of(const struct fallback *f, struct fallback_stripe *s,
                                       const uint64_t id[2])
{
    uint32_t *head = head_of(f, s, id), i = *head;

    while (i != NOBODY && (s->entries[i].id[0] != id[0] || s->entries[i].id[1] != id[1]))
        i = s->entries[i].chain;
    if (i == NOBODY) {
        i = entry_claim(f, s);
        s->entries[i] = (struct fallback_entry){.id = {id[0], id[1]}, .chain = *head};
        *head = i;
    } else
        list_unlink(s, i);
    list_push(s, i);
    return &s->entries[i].state;
}

/* --- A decision ------------------------------------------------------------------------------- */

struct entry_ref {
    uint64_t id[2];
    unsigned stripe;
    struct fallback_state *state, before;
};

static uint64_t hash_all(const struct fallback *f, const struct fallback_request *requests,
                         unsigned count, struct entry_ref *refs)
{
    uint64_t stripes = 0; /* one bit per stripe; STRIPES_MAX is 64 */
    for (unsigned i = 0; i < count; i++) {
        refs[i].id[0] = hash_slice(&f->keys[0], requests[i].key);
        refs[i].id[1] = hash_slice(&f->keys[1], requests[i].key);
        refs[i].stripe = (unsigned)(refs[i].id[0] & (f->stripe_count - 1));
        stripes |= (uint64_t)1 << refs[i].stripe;
    }
    return stripes;
}

/* Locks in ascending order to avoid deadlocks. */
static void lock_all(struct fallback *f, uint64_t stripes)
{
    for (; stripes; stripes &= stripes - 1)
        pthread_mutex_lock(&f->stripes[__builtin_ctzll(stripes)].lock);
}

static void unlock_all(struct fallback *f, uint64_t stripes)
{
    for (; stripes; stripes &= stripes - 1)
        pthread_mutex_unlock(&f->stripes[__builtin_ctzll(stripes)].lock);
}

/* Sets the result to the limit's state, as for a request that costs nothing. */
static void read_state(const struct fallback_request *request, const struct entry_ref *ref,
                       int64_t now)
{
    struct fallback_request free = {
        .key = request->key, .reserve = request->reserve, .result = request->result};
    struct fallback_state copy = *ref->state;

    fallback_charge(&copy, &free, now);
}

static bool charge(struct fallback *f, const struct fallback_request *request,
                   struct entry_ref *ref, int64_t now)
{
    ref->state = state_of(f, &f->stripes[ref->stripe], ref->id);
    fallback_renumber(ref->state, request->result, now);
    ref->before = *ref->state;
    fallback_charge(ref->state, request, now);
    if (request->asks && request->result->verdict == VERDICT_ALLOWED) {
        *ref->state = ref->before;
        read_state(request, ref, now);
    }
    return request->result->verdict == VERDICT_ALLOWED;
}

/* Takes back the charges of `count` limits, and sets their results to the state without them. */
static void uncharge(struct fallback_request *requests, struct entry_ref *refs, unsigned count,
                     int64_t now)
{
    for (unsigned i = count; i-- > 0;)
        if (requests[i].result->verdict == VERDICT_ALLOWED)
            *refs[i].state = refs[i].before;
    for (unsigned i = 0; i < count; i++)
        if (requests[i].result->verdict == VERDICT_ALLOWED)
            read_state(&requests[i], &refs[i], now);
}

/* Charges the limits of each descriptor. Returns true if the request is admitted. */
static bool charge_all(struct fallback *f, struct fallback_request *requests, unsigned count,
                       struct entry_ref *refs, int64_t now)
{
    bool admitted = true, rejects = false;
    unsigned quotas = 0, quotas_over = 0;

    for (unsigned i = 0, first = 0; i < count; i++) {
        requests[i].result->local = true;
        rejects = !charge(f, &requests[i], &refs[i], now) || rejects;
        if (i + 1 < count && requests[i + 1].descriptor == requests[i].descriptor)
            continue;
        if (rejects && requests[i].quota)
            uncharge(requests + first, refs + first, i + 1 - first, now);
        admitted &= !rejects || requests[i].quota;
        quotas += requests[i].quota;
        quotas_over += requests[i].quota && rejects && !requests[i].passes;
        rejects = false;
        first = i + 1;
    }
    return admitted && (quotas == 0 || quotas_over < quotas);
}

/* The clock is read under the locks. Otherwise a thread that is interrupted in between would charge
 * by an older time than the one before it. */
bool fallback_decide(struct fallback *f, struct fallback_request *requests, unsigned count)
{
    struct entry_ref few[LIMITS_PER_RULE_MAX], *refs = few;

    if (count > LIMITS_PER_RULE_MAX && !(refs = malloc(count * sizeof *refs)))
        return false;
    uint64_t stripes = hash_all(f, requests, count, refs);
    lock_all(f, stripes);
    int64_t now = (int64_t)clock_wall_us();
    bool admitted = charge_all(f, requests, count, refs, now);
    if (!admitted)
        uncharge(requests, refs, count, now);
    unlock_all(f, stripes);
    if (refs != few)
        free(refs);
    return admitted;
}

bool fallback_refund(struct fallback *f, const struct limit_result *result, struct slice key,
                     uint64_t since_us)
{
    struct fallback_request request = {.key = key};
    struct entry_ref ref;
    uint64_t stripes = hash_all(f, &request, 1, &ref);

    lock_all(f, stripes);
    bool counts = (int64_t)(clock_us() - since_us) < result->reset_us;
    if (counts)
        fallback_uncharge(state_of(f, &f->stripes[ref.stripe], ref.id), result->limit,
                          result->granted, (int64_t)clock_wall_us());
    unlock_all(f, stripes);
    return counts;
}

/* After a reload, the key may be that of a bucket or window. Requests that end do not change it. */
void fallback_add_in_flight(struct fallback *f, struct slice key, int64_t units)
{
    struct fallback_request request = {.key = key};
    struct entry_ref ref;
    uint64_t stripes = hash_all(f, &request, 1, &ref);

    lock_all(f, stripes);
    struct fallback_state *state = state_of(f, &f->stripes[ref.stripe], ref.id);
    int64_t left = fallback_in_flight(state) + units;
    if (units > 0 || state->scale == IN_FLIGHT)
        *state = (struct fallback_state){.fraction = left > 0 ? left : 0, .scale = IN_FLIGHT};
    unlock_all(f, stripes);
}
