/* client_table.h - the clients that the policy names, and how they are found. */
#ifndef WEIR_POLICY_CLIENT_TABLE_H
#define WEIR_POLICY_CLIENT_TABLE_H

#include "policy/arena.h"
#include "policy/policy.h"

struct node;

enum { QUOTA_NOT_WRITTEN = -2 };

struct client {
    struct client_limits client_limits;
    const struct policy *policy;
    int64_t quota;             /* as written; -1 unlimited */
    const struct node *limits; /* while loading */
};

/* The table behind policy_client: ids by hash, addresses and ranges by hash of (prefix, bits), one look for
 * each prefix length that occurs, longest first. */
struct clients *clients_new(struct arena *arena, unsigned count);
struct client *clients_add(struct clients *clients); /* zeroed; at most `count` times */
unsigned clients_count(const struct clients *clients);
const struct client *clients_at(const struct clients *clients, unsigned index);
/* Enters the client added last. The earlier one that has the same name, or NULL. */
const struct client *clients_enter_id(struct clients *clients, struct slice id);
const struct client *clients_enter_range(struct clients *clients, const struct ip_range *range);
const struct client *clients_enter_unix(struct clients *clients);

/* Does a client's quota stand in its place? It does in every limit that is counted per client, but for requests in
 * flight: a quota says how many in a period. */
static inline bool limit_is_per_client(const struct limit *limit)
{
    return limit->per[0].per == PER_CLIENT && limit->kind != LIMIT_CONCURRENCY;
}

#endif
