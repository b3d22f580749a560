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

#include "base/hash.h"
#include "base/memory.h"
#include "limit/next_unit.h"
#include "policy/calendar.h"

enum {
    STRIPES_MAX = 64,
    STRIPE_ENTRIES_MIN = 2 * LIMITS_PER_RULE_MAX, /* a decision never evicts its own entries */
    NOBODY = 0xffffffff,                          /* end of a chain or list */
    IN_FLIGHT = -1,                               /* as `scale` of a state */
    WORKERS_APART_US = 100000 /* maximum time from reading the clock to charging */
};

/* The usage of a limit, with the numbers under which it was counted, so that usage can be
 * converted when the limit or the client's plan changes.
 * - Bucket: the theoretical arrival time of GCRA is at_us + fraction / scale. Requests see it
 *   slack_us earlier, if a smaller burst has cut it off; see lua/gcra.lua.
 * - Window: it began at at_us, and `fraction` units were used.
 *
 * `scale` is the limit. */
struct state {
    int64_t at_us;
    int64_t fraction, scale;
    int64_t period_us, capacity, slack_us;
    bool window;
};

struct entry {
    uint64_t id[2];
    struct state state;
    uint32_t chain, newer, older; /* indices */
};

struct stripe {
    pthread_mutex_t lock;
    uint32_t *heads; /* [mask + 1] */
    struct entry *entries;
    uint32_t used, size;
    uint32_t newest, oldest;
} __attribute__((aligned(64)));

struct fallback {
    struct hash_key keys[2];
    unsigned stripe_count; /* a power of two */
    uint32_t mask;         /* of a stripe's heads */
    struct stripe *stripes;
};

/* --- The table -------------------------------------------------------------------------------- */

static uint32_t power_of_two(uint32_t at_least)
{
    uint32_t n = 1;
    while (n < at_least)
        n *= 2;
    return n;
}

static void stripe_init(struct stripe *stripe, uint32_t size, uint32_t heads)
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

static void list_unlink(struct stripe *s, uint32_t i)
{
    struct entry *e = &s->entries[i];
    *(e->newer == NOBODY ? &s->newest : &s->entries[e->newer].older) = e->older;
    *(e->older == NOBODY ? &s->oldest : &s->entries[e->older].newer) = e->newer;
}

static void list_push(struct stripe *s, uint32_t i)
{
    struct entry *e = &s->entries[i];
    e->newer = NOBODY;
    e->older = s->newest;
    *(s->newest == NOBODY ? &s->oldest : &s->entries[s->newest].newer) = i;
    s->newest = i;
}

static uint32_t *head_of(const struct fallback *f, struct stripe *s, const uint64_t id[2])
{
    return &s->heads[id[1] & f->mask];
}

static void chain_remove(const struct fallback *f, struct stripe *s, uint32_t i)
{
    uint32_t *at = head_of(f, s, s->entries[i].id);
    while (*at != i)
        at = &s->entries[*at].chain;
    *at = s->entries[i].chain;
}

/* Returns a free entry, or evicts the least recently used one. */
static uint32_t entry_claim(const struct fallback *f, struct stripe *s)
{
    uint32_t i = s->oldest;
    if (s->used < s->size)
        return s->used++;
    chain_remove(f, s, i);
    list_unlink(s, i);
    return i;
}

static struct state *state_of(const struct fallback *f, struct stripe *s, const uint64_t id[2])
{
    uint32_t *head = head_of(f, s, id), i = *head;

    while (i != NOBODY && (s->entries[i].id[0] != id[0] || s->entries[i].id[1] != id[1]))
        i = s->entries[i].chain;
    if (i == NOBODY) {
        i = entry_claim(f, s);
        s->entries[i] = (struct entry){.id = {id[0], id[1]}, .chain = *head};
        *head = i;
    } else
        list_unlink(s, i);
    list_push(s, i);
    return &s->entries[i].state;
}

/* --- Counting: exact integers, 128 bits where a product may be large -------------------------- */

static int64_t divide_up(__int128 a, int64_t b)
{
    return a <= 0 ? 0 : (int64_t)((a + b - 1) / b);
}

/* With best effort, a request that costs more than the available units is granted these. */
static int64_t granted_cost(const struct fallback_request *request, int64_t available)
{
    return request->best_effort && request->cost > available && available > 0 ? available
                                                                              : request->cost;
}

/* The capacity as a debt. Bounded, so that the arrival time is valid even for a bucket that
 * takes over 36,000 years to fill. */
static __int128 whole_bucket(const struct limit_result *r)
{
    __int128 parent = (__int128)r->capacity * r->limit->period_us, most = (__int128)r->quota << 60;
    return parent < most ? parent : most;
}

/* How far the theoretical arrival time lies ahead, in units of 1/scale µs. Includes the part
 * that a smaller burst has cut off. */
static __int128 debt_of(const struct state *state, int64_t now)
{
    __int128 debt = ((__int128)state->at_us - now) * state->scale + state->fraction;
    return !state->window && state->scale > 0 && debt > 0 ? debt : 0;
}

