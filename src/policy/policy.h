/* policy.h - data model of one policy file after reading and validation.
 *
 *   YAML --tree.c--> nodes with positions --options.c--> struct policy --check.c--> warnings
 *
 * A policy is immutable, shared by all threads and freed with its last reference. Durations are in
 * microseconds, sizes in bytes. The policy owns the memory that its pointers refer to. */
#ifndef WEIR_POLICY_POLICY_H
#define WEIR_POLICY_POLICY_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"
#include "http/head.h"
#include "net/address.h"
#include "net/resolver.h"
#include "policy/address_lists.h"

enum { SHARE_WHOLE = 10000 }; /* unit of shares: 0.01% */

enum {
    LIMITS_MAX = 256,        /* per policy */
    LIMITS_PER_RULE_MAX = 8, /* per request */
    LIMIT_OPTIONS_MAX = 8,   /* built-in options passed to a script */
    LIMIT_PER_MAX = 4,       /* dimensions in `per` */
    RULES_MAX = 1024,
    RULE_NAME_MAX = 256, /* bytes; also the limit for path patterns */
    CLIENT_ID_MAX = 256, /* bytes; client id from a header */
    LIMIT_COST_MAX = 1000000,
    COST_LEARNT_MAX = 1000000000, /* cost reported by a response */
};

struct certificate_files { /* paths as written */
    char *certificate, *key;
};

struct listen_settings {
    struct address address;
    bool proxy_protocol; /* expect a PROXY protocol header (net/proxy_header.h) */
    struct certificate_files *certificates;
    unsigned certificate_count; /* 0: no TLS */
    struct tls_server *tls;     /* holds a reference; NULL: no TLS */
};

struct position { /* in the policy file; counted from 1 */
    unsigned line, column;
};

enum on_failure { ON_FAILURE_LOCAL, ON_FAILURE_ALLOW, ON_FAILURE_DENY };

struct redis_nodes {
    struct redis_node {
        struct address address;
        char *text; /* as written */
    } * node;
    unsigned count;
};

struct redis_sentinel_settings {
    char *master; /* master name; NULL: no sentinels */
    struct redis_nodes nodes;
    char *username, *password; /* of the sentinels; NULL: none */
};

/* Parts of redis.address besides host and port, if it is a URL. */
struct redis_url {
    bool given, has_database;
    char *username, *password; /* NULL: none */
    unsigned database;
};

struct redis_settings {
    struct redis_url url;
    struct address address; /* length 0: embedded, host name, sentinel or cluster */
    char *address_text;     /* as written, or its substitute in messages */
    char *host;             /* host name to resolve; NULL: not a host name */
    uint16_t port;
    bool embedded;
    struct redis_sentinel_settings sentinel;
    struct redis_nodes cluster; /* seed nodes; count 0: no cluster */
    char *username, *password;  /* NULL: none */
    char *password_file;        /* as written; NULL: none */
    unsigned database;
    char *key_prefix;
    uint64_t timeout_us;
    enum on_failure on_failure;
    /* weir instances sharing the limits; divides leases, and local limits while Redis is down */
    unsigned instances;
};

struct upstream_server {
    struct address address; /* length 0: a host name, resolved at run time */
    char *text;             /* as written */
    char *host;             /* host name or IP address from `text`; NULL: unix socket */
    uint16_t port;
    struct position position;
};

struct upstream_tls {
    bool on, verify;
    char *ca, *server_name, *certificate, *key; /* as written; NULL: not set */
    struct tls_client *client;                  /* TLS context from these files; owned */
    char *certificate_path;                     /* path of `certificate`; set only with expires_s */
    int64_t expires_s;                          /* certificate expiry, Unix time; 0: none */
};

struct upstream_health {
    char *path; /* NULL: no health checks */
    char *host; /* Host header; NULL: the server's address */
    uint64_t interval_us, timeout_us;
    unsigned healthy, unhealthy; /* consecutive results that change a server's state */
    uint64_t *statuses;          /* successful statuses, for statuses_hold() */
};

/* Failures after which a request may be retried: bits of upstreams.NAME.retry.on. */
enum retry_on {
    RETRY_ON_CONNECT = 1,
    RETRY_ON_RESET = 2,
    RETRY_ON_TIMEOUT = 4,
    RETRY_ON_502 = 8,
    RETRY_ON_503 = 16,
    RETRY_ON_504 = 32
};

