/* policy.h - one policy file, read and checked: immutable, shared by all threads, freed with its last
 * reference.
 *
 *   YAML --tree.c--> nodes with line and column --options.c--> struct policy --check.c--> errors, warnings
 *
 * All durations are microseconds, all sizes bytes. Pointers inside belong to the policy. */
#ifndef WEIR_POLICY_POLICY_H
#define WEIR_POLICY_POLICY_H

#include <stdatomic.h>
#include <stdio.h>

#include "base/log.h"
#include "http/head.h"
#include "net/address.h"
#include "net/resolver.h"
#include "policy/address_lists.h"

enum { SHARE_WHOLE = 10000 }; /* shares are in hundredths of a per cent */

enum {
    LIMITS_MAX = 256,        /* in a policy */
    LIMITS_PER_RULE_MAX = 8, /* on one request */
    LIMIT_OPTIONS_MAX = 8,   /* a script's own options */
    LIMIT_PER_MAX = 4,       /* parts of `per` */
    RULES_MAX = 1024,
    RULE_NAME_MAX = 256, /* bytes; of a path pattern as well */
    CLIENT_ID_MAX = 256, /* bytes of an id from a header */
    LIMIT_COST_MAX = 1000000,
    COST_LEARNT_MAX = 1000000000, /* from an answer */
};

struct certificate_files { /* as written */
    char *certificate, *key;
};

struct listen_settings {
    struct address address;
    bool proxy_protocol; /* connections begin with a header that names the client (net/proxy_header.h) */
    struct certificate_files *certificates;
    unsigned certificate_count; /* 0: no TLS */
    struct tls_server *tls;     /* what was read from them; NULL: no TLS. Held */
};

struct position { /* in the policy file; counts from 1 */
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
    char *master; /* what they call it; NULL: no sentinels */
    struct redis_nodes nodes;
    char *username, *password; /* for the sentinels themselves; NULL: none */
};

/* What redis.address says beside the host, if it is a URL. */
struct redis_url {
    bool given, has_database;
    char *username, *password; /* NULL: none */
    unsigned database;
};

struct redis_settings {
    struct redis_url url;
    struct address address; /* length 0 when embedded, a name, or found otherwise */
    char *address_text;     /* as written, or what stands for it in messages */
    char *host;             /* where `address` is a name; NULL: it is none */
    uint16_t port;
    bool embedded;
    struct redis_sentinel_settings sentinel;
    struct redis_nodes cluster; /* some of its nodes; none: no cluster */
    char *username, *password;  /* NULL: none */
    char *password_file;        /* as written; NULL: none */
    unsigned database;
    char *key_prefix;
    uint64_t timeout_us;
    enum on_failure on_failure;
    unsigned
        instances; /* weirs that share the limits: what each may admit without Redis is divided by them */
};

struct upstream_server {
    struct address address; /* length 0: a name, whose addresses change */
    char *text;             /* as written */
    char *host;             /* of it: a name or an IP address; NULL: a unix socket */
    uint16_t port;
    struct position position;
};

struct upstream_tls {
    bool on, verify;
    char *ca, *server_name, *certificate, *key; /* as written; NULL: not */
    struct tls_client *client;                  /* what was read from them. Owned */
    char *certificate_path;                     /* of `certificate`; only where expires_s is set */
    int64_t expires_s; /* when the certificate does, in seconds since 1970; 0: none */
};

struct upstream_health {
    char *path; /* NULL: no checks */
    char *host; /* the Host field; NULL: the server's own */
    uint64_t interval_us, timeout_us;
    unsigned healthy, unhealthy; /* checks in a row that change a server's state */
    uint64_t *statuses;          /* of good answers, for statuses_hold() */
};

/* Why a request may be sent to another server: bits of upstreams.NAME.retry.on. */
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
    unsigned tries;      /* servers that a request may be sent to, the first one included */
    int64_t budget;      /* retries as a share of requests, of SHARE_WHOLE */
    unsigned budget_min; /* retries within RETRY_WINDOW_US that are allowed besides, by a worker */
};

enum { RETRY_WINDOW_US = 10 * 1000000 };

