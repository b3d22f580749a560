/* top_clients.h - the busiest and the most limited clients of the last minute, for operators. Each
 * worker counts its own in bounded memory (base/top_keys.h); readers merge them. */
#ifndef WEIR_PROXY_TOP_CLIENTS_H
#define WEIR_PROXY_TOP_CLIENTS_H

#include "base/top_keys.h"

enum top_by {
    TOP_BY_ALLOWED, /* admitted requests */
    TOP_BY_LIMITED, /* rejected requests: 429, 403 of a blocked client or address, 503 without Redis */
    TOP_BY_COST, /* cost of admitted requests, at least 1 each; as the response states it if it does */
    TOP_BY_COUNT
};
extern const char *const top_by_label[TOP_BY_COUNT];

struct exchange;
struct rule;
struct worker;

/* Allocates a worker's tables. False: no memory. */
MUST_CHECK bool top_clients_init(struct worker *worker);
void top_clients_clear(struct worker *worker);

/* Returns the cost of a request that states none: the rule's, else the highest of its limits, else
 * 1. */
int64_t top_clients_cost(const struct rule *rule);

/* Counts a request when its limits have decided. */
void top_clients_count(const struct exchange *x);
/* Counts an ended request: the cost of an admitted one, which is final now, and the rejection of a
 * blocked address, which no limit decided. */
void top_clients_count_end(const struct exchange *x);

/* Reads the top clients of all workers, as top_keys_read(). Callable from any thread. */
MUST_CHECK unsigned top_clients_read(struct worker *const *workers, unsigned worker_count,
                                     enum top_by by, struct top_entry *entries, unsigned n,
                                     double *seconds);

#endif
