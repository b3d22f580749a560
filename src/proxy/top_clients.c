#include "proxy/top_clients.h"

#include <stdlib.h>

#include "base/clock.h"
#include "proxy/exchange.h"
#include "proxy/worker_state.h"

const char *const top_by_label[TOP_BY_COUNT] = {
    [TOP_BY_ALLOWED] = "allowed", [TOP_BY_LIMITED] = "limited", [TOP_BY_COST] = "cost"};

_Static_assert(IDENTITY_TEXT_MAX <= (int)TOP_KEY_MAX, "a name fits");

static struct slice client_of(const struct exchange *x)
{
    return (struct slice){x->identity, x->identity_size};
}

bool top_clients_init(struct worker *worker)
{
    for (unsigned by = 0; by < TOP_BY_COUNT; by++)
        if (!(worker->top_clients[by] = top_keys_new()))
            return false;
    return true;
}

void top_clients_clear(struct worker *worker)
{
    for (unsigned by = 0; by < TOP_BY_COUNT; by++)
        top_keys_free(worker->top_clients[by]);
}

int64_t top_clients_cost(const struct rule *rule)
{
    int64_t highest = 1;

    for (unsigned i = 0; i < rule->limit_count; i++)
        highest = rule->limits[i]->cost > highest ? rule->limits[i]->cost : highest;
    return rule->cost ? rule->cost : highest;
}

void top_clients_count(const struct exchange *x)
{
    bool admitted = decision_admits(&x->decision_request.decision);
    top_keys_add(x->worker->top_clients[admitted ? TOP_BY_ALLOWED : TOP_BY_LIMITED], x->started_us,
                 client_of(x), 1);
}

void top_clients_count_end(const struct exchange *x)
{
    if (x->cause == CAUSE_ADDRESS_BLOCKED || x->cause == CAUSE_CLIENT_BLOCKED)
        top_keys_add(x->worker->top_clients[TOP_BY_LIMITED], clock_cached_us(), client_of(x), 1);
    else if (unlikely(x->cost > 1) && x->decided && decision_admits(&x->decision_request.decision))
        top_keys_add(x->worker->top_clients[TOP_BY_COST], clock_cached_us(), client_of(x),
                     (uint64_t)x->cost - 1);
}

unsigned top_clients_read(struct worker *const *workers, unsigned worker_count, enum top_by by,
                          struct top_entry *entries, unsigned n, double *seconds)
{
    struct top_keys **tops = calloc(worker_count ? 2 * (size_t)worker_count : 1, sizeof *tops);
    unsigned count = 0;

    *seconds = 0;
    if (!tops)
        return 0;
    for (unsigned w = 0; w < worker_count; w++) {
        tops[count++] = workers[w]->top_clients[by];
        if (by == TOP_BY_COST) /* its table has what requests cost above 1 */
            tops[count++] = workers[w]->top_clients[TOP_BY_ALLOWED];
    }
    count = top_keys_read(tops, count, clock_us(), entries, n, seconds);
    free(tops);
    return count;
}