/* When failures eject a server. */
struct upstream_eject {
    unsigned failures;    /* in a row; 0: never */
    int64_t failure_rate; /* share of the requests within window_us, of SHARE_WHOLE; 0: never */
    unsigned
        requests; /* of a worker to the server within window_us, below which failure_rate does not apply */
    uint64_t window_us, time_us;
    int64_t at_most;    /* share of the servers, of SHARE_WHOLE */
    uint64_t *statuses; /* that count as failures, for statuses_hold() */
};

struct upstream {
    char *name;
    unsigned index; /* in policy->upstreams */
    struct upstream_server *servers;
    unsigned server_count; /* at least 1 */
    uint64_t connect_timeout_us, response_timeout_us;
    bool forwarded; /* requests carry Forwarded (RFC 7239) */
    struct upstream_tls tls;
    struct upstream_health health;
    struct upstream_retry retry;
    struct upstream_eject eject;
};

enum identity_source { IDENTITY_IP, IDENTITY_HEADER };

struct identity_from {
    enum identity_source source;
    char *header;        /* IDENTITY_HEADER: the field's name */
    enum field_id field; /* FIELD_X_CLIENT_ID where it is that, for a quick look; else FIELD_OTHER */
};

enum { IDENTITY_FROM_MAX = 4 };

/* Whose identity headers are believed. */
enum headers_from { HEADERS_FROM_TRUSTED, HEADERS_FROM_ANYONE };

struct identity_settings {
    struct identity_from from[IDENTITY_FROM_MAX];
    unsigned from_count;
    struct ip_range *trusted;
    unsigned trusted_count;
    bool trust_unix; /* "unix:" among trusted_proxies */
    enum headers_from headers_from;
    bool headers_from_anyone; /* as it is: headers_from is anyone, or nobody is trusted */
    unsigned ipv6_prefix;
    bool known_clients_only; /* an id must be among the clients, else the next source counts */
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
    LIMIT_CONCURRENCY /* of requests in flight: what is taken is given back when the request has ended */
};

enum { LEASE_AUTO = -1, LEASE_MOST = 100000 };

/* Windows of the calendar; by the wall clock of limit->zone. A week starts on Monday (ISO 8601). */
enum calendar { CALENDAR_NONE, CALENDAR_DAY, CALENDAR_WEEK, CALENDAR_MONTH, CALENDAR_YEAR };

enum script_option_kind { OPTION_NUMBER, OPTION_DURATION, OPTION_BOOL, OPTION_TEXT };

/* What a limiter of one's own is given beside the limit's numbers. */
struct script_option {
    char *name; /* for the reader of the policy; NULL: none */
    enum script_option_kind kind;
    int64_t number; /* exact in Lua; a duration is µs; of a bool 0 or 1 */
    char *text;
};

struct zone;

/* Requests that repeat an earlier one. */
struct dedup_settings {
    char *header;    /* the field whose value makes a repeat free; NULL: none */
    int64_t repeats; /* how many of a request are free before the next one is charged */
};

struct limit {
    unsigned index; /* in policy->limits; the driver script's number less 1 */
    unsigned row;   /* of its counters; set by who runs the policy, before workers have it */
    char *name, *label;
    char *script;      /* a name of lua/ or a path */
    char *script_text; /* the file's text */
    enum limit_kind kind;
    int64_t limit, burst;
    int64_t period_us;
    bool has_offset; /* align: clock */
    int64_t offset_us;
    enum calendar calendar; /* then period_us is the longest that a window lasts */
    char *time_zone;        /* as written; NULL where calendar is CALENDAR_NONE, as is zone */
    const struct zone *zone;
    struct script_option *own_options; /* of a LIMIT_CUSTOM; passed behind the others */
    unsigned own_option_count;
    struct position script_position; /* of what `script:` says */
    int64_t
        options[LIMIT_OPTIONS_MAX]; /* passed to the script in this order, e.g. rolling_window's buckets */
    unsigned option_count;
    int64_t max_delay_us; /* leaky_bucket: hold a request so long rather than reject it; 0: never */
    int64_t lease_us;     /* LIMIT_CONCURRENCY: its period */
    int64_t
        cost; /* of a request whose rule says nothing of it; of a LIMIT_CONCURRENCY whatever the rule says */
    int64_t lease_units; /* that a worker may take at once for a busy key; LEASE_AUTO; 0: none */
    bool best_effort;
    bool headers; /* it stands in the answer's fields */
    /* The statuses of answers that are charged, a bit for each; NULL: every request is, before it is forwarded. */
    uint64_t *counted;
    struct dedup_settings dedup;
    bool shadow;     /* counts and reports, rejects nobody */
    int64_t enforce; /* the share of clients that it rejects, of SHARE_WHOLE; 0 for a shadow limit */
    struct limit_part per[LIMIT_PER_MAX];
    unsigned per_count; /* at least 1; client before the others where it is one of them */
    enum on_failure on_failure;
    struct position position;
};