/* Stores the bucket: `all` is the whole debt, `debt` the part of it that requests see. */
static void set_bucket(struct state *state, const struct limit_result *r, int64_t now, __int128 all,
                       __int128 debt)
{
    *state = (struct state){.at_us = now + (int64_t)(all / r->quota),
                            .fraction = (int64_t)(all % r->quota),
                            .scale = r->quota,
                            .period_us = r->limit->period_us,
                            .capacity = r->capacity,
                            .slack_us = (int64_t)((all - debt) / r->quota)};
}

/* Converts the usage to the current numbers, rounded up. Requests see at most a full bucket of
 * it. */
static void bucket_renumber(struct state *state, const struct limit_result *r, int64_t now)
{
    __int128 all = debt_of(state, now), parent = whole_bucket(r), most = (__int128)r->quota << 60;
    int64_t period = r->limit->period_us;

    if (all == 0 || r->quota < 1 ||
        (state->scale == r->quota && state->period_us == period && state->capacity == r->capacity))
        return;
    __int128 rest = all % state->period_us;
    all =
        all / state->period_us * period + (rest * period + state->period_us - 1) / state->period_us;
    if (all > most)
        all = most;
    set_bucket(state, r, now, all, all < parent ? all : parent);
}

/* Generic cell rate algorithm (ITU-T I.371). `debt` is how far the theoretical arrival time lies
 * ahead, in units of 1/quota µs, so that period/quota needs no rounding. */
static void bucket_charge(struct state *state, const struct fallback_request *request, int64_t now)
{
    struct limit_result *r = request->result;
    int64_t period = r->limit->period_us;
    __int128 all = debt_of(state, now), debt = all - (__int128)state->slack_us * r->quota,
             parent = whole_bucket(r), most = parent - (__int128)request->reserve * period;

    if (state->scale != r->quota || debt < 0)
        debt = 0;
    if (debt > parent) /* the clock was set back */
        debt = parent;
    int64_t cost = granted_cost(request, (int64_t)((most - debt) / period));
    r->granted = cost;
    __int128 after = debt + (__int128)cost * period;
    bool admit = cost == 0 || after <= most;
    if (admit) {
        debt = after;
        all += (__int128)cost * period;
        set_bucket(state, r, now, all > debt ? all : debt, debt);
    }
    r->verdict = admit ? VERDICT_ALLOWED : VERDICT_LIMITED;
    r->remaining = (int64_t)((parent - debt) / period);
    r->retry_after_us = admit                                   ? 0
                        : cost > r->capacity - request->reserve ? -1
                                                                : divide_up(after - most, r->quota);
    r->reset_us = divide_up(debt, r->quota);
    next_unit_set(r, next_unit_us(r->limit, r->quota, r->capacity,
                                  r->remaining > request->reserve ? r->remaining : request->reserve,
                                  r->reset_us));
}

/* The window that contains `now`, if a new one is needed. */
static struct window window_at(const struct limit *limit, int64_t now)
{
    if (limit->calendar)
        return calendar_window(limit, now);
    int64_t into = limit->has_offset ? (now - limit->offset_us) % limit->period_us : 0;
    int64_t start = now - (into < 0 ? into + limit->period_us : into);
    return (struct window){start, start + limit->period_us};
}

/* If another worker with a slightly later clock reading has begun the window, uses that window. */
static int64_t not_before(const struct state *state, int64_t now)
{
    bool before = state->window && now < state->at_us && state->at_us - now < WORKERS_APART_US;
    return before ? state->at_us : now;
}

/* Carries usage of a window that is still running over to the window by the current numbers. */
static void window_renumber(struct state *state, const struct limit *limit, int64_t now)
{
    int64_t period = limit->period_us;

    if (!state->window || now < state->at_us || now - state->at_us >= state->period_us)
        return;
    if (limit->rest_us && state->fraction >= state->scale)
        return; /* a rest */
    if (limit->has_offset) {
        struct window window = window_at(limit, now);
        state->at_us = window.start_us;
        state->period_us = window.end_us - window.start_us;
        return;
    }
    if (now - state->at_us >= period)
        state->at_us = now - (now - state->at_us) % period;
    state->period_us = period;
}

static void window_charge(struct state *state, const struct fallback_request *request, int64_t now)
{
    struct limit_result *r = request->result;
    struct window window = window_at(r->limit, now);
    int64_t used = state->fraction;
    bool running = state->window && now >= state->at_us;

    if (r->limit->has_offset)
        running = running && state->at_us == window.start_us;
    else if (running && now - state->at_us < state->period_us)
        window = (struct window){state->at_us, state->at_us + state->period_us};
    else
        running = false;
    if (!running)
        used = 0;
    int64_t available = r->capacity > used ? r->capacity - used : 0;
    int64_t cost = granted_cost(request, available - request->reserve);
    r->granted = cost;
    bool admit = cost == 0 || cost <= available - request->reserve;
    if (admit && cost > 0) {
        available -= cost;
        if (available == 0 && window.end_us < now + r->limit->rest_us)
            window.end_us = now + r->limit->rest_us; /* lockout */
        *state = (struct state){.at_us = window.start_us,
                                .fraction = used + cost,
                                .scale = r->quota,
                                .period_us = window.end_us - window.start_us,
                                .window = true};
    }
    r->verdict = admit ? VERDICT_ALLOWED : VERDICT_LIMITED;
    r->remaining = available;
    r->retry_after_us = admit                                   ? 0
                        : cost > r->capacity - request->reserve ? -1
                                                                : window.end_us - now;
    r->reset_us = used || (admit && cost > 0) ? window.end_us - now : 0;
    next_unit_set(r, r->reset_us);
}

