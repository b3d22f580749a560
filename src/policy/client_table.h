/* client_table.h - clients named in the policy, and their lookup. */
#ifndef WEIR_POLICY_CLIENT_TABLE_H
#define WEIR_POLICY_CLIENT_TABLE_H

#include "base/arena.h"
#include "policy/policy.h"

struct node;

enum { QUOTA_NOT_WRITTEN = -2 };

struct configured_client {
    struct client_limits client_limits;
    const struct policy *policy;
    bool blocked;              /* as written */
    int64_t quota;             /* as written; -1: unlimited; QUOTA_NOT_WRITTEN: not set */
    const struct node *limits; /* while loading */
};

/* Creates the table used by policy_client(), for at most `count` clients. Ids are looked up by
 * hash. Addresses are looked up by hash of (prefix, length), longest prefix length first. */
struct clients *clients_new(struct arena *arena, unsigned count);
struct configured_client *clients_add(struct clients *clients); /* returns a zeroed client */
unsigned clients_count(const struct clients *clients);
const struct configured_client *clients_at(const struct clients *clients, unsigned index);
/* Indexes the client added last; `id` is the identity's text. Returns an earlier client with the
 * same key, or NULL. */
const struct configured_client *clients_enter_id(struct clients *clients, struct slice id);
const struct configured_client *clients_enter_range(struct clients *clients,
                                                    const struct ip_range *range);
const struct configured_client *clients_enter_unix(struct clients *clients);

/* Multiplies the numbers of one limit by `factor`, for all clients with numbers of their own; at
 * least 1. For replay, before the policy is used. */
void clients_scale(struct clients *clients, unsigned limit, double factor);

/* Returns true if a client's quota replaces the numbers of this limit. True for every limit per
 * client except concurrency limits, since a quota is a number of requests per period. */
static inline bool limit_is_per_client(const struct limit *limit)
{
    return limit->per[0].per == PER_CLIENT && limit->kind != LIMIT_CONCURRENCY;
}

#endif