/* The numbers of one limit for one kind of client. */
struct limit_numbers {
    int64_t limit, burst;
};

enum quota_kind {
    QUOTA_AS_WRITTEN,
    QUOTA_PROHIBITED, /* quota: 0 */
    QUOTA_UNLIMITED   /* quota: unlimited, or -1 */
};

/* Numbers that several clients share. */
struct plan {
    char *name;
    struct limit_numbers *numbers; /* by limit index; NULL: the limits as written */
    struct position position;
};

/* What the policy, or the database, says of one client. In the policy its plan and a quota of n are already worked into
 * `numbers`. */
struct client_limits {
    char *name; /* as written: "client-1", "ip:10.0.0.0/8"; NULL: from the database */
    enum quota_kind quota;
    const struct plan *plan;             /* or NULL */
    const struct limit_numbers *numbers; /* by limit index; NULL: the limits as written */
    int64_t
        each; /* from the database: in place of limit and burst of every limit counted per client; 0: none */
    struct position position;
};

enum unknown_client { UNKNOWN_CLIENT_DEFAULT, UNKNOWN_CLIENT_DENY };

/* Quotas from a database. */
struct quota_settings {
    char *connection, *query;  /* as written; NULL: there are none */
    char **keywords, **values; /* the connection taken apart, ended by NULL, with addresses for names */
    unsigned parameter_count;
    char *position;    /* "127.0.0.1:5432/weir" */
    bool has_password; /* in the connection */
    uint32_t tag;      /* of the query */
    uint64_t timeout_us, cache_us;
    enum unknown_client unknown_client;
};

/* What is put in where a body's text is interrupted. */
enum body_word { BODY_END, BODY_LIMIT, BODY_RETRY_AFTER, BODY_CLIENT };

struct body_piece {
    struct slice text;
    enum body_word then;
};

enum { BODY_WORDS_MAX = 8 };

struct rejection_settings {
    unsigned status;
    char *body_file; /* as written; NULL: none */
    char *body;      /* its text; NULL: problem+json */
    size_t body_size;
    struct body_piece *pieces; /* the same, cut at its words; the last one ends with BODY_END */
    unsigned piece_count;
    char *content_type;
    int64_t jitter; /* of the wait, of SHARE_WHOLE; the policy's alone */
};

enum dot_segments { DOT_SEGMENTS_REJECT, DOT_SEGMENTS_NORMALIZE };
enum ambiguous_paths { AMBIGUOUS_REJECT, AMBIGUOUS_ALLOW };
enum trailing_slash { TRAILING_SLASH_IGNORE, TRAILING_SLASH_EXACT };

/* How paths are read and matched. */
struct path_settings {
    enum dot_segments dot_segments;
    enum ambiguous_paths ambiguous;
    enum trailing_slash trailing_slash;
    bool ignore_case;
};

struct rule {
    unsigned index;
    unsigned row; /* of its counters, as in a limit */
    char *name; /* its name:, else its path, else "*" (made unique by "#2" and so on): the metrics' label and
                   PER_ROUTE's value */
    struct slice path, host; /* patterns as written; n == 0: any */
    struct slice pattern;    /* of the path, as it is matched: see rule_choice.c */
    bool any_method;
    struct slice *methods;
    unsigned method_count;
    const struct limit **limits;
    unsigned limit_count; /* 0: unlimited */
    bool unlimited;       /* limits: none */
    int64_t cost;         /* 0: each limit's own */
    char *cost_request;   /* the request's field that says the cost, from trusted peers; NULL: none */
    int64_t cost_max;     /* the most that it may say */
    char *cost_response;  /* the answer's field that says the cost; NULL: none */
    bool learns;          /* some of what is charged is known only when the answer's head is there */
    const struct upstream *upstream;
    bool has_rejection;                  /* one of its own; else the policy's */
    struct rejection_settings rejection; /* whole in either case */
    struct position position;
};

