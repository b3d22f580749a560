/* policy.h - data model of one policy file after reading and validation.
 *
 *   YAML --yaml_tree.c--> nodes with positions --read_*.c--> struct policy --lint.c--> warnings
 *
 * A policy is immutable, shared by all threads and freed with its last reference. Durations are in
 * microseconds, sizes in bytes. The policy owns the memory that its pointers refer to.
 *
 * This directory owns the policy, and finds the client and the rule of a request. It reads no YAML,
 * and does no I/O on the request path. In reading order:
 *
 *   policy.h, bounds.h            the data, with a header per section: rule.h, limit.h, ...
 *   identity.h, identity_source.h the client of a request; identity_token.h: tokens
 *   rule_choice.h, rule_match.h   the rule of a request; rule_index.h, criteria.h, query.h, pairs.h
 *   original_request.h            the request that another proxy asks about
 *   rate_limit_service.h, descriptor_name.h    descriptors of Envoy's rate limit service
 *   client_table.h, address_lists.h    named clients; allowed and blocked addresses
 *   shipped_limiter.h             the limiters of lua/
 *   zone.h, calendar.h, civil.h   time zones, windows of the calendar */
#ifndef WEIR_POLICY_POLICY_H
#define WEIR_POLICY_POLICY_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"
#include "http/head.h"
#include "http/own_host.h"
#include "http2/settings.h"
#include "net/address.h"
#include "net/resolver.h"
#include "policy/address_lists.h"
#include "policy/client_limits.h"
#include "policy/identity_settings.h"
#include "policy/listen_tls.h"
#include "policy/original_request.h"
#include "policy/rate_limit_service.h"
#include "policy/rule.h"

enum { KEY_SOURCES_MAX = 16, KEY_SEGMENT_MAX = 32 };

/* A value of the request that limits count by (`per`), beside the identity. */
struct key_source {
    const char *text;          /* as written: "jwt:team" */
    struct identity_from from; /* its source is NULL: a segment of the path */
    unsigned segment;          /* of the path, from 1; 0: `from` applies */
};

struct listen_settings {
    struct address address;
    bool decides;           /* of the section decisions: forwards nothing */
    bool serves_limits;     /* of the section rate_limit_service: forwards nothing */
    bool proxy_protocol;    /* expect a PROXY protocol header (net/proxy_header.h) */
    struct listen_tls *tls; /* NULL: no TLS */
    bool http2;             /* accept HTTP/2: ALPN h2 with TLS, the preface without */
};

/* A listener that decides requests for other proxies and forwards nothing. Its address is also the
 * last entry of `listen`. */
struct decision_settings {
    struct address address; /* length 0: none */
    enum request_from request_from;
    unsigned deny_status;
    struct identity_settings peers; /* `trusted` and `trust_unix`: the peers that may ask */
    struct own_hosts hosts;         /* besides IP addresses and localhost */
};

/* Treatment of a client that shuts down its sending side: end the request, or send the response. */
enum half_close { HALF_CLOSE_END, HALF_CLOSE_ALLOW };

struct timeouts {
    /* receiving the complete head; between two reads of the body; requests in flight on shutdown */
    uint64_t request_header_us, request_body_us, shutdown_us;
    uint64_t drain_us;      /* accepting connections after SIGTERM; 0: not */
    uint64_t keepalive_us;  /* idle time between two requests */
    uint64_t tunnel_us;     /* idle time in both directions */
    uint64_t send_us;       /* between two successful writes of a response */
    uint64_t idle_us;       /* default for the three above; 0: not set */
    uint64_t body_min_rate; /* bytes per second; 0: no minimum */
    uint64_t send_min_rate; /* the same of responses, while the client does not take them at once */
    uint64_t exchange_us;   /* total request duration without tunnels; 0: no limit */
    uint64_t linger_us;     /* time to discard request content after the response; 0: none */
};

struct size_limits {
    uint64_t request_header, request_body, response_header; /* request_body 0: no limit */
    unsigned connections;                                   /* 0: no limit */
    unsigned connections_per_ip;     /* 0: no limit; excludes trusted proxies and unix sockets */
    uint64_t memory;                 /* of all buffers, in bytes; 0: not set, see server_memory.c */
    bool connections_per_ip_derived; /* not set: connections / 4, rounded up to 1 */
    uint64_t inspected_content;      /* of a request, read before its decision */
    unsigned requests_per_client;    /* under way, per address; 0: no limit */
    unsigned handshakes_per_ip; /* of TLS, per second; 0: no limit; peer_counts.h: exceptions */
};

