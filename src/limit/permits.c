#include "limit/permits.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/magic.h"

enum {
    PERMIT_MAGIC = 0x504c4143,
    SLOTS = 4096,
    RENEWALS = 3,     /* per lease: two may fail */
    RETRY_US = 100000 /* after a failed call */
};

/* More than any holder can have: releases everything. */
static const int64_t all_units = INT64_C(1000000000000);

struct permit {
    uint32_t magic;
    struct permits *permits;
    struct permit *chain;
    TAILQ_ENTRY(permit) entry; /* in `waiting` or `later` */
    bool listed;
    const struct limit *limit;
    struct limit_numbers numbers;
    int64_t held;   /* by requests */
    int64_t owed;   /* to be released in Redis; less than 0: to be charged there */
    unsigned users; /* requests that hold units, pending calls, calls in progress */
    unsigned sent;  /* calls without a reply */
    bool followed;  /* the first of them was followed by others */
    bool unsure;
    uint64_t unsure_us; /* start of the unsure state */
    struct deadline renewal, retry;
    size_t key_size;
    char key[];
};
TAILQ_HEAD(permit_list, permit);

struct permits {
    struct hash_key hash;
    int64_t holder;
    uint64_t lease_us;
    struct fallback *fallback;
    struct deadline_queue renewals, retries;
    struct permit_list waiting; /* a call is pending */
    struct permit_list later;   /* considered in this round, not possible yet */
    unsigned count;
    struct permit *slots[SLOTS];
};

static void renewal_passed(struct deadline *deadline);
static void retry_passed(struct deadline *deadline);

struct permits *permits_new(struct deadlines *deadlines, uint64_t lease_us,
                            struct fallback *fallback)
{
    struct permits *p = calloc(1, sizeof *p);
    uint64_t number = 0;

    if (!p)
        return NULL;
    p->hash = hash_key_random();
    while (number == 0)
        if (getrandom(&number, sizeof number, 0) == (ssize_t)sizeof number)
            number >>= 16; /* 48 bits: exact as a Lua number */
    p->holder = (int64_t)number;
    p->lease_us = lease_us;
    p->fallback = fallback;
    TAILQ_INIT(&p->waiting);
    TAILQ_INIT(&p->later);
    deadline_queue_init(deadlines, &p->renewals, renewal_passed);
    deadline_queue_init(deadlines, &p->retries, retry_passed);
    return p;
}

int64_t permits_holder(const struct permits *p)
{
    return p->holder;
}

unsigned permits_count(const struct permits *p)
{
    return p->count;
}

/* --- The table -------------------------------------------------------------------------------- */

static struct permit **permit_slot(struct permits *p, struct slice key)
{
    return &p->slots[hash_slice(&p->hash, key) % SLOTS];
}

static struct slice permit_key(const struct permit *permit)
{
    return (struct slice){permit->key, permit->key_size};
}

static void unlist(struct permits *p, struct permit *permit)
{
    if (permit->listed)
        TAILQ_REMOVE(&p->waiting, permit, entry);
    permit->listed = false;
}

static void enlist(struct permits *p, struct permit *permit)
{
    if (!permit->listed)
        TAILQ_INSERT_TAIL(&p->waiting, permit, entry);
    permit->listed = true;
}

static void permit_free(struct permits *p, struct permit *permit)
{
    struct permit **at = permit_slot(p, permit_key(permit));

    while (*at != permit)
        at = &(*at)->chain;
    *at = permit->chain;
    unlist(p, permit);
    deadline_cancel(&permit->renewal);
    deadline_cancel(&permit->retry);
    p->count--;
    MAGIC_WIPE(permit);
    free(permit);
}

static void free_unless_needed(struct permits *p, struct permit *permit)
{
    if (permit->users == 0 && permit->held == 0 && permit->owed == 0 && !permit->unsure)
        permit_free(p, permit);
}

static struct permit *permit_new(struct permits *p, const struct limit *limit, struct slice key)
{
    struct permit *permit = malloc(sizeof *permit + key.n), **slot = permit_slot(p, key);

    if (!permit)
        return NULL;
    memset(permit, 0, sizeof *permit);
    MAGIC_SET(permit, PERMIT_MAGIC);
    permit->permits = p;
    permit->limit = limit;
    permit->key_size = key.n;
    memcpy(permit->key, key.p, key.n);
    permit->chain = *slot;
    *slot = permit;
    p->count++;
    deadline_arm(&p->renewals, &permit->renewal, clock_us(), p->lease_us / RENEWALS);
    return permit;
}

struct permit *permits_use(struct permits *p, const struct limit *limit,
                           struct limit_numbers numbers, struct slice key)
{
    struct permit *permit = *permit_slot(p, key);

    while (permit && !slice_equal(permit_key(permit), key))
        permit = permit->chain;
    if (!permit && !(permit = permit_new(p, limit, key)))
        return NULL;
    MAGIC_CHECK(permit, PERMIT_MAGIC);
    permit->numbers = numbers;
    permit->users++;
    return permit;
}

void permits_unuse(struct permits *p, struct permit *permit)
{
    assert(permit->users > 0);
    permit->users--;
    free_unless_needed(p, permit);
}

void permits_free(struct permits *p)
{
    if (!p)
        return;
    for (unsigned i = 0; i < SLOTS; i++)
        while (p->slots[i])
            permit_free(p, p->slots[i]);
    free(p);
}