enum {
    HEADERS_X_RATELIMIT = 1,
    HEADERS_X_RATE_LIMIT = 2,
    HEADERS_IETF = 4,
    HEADERS_X_RATELIMIT_EPOCH = 8 /* X-RateLimit-Reset as Unix time */
};

/* A client that shuts down its sending side: has it left, or does it wait for its answer? */
enum half_close { HALF_CLOSE_END, HALF_CLOSE_ALLOW };

struct timeouts {
    uint64_t request_header_us, request_body_us, shutdown_us;
    uint64_t keepalive_us;  /* between two requests */
    uint64_t tunnel_us;     /* without a byte in either direction */
    uint64_t send_us;       /* between two pieces of an answer that the client takes */
    uint64_t idle_us;       /* in place of these three where they are not written; 0: not written */
    uint64_t body_min_rate; /* bytes a second; 0: none */
    uint64_t exchange_us;   /* a request and its whole answer; 0: any time */
    uint64_t linger_us;     /* content that is read and dropped after an answer; 0: none */
};

struct size_limits {
    uint64_t request_header, request_body, response_header; /* request_body 0: no limit */
    unsigned connections;                                   /* 0: no limit */
    unsigned connections_per_ip;     /* 0: no limit; trusted proxies and unix sockets are not counted */
    bool connections_per_ip_derived; /* not written: a quarter of connections */
};

enum access_format { ACCESS_OFF, ACCESS_JSON, ACCESS_COMBINED };

struct log_settings {
    int level; /* enum log_level */
    enum access_format access;
    enum log_format format; /* of events */
    char *file;             /* "stderr" or a path */
};

/* Files of addresses, one or a range a line. */
struct address_files {
    char **names; /* as written */
    unsigned count;
    const struct node *nodes; /* while loading */
};

struct admin_settings {
    struct address address; /* length 0: no admin listener */
    char **hosts; /* names that a request's Host may have, beside addresses and localhost; in lower case */
    unsigned host_count;
};

struct address_settings {
    struct address_files allow, block;
    struct address_table table;
};

/* The request headers that decide something, see policy_sort_headers(). read_headers_collect() has to know every
 * option that names one. */
struct read_headers {
    struct slice *names; /* each once */
    unsigned count;
    bool some_odd;    /* a name holds a character other than letters, digits and "-" */
    bool some_claims; /* a name is one that is not forwarded from strangers, FIELD_PROXY_CLAIM, or at all */
};

struct clients; /* the table behind policy_client() */
struct arena;

struct policy {
    atomic_uint references;
    char *file;
    char *driver;     /* the composed script, malloc'ed; set by who runs the policy, before workers have it */
    unsigned workers; /* "auto" is already a number */
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
    bool shadow; /* of limits that do not say */
    struct limit *limits;
    unsigned limit_count;
    struct plan *plans;
    unsigned plan_count;
    struct clients *clients;
    struct quota_settings quotas;
    struct path_settings paths;
    bool rules_have_paths, rules_have_hosts; /* some rule has one */
    struct rule
        *rules; /* the last one is the built-in: matches all, no limits, first upstream; name "(none)" */
    unsigned rule_count;
    unsigned headers; /* HEADERS_* */
    struct rejection_settings rejection;
    enum half_close half_close;
    struct timeouts timeouts;
    const char
        *keep_alive; /* lines of the answers behind which a connection is kept: Connection and Keep-Alive */
    struct size_limits size_limits;
    struct log_settings log;
    struct arena *arena; /* holds all of the above */
};

/* Reads and checks `file`. Limiter scripts are looked for in `lua_dir` by name. Every mistake and warning is
 * printed to `report` as "FILE:LINE:COLUMN: ..." (warnings with "warning: " after the place; mistakes at most
 * 20, then a count). NULL when there was a mistake. Blocks: reads files and resolves Redis' name; those of upstreams' servers are left to the resolver. The caller owns
 * one reference. */
struct policy *policy_load(const char *file, const char *lua_dir, FILE *report);

/* Does the file ask for log.format: json? Also true where the file has mistakes, which are then logged in JSON. False for
 * anything but a regular file. Reads the file. */
bool policy_wants_json_log(const char *file);