struct upstream_retry {
    unsigned on;         /* enum retry_on */
    unsigned tries;      /* maximum attempts per request, including the first */
    int64_t budget;      /* retries as a share of requests, in 1/SHARE_WHOLE */
    unsigned budget_min; /* additional retries per worker and RETRY_WINDOW_US */
};

enum { RETRY_WINDOW_US = 10 * 1000000 };

/* Outlier ejection. */
struct upstream_eject {
    unsigned failures;    /* consecutive failures; 0: never */
    int64_t failure_rate; /* share of requests within window_us, in 1/SHARE_WHOLE; 0: never */
    unsigned requests;    /* minimum per worker and server within window_us for failure_rate */
    uint64_t window_us, time_us;
    int64_t at_most;    /* maximum share of ejected servers, in 1/SHARE_WHOLE */
    uint64_t *statuses; /* statuses that count as failures, for statuses_hold() */
};

struct upstream {
    char *name;
    unsigned index; /* in policy->upstreams */
    struct upstream_server *servers;
    unsigned server_count; /* at least 1 */
    uint64_t connect_timeout_us, response_timeout_us;
    bool forwarded; /* send Forwarded (RFC 7239) */
    struct upstream_tls tls;
    struct upstream_health health;
    struct upstream_retry retry;
    struct upstream_eject eject;
};

enum identity_source { IDENTITY_IP, IDENTITY_HEADER };

struct identity_from {
    enum identity_source source;
    char *header;        /* IDENTITY_HEADER: the field's name */
    enum field_id field; /* FIELD_X_CLIENT_ID (fast lookup) or FIELD_OTHER */
};

enum { IDENTITY_FROM_MAX = 4 };

/* Peers whose identity headers are accepted. */
enum headers_from { HEADERS_FROM_TRUSTED, HEADERS_FROM_ANYONE };

struct identity_settings {
    struct identity_from from[IDENTITY_FROM_MAX];
    unsigned from_count;
    struct ip_range *trusted;
    unsigned trusted_count;
    bool trust_unix; /* trusted_proxies contains "unix:" */
    enum headers_from headers_from;
    bool headers_from_anyone; /* headers_from is anyone, or trusted_proxies is empty */
    unsigned ipv6_prefix;
    bool known_clients_only; /* ids of unknown clients are skipped; the next source applies */
};

enum limit_per { PER_CLIENT, PER_IP, PER_ROUTE, PER_METHOD, PER_HOST, PER_ALL, PER_HEADER };

struct limit_part {
    enum limit_per per;
    char *header; /* PER_HEADER: the field's name */
};

enum limit_kind {
    LIMIT_BUCKET, /* token_bucket, gcra, leaky_bucket */
    LIMIT_WINDOW,
    LIMIT_CUSTOM,
    LIMIT_CONCURRENCY /* requests in flight; units are returned when the request ends */
};

enum { LEASE_AUTO = -1, LEASE_MOST = 100000 };

/* Calendar windows, in local time of limit->zone. Weeks start on Monday (ISO 8601). */
enum calendar { CALENDAR_NONE, CALENDAR_DAY, CALENDAR_WEEK, CALENDAR_MONTH, CALENDAR_YEAR };

enum script_option_kind { OPTION_NUMBER, OPTION_DURATION, OPTION_BOOL, OPTION_TEXT };

/* Option of a custom limiter script. */
struct script_option {
    char *name; /* name in the policy, not passed to the script; NULL: none */
    enum script_option_kind kind;
    int64_t number; /* exact as a Lua double; durations in µs, booleans 0 or 1 */
    char *text;
};

struct zone;

/* Deduplication of repeated requests. */
struct dedup_settings {
    char *header;    /* header that identifies repeats; NULL: off */
    int64_t repeats; /* uncharged repeats per request before the next charge */
};