/* Formats of the access log, with their words in `log.access`, and whether their lines fit into a
 * log of JSON. */
#define ACCESS_FORMATS(X)                                                                          \
    X(ACCESS_OFF, "off", true)                                                                     \
    X(ACCESS_JSON, "json", true)                                                                   \
    X(ACCESS_COMBINED, "combined", false)

enum access_format {
#define X(name, word, is_json) name,
    ACCESS_FORMATS(X)
#undef X
};

struct log_settings {
    int level; /* enum log_level */
    enum access_format access;
    int64_t sample;         /* access lines of rejections per second and worker; 0: all */
    enum log_format format; /* of event lines */
    char *file;             /* "stderr" or a path */
};

/* Files with one address or range per line. */
struct address_files {
    char **names; /* as written */
    unsigned count;
    const struct node *nodes; /* while loading */
};

struct admin_listener {
    struct address address;
    bool read_only;         /* serves /healthz, /readyz and /metrics only */
    char *token;            /* secret; NULL: requests need none */
    char *token_file;       /* as written; NULL: none */
    struct own_hosts hosts; /* besides IP addresses and localhost */
    unsigned mode;          /* permissions of a Unix socket */
    struct listen_tls *tls; /* NULL: no TLS */
};

struct address_settings {
    struct address_files allow, block;
    struct address_table table;
};

/* Request headers that the policy evaluates, see policy_sort_headers(). read_headers_collect() must
 * handle every option that names a request header. */
struct read_headers {
    struct slice *names; /* unique */
    unsigned count;
    bool has_odd_names;    /* a name has a character other than letters, digits, "-" */
    bool has_proxy_claims; /* a name is a FIELD_PROXY_CLAIM */
};
bool read_headers_contain(const struct read_headers *headers, struct slice name);

struct criterion;
struct rule_index;
struct clients; /* table used by policy_client() */
struct arena;

struct policy {
    atomic_uint references;
    char *file;
    char *driver;     /* composed Lua script, malloc'ed; set before workers receive the policy */
    unsigned workers; /* "auto" is already resolved */
    struct listen_settings *listen;
    unsigned listen_count;
    struct decision_settings decisions;
    struct rate_limit_service rate_limit_service;
    struct admin_listener *admin;
    unsigned admin_count; /* 0: no admin listener */
    struct redis_settings redis;
    struct upstream *upstreams;
    unsigned upstream_count;
    struct resolver_settings resolver;
    struct identity_settings identity;
    struct read_headers read_headers;
    struct address_settings addresses;
    struct priority *priorities; /* the highest first */
    unsigned priority_count;     /* 0: every request may use whole limits */
    const struct priority *default_priority;
    bool shadow; /* default for limits */
    struct limit *limits;
    unsigned limit_count;
    struct limit **variants; /* limits with the periods of plans and clients */
    unsigned variant_count;
    bool has_granted_headers;  /* a limit has a granted_header */
    struct slice *own_headers; /* request headers that only weir sets; clients' are dropped */
    unsigned own_header_count;
    struct plan *plans;
    unsigned plan_count;
    struct clients *clients;
    bool blocks_clients; /* a client is blocked */
    struct quota_settings quotas;
    struct path_settings paths;
    bool rules_have_paths, rules_have_hosts; /* true if any rule has one */
    struct rule *rules; /* the last is built in: matches all, no limits, first upstream, "(none)" */
    unsigned rule_count;
    struct rule_index *rule_index;     /* NULL: few rules, which are searched in order */
    const struct criterion **criteria; /* of all rules, each once */
    unsigned criterion_count;
    bool rules_have_clients;                        /* a rule matches on the client */
    struct key_source key_sources[KEY_SOURCES_MAX]; /* values that limits count by */
    unsigned key_source_count;
    struct json_paths *match_paths; /* of match.json of all rules; NULL: none */
    unsigned headers;               /* bits of header_family_words (limit/header_families.h) */
    struct rejection_settings rejection;
    enum half_close half_close;
    struct timeouts timeouts;
    struct slice keep_alive; /* Connection and Keep-Alive lines for persistent connections */
    struct size_limits size_limits;
    struct http2_settings http2;
    struct log_settings log;
    char *state_directory; /* NULL: not set */
    struct arena *arena;   /* holds all of the above */
};