struct policy *policy_hold(struct policy *policy);
void policy_drop(struct policy *policy);

/* A reload leaves the sockets: `next` gets the listeners of `now`, in their order, with the certificates that it
 * has itself for those that it names as well. `written` are those of `now` as the file had them. */
void policy_keep_listeners(struct policy *next, const struct policy *now,
                           const struct listen_settings *written);

/* Are they the same in everything that takes a restart? */
bool listen_settings_same(const struct listen_settings *one, const struct listen_settings *other);

/* Is it one of weir's own limiters? `out` is given the names of them all: "token_bucket, leaky_bucket, ...". */
struct script_names {
    char text[256];
};
bool script_names(struct slice name, struct script_names *out);

/* The effective policy, defaults filled in, as YAML with a fixed order of keys (passwords as "***"): `weir
 * check` prints it. */
void policy_print(const struct policy *policy, FILE *out);

/* Is the server written as a name, which has to be looked up? And how many servers of all upstreams are? */
static inline bool server_is_name(const struct upstream_server *server)
{
    return server->address.length == 0;
}
unsigned policy_name_count(const struct policy *policy);

/* The rule that decides; never NULL. `path` is in normal form, in lower case if paths.ignore_case is set; `host` as it
 * came. Linear in the rules. */
const struct rule *policy_match(const struct policy *policy, struct slice method, struct slice path,
                                struct slice host);

/* Does `rule`, which policy_match() found for the request, also hold under each method that a field such as
 * X-HTTP-Method-Override names? False: the server may take the request for one of another rule, or, with a limit
 * per method, for one that is counted apart. `path` as for policy_match(). */
bool policy_overrides_agree(const struct policy *policy, const struct rule *rule,
                            const struct request_head *head, struct slice path, struct slice host);
/* The Host of requests without one (HTTP/1.0): the server's address, as from a client that asked it directly. */
static inline struct slice upstream_host(const struct upstream *upstream)
{
    const struct upstream_server *server = &upstream->servers[0];
    return address_is_unix(&server->address) ? SLICE("localhost") : slice_of(server->text);
}

/* Where nothing is limited nothing is asked of Redis, and weir does not connect to it. */
static inline bool policy_needs_redis(const struct policy *policy)
{
    return policy->limit_count > 0;
}

/* What this request costs, by the field that the rule names; 0: what the rule and the limits say. False: the
 * request is to be refused with 400 and `*why`. */
MUST_CHECK bool rule_cost_of(const struct rule *rule, bool peer_trusted, const struct fields *fields,
                             int64_t *cost, const char **why);
/* What the answer says that the request has cost; -1: nothing that can be used. */
int64_t rule_cost_learnt(const struct rule *rule, const struct fields *fields);

enum { STATUS_MIN = 100, STATUS_MAX = 599 };

/* Is the status among them? NULL: all are. */
static inline bool statuses_hold(const uint64_t *statuses, unsigned status)
{
    return !statuses ||
           (status >= STATUS_MIN && status <= STATUS_MAX && (statuses[status / 64] >> status % 64 & 1));
}

/* Is an answer with this status charged? */
static inline bool limit_counts(const struct limit *limit, unsigned status)
{
    return statuses_hold(limit->counted, status);
}

/* What the policy says of a client, or NULL. An id is looked up by name; an address by itself, then by the
 * longest range. */
struct identity;
const struct client_limits *policy_client(const struct policy *policy, const struct identity *identity);

/* The limit as it holds under these terms, or, where they are NULL, for everybody. */
struct limit_numbers client_numbers(const struct client_limits *client_limits, const struct limit *limit);

/* The period as it is written in a policy: "1m", "month". */
struct text;
void limit_period_write(struct text *out, const struct limit *limit);

/* May the limit reject this client? For others it is a shadow limit. The choice is the same in every weir,
 * and who is chosen for a small share is among those of a larger one. */
bool limit_enforces(const struct limit *limit, const struct identity *identity);

/* Does `a` match everything that `b` matches? Sure where it says so; there may be more. */
bool rule_covers(const struct rule *a, const struct rule *b);

/* Fills in `pattern`; `room` is of path.n bytes and stays the rule's. */
void rule_set_pattern(struct rule *rule, const struct path_settings *paths, char *room);

#endif