struct limit {
    unsigned index; /* in policy->limits; the driver script counts from index + 1 */
    unsigned row;   /* counter row; set before workers receive the policy */
    char *name, *label;
    char *script;      /* name of a script in lua/, or a path */
    char *script_text; /* source text */
    enum limit_kind kind;
    int64_t limit, burst;
    int64_t period_us;
    bool has_offset; /* align: clock */
    int64_t offset_us;
    enum calendar calendar; /* if set, period_us is the longest possible window */
    char *time_zone;        /* as written; NULL, like zone, with CALENDAR_NONE */
    const struct zone *zone;
    struct script_option *own_options; /* LIMIT_CUSTOM; passed after `options` */
    unsigned own_option_count;
    struct position script_position; /* of the `script` value */
    /* passed to the script in this order, e.g. buckets of rolling_window */
    int64_t options[LIMIT_OPTIONS_MAX];
    unsigned option_count;
    int64_t max_delay_us; /* leaky_bucket: maximum delay instead of rejection; 0: never delay */
    int64_t lease_us;     /* LIMIT_CONCURRENCY: lifetime of an unreturned unit */
    int64_t cost;         /* default cost per request; LIMIT_CONCURRENCY ignores the rule's cost */
    int64_t lease_units;  /* units per lease of a busy key; LEASE_AUTO; 0: no leases */
    bool best_effort;
    bool headers; /* report in the response headers */
    /* Bit set of charged response statuses. NULL: each request is charged before forwarding. */
    uint64_t *counted;
    struct dedup_settings dedup;
    bool shadow;     /* count and report only, never reject */
    int64_t enforce; /* share of clients enforced, in 1/SHARE_WHOLE; 0: shadow limit */
    struct limit_part per[LIMIT_PER_MAX];
    unsigned per_count; /* at least 1; PER_CLIENT, if present, comes first */
    enum on_failure on_failure;
    struct position position;
};

/* Effective numbers of one limit for one client. */
struct limit_numbers {
    int64_t limit, burst;
};

enum quota_kind {
    QUOTA_AS_WRITTEN,
    QUOTA_PROHIBITED, /* quota: 0 */
    QUOTA_UNLIMITED   /* quota: unlimited, or -1 */
};

/* Limits shared by several clients. */
struct plan {
    char *name;
    struct limit_numbers *numbers; /* by limit index; NULL: the limits as written */
    struct position position;
};

/* Limits of one client, from the policy or the quota database. For clients of the policy, `numbers`
 * already includes the plan and a numeric quota. */
struct client_limits {
    char *name; /* as written: "client-1", "ip:10.0.0.0/8"; NULL: from the database */
    enum quota_kind quota;
    const struct plan *plan;             /* or NULL */
    const struct limit_numbers *numbers; /* by limit index; NULL: the limits as written */
    int64_t each; /* database quota; replaces limit and burst of every per-client limit; 0: none */
    struct position position;
};

enum unknown_client { UNKNOWN_CLIENT_DEFAULT, UNKNOWN_CLIENT_DENY };

/* Quotas from a database. */
struct quota_settings {
    char *connection, *query;  /* as written; NULL: no database */
    char **keywords, **values; /* parsed `connection`, NULL-terminated, host names resolved */
    unsigned parameter_count;
    char *position;    /* "127.0.0.1:5432/weir", for log lines */
    bool has_password; /* `connection` contains a password */
    uint32_t tag;      /* hash of the query */
    uint64_t timeout_us, cache_us;
    enum unknown_client unknown_client;
};

/* Placeholder in a rejection body. */
enum body_word { BODY_END, BODY_LIMIT, BODY_RETRY_AFTER, BODY_CLIENT };

struct body_piece {
    struct slice text;
    enum body_word then;
};

enum { BODY_WORDS_MAX = 8 };

struct rejection_settings {
    unsigned status;
    char *body_file; /* as written; NULL: none */
    char *body;      /* content of body_file; NULL: problem+json */
    size_t body_size;
    struct body_piece *pieces; /* `body` split at its placeholders; the last piece has BODY_END */
    unsigned piece_count;
    char *content_type;
    int64_t jitter; /* share of the wait, in 1/SHARE_WHOLE; policy level only */
};

enum dot_segments { DOT_SEGMENTS_REJECT, DOT_SEGMENTS_NORMALIZE };
enum ambiguous_paths { AMBIGUOUS_REJECT, AMBIGUOUS_ALLOW };
enum trailing_slash { TRAILING_SLASH_IGNORE, TRAILING_SLASH_EXACT };

/* Path normalization and matching. */
struct path_settings {
    enum dot_segments dot_segments;
    enum ambiguous_paths ambiguous;
    enum trailing_slash trailing_slash;
    bool ignore_case;
};

struct rule {
    unsigned index;
    unsigned row; /* counter row, as in struct limit */
    /* `name`, else the path, else "*"; duplicates get "#2" and so on. Metrics label and value of
     * PER_ROUTE */
    char *name;
    struct slice path, host; /* patterns as written; n == 0: any */
    struct slice pattern;    /* path pattern prepared by rule_set_pattern() */
    bool any_method;
    struct slice *methods;
    unsigned method_count;
    const struct limit **limits;
    unsigned limit_count; /* 0: unlimited */
    bool unlimited;       /* `limits: none` */
    int64_t cost;         /* 0: cost of each limit */
    char *cost_request;   /* request header with the cost, trusted peers only; NULL: none */
    int64_t cost_max;     /* larger values of cost_request are reduced to this */
    char *cost_response;  /* response header with the cost; NULL: none */
    bool learns;          /* some charges depend on the response head */
    const struct upstream *upstream;
    bool has_rejection;                  /* false: the policy's rejection applies */
    struct rejection_settings rejection; /* complete in both cases */
    struct position position;
};