/* Reads and validates `file`. Limiter scripts are searched by name in `lua_dir`. Prints errors and
 * warnings to `report` as "FILE:LINE:COLUMN: ...", warnings with "warning: " after the position.
 * Prints at most 20 errors, then a count. Returns NULL if there is any error.
 *
 * Blocks: reads files and resolves the host names of sentinels, cluster nodes and database servers.
 * The resolver looks up redis.address and upstream servers at run time. The caller
 * owns a reference. */
struct policy *policy_load(const char *file, const char *lua_dir, FILE *report);

/* As policy_load(), for a policy that only decides requests, as in tests: it must have upstreams.
 * The certificates of its listeners are not read, and may be missing. */
struct policy *policy_load_unserved(const char *file, const char *lua_dir, FILE *report);
/* Returns whether the policy has upstreams, without which weir decides no requests of clients, but
 * descriptors. If it has none, prints that and the remedy to `report`. */
MUST_CHECK bool policy_takes_requests(const struct policy *policy, FILE *report);

/* Returns true if the file sets log.format to json, even if the file has errors; the errors are
 * then logged as JSON. Returns false unless it is a regular file. Blocks: reads the file. */
bool policy_wants_json_log(const char *file);

/* Creates an empty policy for this file with one reference. */
struct policy *policy_new(const char *file);
/* Adds a reference; returns `policy`. */
struct policy *policy_hold(struct policy *policy);
/* Drops a reference and frees the policy with the last one. `policy` may be NULL. */
void policy_drop(struct policy *policy);

/* Keeps the admin sockets across a reload: replaces the admin listeners of `next` with those of
 * `now`, in their order. Listeners configured in both get the settings of `next`. `written` holds
 * the addresses of `now` as configured in the file. */
void policy_keep_admin(struct policy *next, const struct policy *now,
                       const struct address *written);
/* Wipes the keys of TLS tickets that have all expired. Call it once a second. */
void policy_wipe_old_keys(const struct policy *policy);
/* Returns whether the addresses and modes of the admin listeners are those of `now`. */
bool policy_same_admin(const struct policy *next, const struct policy *now,
                       const struct address *written);

/* Keeps the listening sockets across a reload: replaces the listeners of `next` with those of
 * `now`, in their order. Listeners configured in both get the certificates and the HTTP/2
 * setting of `next`. `written`
 * holds the listeners of `now` as configured in the file. */
void policy_keep_listeners(struct policy *next, const struct policy *now,
                           const struct listen_settings *written);

/* Returns the option that the listener stands in, such as "decisions.listen". */
const char *listen_option(const struct listen_settings *listener);

/* Returns true if all settings that require a restart are equal. */
bool listen_settings_same(const struct listen_settings *one, const struct listen_settings *other);

/* Prints the effective policy with all defaults as YAML, for `weir check`. The key order is fixed;
 * passwords are printed as "***". */
void policy_print(const struct policy *policy, FILE *out);

/* Returns the number of such servers in all upstreams. */
unsigned policy_name_count(const struct policy *policy);

/* Returns the priority of a client's request: the client's, else the plan's, else the rule's, else
 * the default. `client_limits`: the client's limits of the policy or the database, or NULL. NULL:
 * the policy has no priorities. */
static inline const struct priority *policy_priority(const struct policy *policy,
                                                     const struct rule *rule,
                                                     const struct client_limits *client_limits)
{
    if (client_limits && client_limits->priority)
        return client_limits->priority;
    if (client_limits && client_limits->plan && client_limits->plan->priority)
        return client_limits->plan->priority;
    return rule->priority ? rule->priority : policy->default_priority;
}

/* Returns whether a limit uses a script of the operator, which may fail. */
static inline bool policy_has_custom_limits(const struct policy *policy)
{
    for (unsigned i = 0; i < policy->limit_count; i++)
        if (policy->limits[i].kind == LIMIT_CUSTOM)
            return true;
    return false;
}

/* Without limits, weir does not connect to Redis. */
static inline bool policy_needs_redis(const struct policy *policy)
{
    return policy->limit_count > 0 || policy->rate_limit_service.domain_count > 0;
}

static inline bool policy_looks_up_quotas(const struct policy *policy)
{
    return policy->quotas.connection && policy_needs_redis(policy);
}

#endif