/* Units of requests in flight are in `fraction`; the value of `scale` marks such a state. */
static int64_t in_flight(const struct state *state)
{
    return state->scale == IN_FLIGHT ? state->fraction : 0;
}

static void flight_charge(struct state *state, const struct fallback_request *request)
{
    struct limit_result *r = request->result;
    int64_t used = in_flight(state);
    int64_t most = r->capacity - request->reserve;
    bool admit = request->cost <= most - used;

    if (admit) {
        used += request->cost;
        *state = (struct state){.fraction = used, .scale = IN_FLIGHT};
    }
    r->verdict = admit ? VERDICT_ALLOWED : VERDICT_LIMITED;
    r->remaining = r->capacity > used ? r->capacity - used : 0;
    r->retry_after_us = admit                  ? 0
                        : request->cost > most ? -1
                                               : 1000000; /* as lua/concurrency.lua */
    r->reset_us = 0;
}

/* Runs before any charge, so that time passes by the current numbers even if the request is
 * rejected. */
static void renumber(struct state *state, const struct limit_result *r, int64_t now)
{
    if (r->limit->kind == LIMIT_WINDOW)
        window_renumber(state, r->limit, not_before(state, now));
    else if (r->limit->kind != LIMIT_CONCURRENCY)
        bucket_renumber(state, r, now);
}

static void charge_by_kind(struct state *state, const struct fallback_request *request, int64_t now)
{
    switch (request->result->limit->kind) {
    case LIMIT_WINDOW: window_charge(state, request, not_before(state, now)); break;
    case LIMIT_CONCURRENCY: flight_charge(state, request); break;
    default: bucket_charge(state, request, now);
    }
}

/* --- A decision ------------------------------------------------------------------------------- */

struct place_in_table {
    uint64_t id[2];
    unsigned stripe;
    struct state *state, before;
};

static uint64_t place_all(const struct fallback *f, const struct fallback_request *requests,
                          unsigned count, struct place_in_table *places)
{
    uint64_t stripes = 0; /* one bit per stripe; STRIPES_MAX is 64 */
    for (unsigned i = 0; i < count; i++) {
        places[i].id[0] = hash_slice(&f->keys[0], requests[i].key);
        places[i].id[1] = hash_slice(&f->keys[1], requests[i].key);
        places[i].stripe = (unsigned)(places[i].id[0] & (f->stripe_count - 1));
        stripes |= (uint64_t)1 << places[i].stripe;
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

static bool charge(struct fallback *f, const struct fallback_request *request,
                   struct place_in_table *position, int64_t now)
{
    position->state = state_of(f, &f->stripes[position->stripe], position->id);
    renumber(position->state, request->result, now);
    position->before = *position->state;
    charge_by_kind(position->state, request, now);
    return request->result->verdict == VERDICT_ALLOWED;
}

/* Takes a charge back and sets the result to the limit's state without it. */
static void uncharge(const struct fallback_request *request, struct place_in_table *position,
                     int64_t now)
{
    struct fallback_request look = {
        .key = request->key, .reserve = request->reserve, .result = request->result};

    *position->state = position->before;
    charge_by_kind(&position->before, &look, now);
}

bool fallback_decide(struct fallback *f, struct fallback_request *requests, unsigned count,
                     uint64_t now_us)
{
    struct place_in_table places[LIMITS_PER_RULE_MAX];
    uint64_t stripes = place_all(f, requests, count, places);
    int64_t now = (int64_t)now_us;
    bool admitted = true;

    lock_all(f, stripes);
    for (unsigned i = 0; i < count; i++) {
        requests[i].result->local = true;
        admitted = charge(f, &requests[i], &places[i], now) && admitted;
    }
    for (unsigned i = count; !admitted && i-- > 0;)
        if (requests[i].result->verdict == VERDICT_ALLOWED)
            uncharge(&requests[i], &places[i], now);
    unlock_all(f, stripes);
    return admitted;
}

static void add_in_flight(struct fallback *f, struct slice key, int64_t units)
{
    struct fallback_request request = {.key = key};
    struct place_in_table position;
    uint64_t stripes = place_all(f, &request, 1, &position);

    lock_all(f, stripes);
    struct state *state = state_of(f, &f->stripes[position.stripe], position.id);
    int64_t left = in_flight(state) + units;
    *state = (struct state){.fraction = left > 0 ? left : 0, .scale = IN_FLIGHT};
    unlock_all(f, stripes);
}

void fallback_enter(struct fallback *f, struct slice key, int64_t units)
{
    add_in_flight(f, key, units);
}

void fallback_leave(struct fallback *f, struct slice key, int64_t units)
{
    add_in_flight(f, key, -units);
}