enum {
    HEADERS_X_RATELIMIT = 1,
    HEADERS_X_RATE_LIMIT = 2,
    HEADERS_IETF = 4,
    HEADERS_X_RATELIMIT_EPOCH = 8 /* X-RateLimit-Reset as Unix time */
};

/* Treatment of a client that shuts down its sending side: end the request, or send the response. */
enum half_close { HALF_CLOSE_END, HALF_CLOSE_ALLOW };

struct timeouts {
    /* receiving the complete head; between two reads of the body; requests in flight on shutdown */
    uint64_t request_header_us, request_body_us, shutdown_us;
    uint64_t keepalive_us;  /* idle time between two requests */
    uint64_t tunnel_us;     /* idle time in both directions */
    uint64_t send_us;       /* between two successful writes of a response */
    uint64_t idle_us;       /* default for the three above; 0: not set */
    uint64_t body_min_rate; /* bytes per second; 0: no minimum */
    uint64_t exchange_us;   /* total request duration without tunnels; 0: no limit */
    uint64_t linger_us;     /* time to discard request content after the response; 0: none */
};

struct size_limits {
    uint64_t request_header, request_body, response_header; /* request_body 0: no limit */
    unsigned connections;                                   /* 0: no limit */
    unsigned connections_per_ip;     /* 0: no limit; excludes trusted proxies and unix sockets */
    bool connections_per_ip_derived; /* not set: connections / 4, rounded up to 1 */
};

enum access_format { ACCESS_OFF, ACCESS_JSON, ACCESS_COMBINED };

struct log_settings {
    int level; /* enum log_level */
    enum access_format access;
    enum log_format format; /* of event lines */
    char *file;             /* "stderr" or a path */
};

/* Files with one address or range per line. */
struct address_files {
    char **names; /* as written */
    unsigned count;
    const struct node *nodes; /* while loading */
};

