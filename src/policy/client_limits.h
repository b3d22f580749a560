/* client_limits.h - sections plans, clients and quotas: limits of groups and of single clients. */
#ifndef WEIR_POLICY_CLIENT_LIMITS_H
#define WEIR_POLICY_CLIENT_LIMITS_H

#include "policy/limit.h"

/* Effective numbers of one limit for one request. */
struct limit_numbers {
    int64_t limit, burst;
    /* The same limit with another period (policy->variants), which replaces it; NULL: its own. */
    const struct limit *variant;
    /* Of the limit, that the request's priority may use, in 1/SHARE_WHOLE. 0: the whole limit. */
    int64_t share;
};

/* Returns the limit's numbers as written. */
static inline struct limit_numbers limit_numbers_of(const struct limit *limit)
{
    return (struct limit_numbers){.limit = limit->limit, .burst = limit->burst};
}

/* Returns the maximum cost of a single request. */
static inline int64_t limit_capacity(const struct limit *limit, const struct limit_numbers *numbers)
{
    return limit->kind == LIMIT_BUCKET ? numbers->burst : numbers->limit;
}

/* Returns the units that may be in use at once if all priorities together use the whole limit. */
static inline int64_t limit_whole(const struct limit *limit, const struct limit_numbers *numbers)
{
    return limit->kind == LIMIT_WINDOW ? numbers->limit : numbers->burst;
}

/* Returns how many of `whole` units a request of this share leaves to higher priorities. */
static inline int64_t share_reserve(int64_t whole, int64_t share)
{
    return share ? whole - (int64_t)((__int128)whole * share / SHARE_WHOLE) : 0;
}

static inline int64_t limit_reserve(const struct limit *limit, const struct limit_numbers *numbers)
{
    return numbers->share ? share_reserve(limit_whole(limit, numbers), numbers->share) : 0;
}

/* Returns the longest delay in a queue for a request of this share, at least 1 µs: a queue without
 * delay is a meter. */
static inline int64_t limit_longest_delay(const struct limit *limit, int64_t share)
{
    int64_t longest = limit->max_delay_us, less = share_reserve(longest, share);
    return longest > less || longest == 0 ? longest - less : 1;
}

enum quota_kind {
    QUOTA_AS_WRITTEN,
    QUOTA_PROHIBITED, /* quota: 0 */
    QUOTA_UNLIMITED   /* quota: unlimited, or -1 */
};

/* Limits shared by several clients. */
struct policy;
struct plan {
    const struct policy *policy;
    char *name;
    const struct priority *priority; /* NULL: that of the rule */
    struct limit_numbers *numbers;   /* by limit index; NULL: the limits as written */
    struct position position;
};

/* Limits of one client, from the policy or the quota database. For clients of the policy, `numbers`
 * already includes the plan and a numeric quota. */
struct client_limits {
    char *name; /* as written: "client-1", "ip:10.0.0.0/8"; NULL: from the database */
    enum quota_kind quota;
    bool blocked;                    /* requests get 403; `quota` is QUOTA_PROHIBITED */
    const struct plan *plan;         /* or NULL */
    const struct priority *priority; /* NULL: that of the plan, or of the rule */
    struct limit_numbers *numbers;   /* by limit index; NULL: the limits as written */
    int64_t each; /* database quota; replaces limit and burst of every per-client limit; 0: none */
    struct position position;
};

enum unknown_client { UNKNOWN_CLIENT_DEFAULT, UNKNOWN_CLIENT_DENY };

/* How an id is treated if the database is unavailable and no row is cached. */
enum quota_failure { QUOTA_FAILURE_DEFAULT, QUOTA_FAILURE_DENY };

enum { QUOTA_PARAMETERS_MAX = 96, QUOTA_LIST_SIZE = 2048 };

/* The parallel lists of a connection string, separated by commas: element i of each belongs to one
 * server. A list may also have one element for all servers, or be empty. */
struct quota_servers {
    char host[QUOTA_LIST_SIZE], hostaddr[QUOTA_LIST_SIZE], port[QUOTA_LIST_SIZE];
};

/* Quotas from a database. */
struct quota_settings {
    char *connection, *query;      /* as written; NULL: no database */
    struct quota_servers *servers; /* of `connection`, host names resolved */
    char **keywords, **values;     /* the other parameters of `connection` */
    unsigned parameter_count;      /* at most QUOTA_PARAMETERS_MAX */
    char *server_text;             /* "127.0.0.1:5432/weir", for log lines */
    bool has_password;             /* `connection` contains a password */
    uint32_t tag;                  /* hash of the query */
    uint64_t timeout_us, cache_us;
    enum unknown_client unknown_client;
    enum quota_failure on_failure;
};

/* Returns true if quotas come from a database. */
static inline bool quotas_are_set(const struct quota_settings *quotas)
{
    return quotas->connection != NULL;
}

/* Returns the client's limits in the policy, or NULL. Ids are looked up by name, addresses by the
 * longest matching prefix. */
struct identity;
const struct client_limits *policy_client(const struct policy *policy,
                                          const struct identity *identity);

/* Multiplies limit and burst by `factor`. The results are from 1 to SMALL_LIMIT_MAX, or to
 * LIMIT_MAX if they were larger before. */
void limit_numbers_scale(struct limit_numbers *numbers, double factor);

/* Returns true if this client's requests get 403. */
bool policy_blocks(const struct policy *policy, const struct identity *identity);

/* Returns the limit's effective numbers for these client limits; NULL: for all other clients.
 * `limit` is one of policy->limits. */
struct limit_numbers client_numbers(const struct client_limits *client_limits,
                                    const struct limit *limit);

/* Returns true if the limit is enforced for this client; for others it is a shadow limit. All
 * instances choose the same clients, and a larger share includes the clients of a smaller one. */
bool limit_enforces(const struct limit *limit, const struct identity *identity);
/* The same for a client with this identity_text(). */
bool limit_enforces_text(const struct limit *limit, struct slice client);

#endif