/* --- Calls ------------------------------------------------------------------------------------ */

void permits_sent(struct permit *permit)
{
    permit->followed = permit->sent > 0;
    permit->sent++;
}

void permits_answered(struct permit *permit)
{
    assert(permit->sent > 0);
    permit->sent--;
}

static void set_unsure(struct permit *permit, uint64_t now)
{
    if (!permit->unsure)
        permit->unsure_us = now;
    permit->unsure = true;
}

void permits_sent_again(struct permits *p, struct permit *permit)
{
    if (!permit->followed)
        return;
    set_unsure(permit, clock_us());
    enlist(p, permit);
}

void permits_failed(struct permits *p, struct permit *permit)
{
    uint64_t now = clock_us();

    permits_answered(permit);
    set_unsure(permit, now);
    if (!deadline_is_armed(&permit->retry))
        deadline_arm(&p->retries, &permit->retry, now, RETRY_US);
}

/* Redis may still be down; that is checked when the call is made. */
static void retry_passed(struct deadline *deadline)
{
    struct permit *permit = CONTAINER_OF(deadline, struct permit, retry);
    MAGIC_CHECK(permit, PERMIT_MAGIC);
    enlist(permit->permits, permit);
}

/* Runs every third of a lease and renews a permit that is held. A permit without held units
 * whose release could not reach Redis for a whole lease has expired there. */
static void renewal_passed(struct deadline *deadline)
{
    struct permit *permit = CONTAINER_OF(deadline, struct permit, renewal);
    struct permits *p = permit->permits;
    uint64_t now = clock_us();

    MAGIC_CHECK(permit, PERMIT_MAGIC);
    deadline_arm(&p->renewals, deadline, now, p->lease_us / RENEWALS);
    if (permit->held > 0)
        enlist(p, permit);
    else if (permit->unsure && now - permit->unsure_us > (uint64_t)permit->limit->period_us) {
        permit->unsure = false;
        permit->owed = 0;
        unlist(p, permit);
        free_unless_needed(p, permit);
    }
}

/* Of an unsure permit only the total may be sent, and only while no other call is in progress. */
static bool waits_for_replies(const struct permit *permit)
{
    return permit->unsure && permit->sent > 0;
}

/* If no call for the permit is in progress, the call states the number of held units; else only
 * the change. */
static bool write_call(struct permit *permit, struct permit_call *call)
{
    bool parent = permit->sent == 0;

    if (waits_for_replies(permit))
        return false;
    *call = (struct permit_call){.permit = permit,
                                 .limit = permit->limit,
                                 .numbers = permit->numbers,
                                 .unsure = permit->unsure,
                                 .key = permit_key(permit)};
    if (parent && permit->held > 0) {
        call->cost = permit->held;
        call->renews = true;
    } else if (parent)
        call->cost = -all_units;
    else if (permit->owed != 0)
        call->cost = -permit->owed;
    else
        call->renews = true; /* the units it has */
    permit->owed = 0;
    permit->unsure = false;
    return true;
}

bool permits_next(struct permits *p, struct permit_call *call)
{
    struct permit *permit;

    while ((permit = TAILQ_FIRST(&p->waiting))) {
        TAILQ_REMOVE(&p->waiting, permit, entry);
        if (write_call(permit, call)) {
            permit->listed = false;
            permit->users++;
            return true;
        }
        TAILQ_INSERT_TAIL(&p->later, permit, entry); /* still listed; permits_rewind() returns it */
    }
    return false;
}

bool permits_rewind(struct permits *p)
{
    bool any = !TAILQ_EMPTY(&p->later);

    TAILQ_CONCAT(&p->waiting, &p->later, entry);
    return any;
}

void permits_prepare_charge(struct permits *p, struct permit *permit)
{
    if (permit->unsure)
        enlist(p, permit);
}

bool permits_delay_charge(const struct permit *permit)
{
    return waits_for_replies(permit);
}

/* --- Requests --------------------------------------------------------------------------------- */

void permits_owe(struct permits *p, struct permit *permit, int64_t units)
{
    permit->owed += units;
    enlist(p, permit);
}

void permits_hold(struct permits *p, struct decision_request *decision_request,
                  struct permit *permit, int64_t units, bool by_redis)
{
    struct held *held = &decision_request->held[decision_request->held_count++];

    assert(decision_request->held_count <= LIMITS_PER_RULE_MAX);
    permit->users++;
    *held = (struct held){permit, units};
    permit->held += units;
    if (!by_redis)
        permits_owe(p, permit, -units);
    else if (permit->limit->on_failure == ON_FAILURE_LOCAL)
        fallback_add_in_flight(p->fallback, permit_key(permit), units);
}

void permits_leave(struct decision_request *decision_request)
{
    while (decision_request->held_count > 0) {
        struct held *held = &decision_request->held[--decision_request->held_count];
        struct permit *permit = held->permit;
        struct permits *p = permit->permits;

        MAGIC_CHECK(permit, PERMIT_MAGIC);
        if (permit->limit->on_failure == ON_FAILURE_LOCAL)
            fallback_add_in_flight(p->fallback, permit_key(permit), -held->units);
        permit->held -= held->units;
        permits_owe(p, permit, held->units);
        permits_unuse(p, permit);
    }
}