struct admin_settings {
    struct address address; /* length 0: no admin listener */
    char **hosts;           /* allowed Host names besides IP addresses and localhost; lower case */
    unsigned host_count;
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

struct clients; /* table used by policy_client() */
struct arena;

struct policy {
    atomic_uint references;
    char *file;
    char *driver;     /* composed Lua script, malloc'ed; set before workers receive the policy */
    unsigned workers; /* "auto" is already resolved */
    struct listen_settings *listen;
    unsigned listen_count;
    struct admin_settings admin;
    struct redis_settings redis;
    struct upstream *upstreams;
    unsigned upstream_count;
    struct resolver_settings resolver;
    struct identity_settings identity;
    struct read_headers read_headers;
    struct address_settings addresses;
    bool shadow; /* default for limits */
    struct limit *limits;
    unsigned limit_count;
    struct plan *plans;
    unsigned plan_count;
    struct clients *clients;
    struct quota_settings quotas;
    struct path_settings paths;
    bool rules_have_paths, rules_have_hosts; /* true if any rule has one */
    struct rule *rules; /* the last is built in: matches all, no limits, first upstream, "(none)" */
    unsigned rule_count;
    unsigned headers; /* HEADERS_* */
    struct rejection_settings rejection;
    enum half_close half_close;
    struct timeouts timeouts;
    const char *keep_alive; /* Connection and Keep-Alive lines for persistent connections */
    struct size_limits size_limits;
    struct log_settings log;
    struct arena *arena; /* holds all of the above */
};

/* Reads and validates `file`. Limiter scripts are searched by name in `lua_dir`. Prints errors and
 * warnings to `report` as "FILE:LINE:COLUMN: ...", warnings with "warning: " after the position.
 * Prints at most 20 errors, then a count. Returns NULL if there is any error.
 *
 * Blocks: reads files and resolves the host names of sentinels, cluster nodes and database servers.
 * The resolver looks up redis.address and upstream servers at run time. The caller
 * owns a reference. */
struct policy *policy_load(const char *file, const char *lua_dir, FILE *report);

/* Returns true if the file sets log.format to json, even if the file has errors; the errors are
 * then logged as JSON. Returns false unless it is a regular file. Blocks: reads the file. */
bool policy_wants_json_log(const char *file);

/* Adds a reference; returns `policy`. */
struct policy *policy_hold(struct policy *policy);
/* Drops a reference and frees the policy with the last one. `policy` may be NULL. */
void policy_drop(struct policy *policy);

/* Keeps the listening sockets across a reload: replaces the listeners of `next` with those of
 * `now`, in their order. Listeners configured in both get the certificates of `next`. `written`
 * holds the listeners of `now` as configured in the file. */
void policy_keep_listeners(struct policy *next, const struct policy *now,
                           const struct listen_settings *written);

/* Returns true if all settings that require a restart are equal. */
bool listen_settings_same(const struct listen_settings *one, const struct listen_settings *other);

/* Returns true if `name` is a built-in limiter. Writes all names to `out`. */
struct script_names {
    char text[256];
};
bool script_names(struct slice name, struct script_names *out);

/* Prints the effective policy with all defaults as YAML, for `weir check`. The key order is fixed;
 * passwords are printed as "***". */
void policy_print(const struct policy *policy, FILE *out);

/* Returns true if the server is configured by host name. */
static inline bool server_is_name(const struct upstream_server *server)
{
    return server->address.length == 0;
}
/* Returns the number of such servers in all upstreams. */
unsigned policy_name_count(const struct policy *policy);

/* Returns the first matching rule; never NULL. `path` is in normal form, and in lower case if
 * paths.ignore_case is set. `host` is as received. Linear in the number of rules. */
const struct rule *policy_match(const struct policy *policy, struct slice method, struct slice path,
                                struct slice host);

/* Returns true if `rule`, the result of policy_match(), also applies to each method named by a
 * header such as X-HTTP-Method-Override. Otherwise the server may execute a request of another
 * rule, or of a method that a limit counts separately. `path` as for policy_match(). */
bool policy_overrides_agree(const struct policy *policy, const struct rule *rule,
                            const struct request_head *head, struct slice path, struct slice host);

/* Returns the Host for requests without one (HTTP/1.0): the address of the first server. */
static inline struct slice upstream_host(const struct upstream *upstream)
{
    const struct upstream_server *server = &upstream->servers[0];
    return address_is_unix(&server->address) ? SLICE("localhost") : slice_of(server->text);
}

/* Without limits, weir does not connect to Redis. */
static inline bool policy_needs_redis(const struct policy *policy)
{
    return policy->limit_count > 0;
}

/* Reads the request's cost from the header cost_request into `*cost`; 0: the cost of the rule or
 * limits applies. Returns false if the request must be rejected with 400 and the reason `*why`. */
MUST_CHECK bool rule_cost_of(const struct rule *rule, bool peer_trusted, const struct fields *fields,
                             int64_t *cost, const char **why);
/* Returns the cost in the response header cost_response; -1: missing or invalid. */
int64_t rule_cost_learnt(const struct rule *rule, const struct fields *fields);

enum { STATUS_MIN = 100, STATUS_MAX = 599 };

/* Returns true if the set contains `status`. NULL contains all. */
static inline bool statuses_hold(const uint64_t *statuses, unsigned status)
{
    return !statuses ||
           (status >= STATUS_MIN && status <= STATUS_MAX && (statuses[status / 64] >> status % 64 & 1));
}

/* Returns true if the limit charges responses with this status. */
static inline bool limit_counts(const struct limit *limit, unsigned status)
{
    return statuses_hold(limit->counted, status);
}

/* Returns the client's limits in the policy, or NULL. Ids are looked up by name, addresses by the
 * longest matching prefix. */
struct identity;
const struct client_limits *policy_client(const struct policy *policy, const struct identity *identity);

/* Returns the limit's effective numbers for these client limits; NULL: for all other clients. */
struct limit_numbers client_numbers(const struct client_limits *client_limits, const struct limit *limit);

/* Writes the period as in a policy: "1m", "month". */
struct text;
void limit_period_write(struct text *out, const struct limit *limit);

/* Returns true if the limit is enforced for this client; for others it is a shadow limit. All
 * instances choose the same clients, and a larger share includes the clients of a smaller one. */
bool limit_enforces(const struct limit *limit, const struct identity *identity);

/* Returns true only if `a` matches every request that `b` matches; may miss some cases. */
bool rule_covers(const struct rule *a, const struct rule *b);

/* Sets rule->pattern. `room` has path.n bytes and must live as long as the rule. */
void rule_set_pattern(struct rule *rule, const struct path_settings *paths, char *room);

#endif
