/* top_clients.h - the busiest and the most limited clients of the last minute, for operators. Each
 * worker counts its own in bounded memory (base/top_keys.h); readers merge them. */
#ifndef WEIR_PROXY_TOP_CLIENTS_H
#define WEIR_PROXY_TOP_CLIENTS_H

#include "base/top_keys.h"

enum top_by {
    TOP_BY_ALLOWED, /* admitted requests */
    TOP_BY_LIMITED, /* rejected requests: 429, 403 of a blocked client or address, 503 without Redis */
    TOP_BY_COST, /* cost of admitted requests: the most that a limit has charged, at least 1 each */
    TOP_BY_COUNT
};
extern const char *const top_by_label[TOP_BY_COUNT];

/* The tables of one worker. */
struct top_clients {
    struct top_keys *by[TOP_BY_COUNT]; /* of the cost: above 1, so requests of cost 1 are cheap */
};

/* Allocates the tables. False: no memory; call top_clients_clear(). */
MUST_CHECK bool top_clients_init(struct top_clients *top);
void top_clients_clear(struct top_clients *top);

/* Reads the top clients of `count` workers, as top_keys_read(). Callable from any thread. */
MUST_CHECK unsigned top_clients_read(const struct top_clients *const *tops, unsigned count,
                                     enum top_by by, struct top_entry *entries, unsigned n,
                                     double *seconds);

#endif
