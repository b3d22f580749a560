/* parts.h - bounds and functions that the section readers share; internal to src/config/. */
#ifndef WEIR_CONFIG_PARTS_H
#define WEIR_CONFIG_PARTS_H

#include "policy/client_table.h"
#include "yaml/load.h"

enum {
    LISTEN_MAX = 64,
    CERTIFICATES_MAX = 64, /* per listener */
    ADMIN_LISTENERS_MAX = 16,
    ADMIN_HOSTS_MAX = 64, /* per listener */
    TOKEN_MIN = 16,       /* bytes of an admin token */
    TOKEN_MAX = 512,
    UPSTREAMS_MAX = 256,
    SERVERS_MAX = 64,
    REDIS_NODES_MAX = 64,
    TRUSTED_MAX = 1024,
    CLIENTS_MAX = 100000,
    PLANS_MAX = 1024,
    METHODS_MAX = 32,
    REJECTION_HEADERS_MAX = 16,
    STATUSES_MAX = 32,        /* entries in a list of statuses */
    LUA_FILE_MAX = 256 << 10, /* bytes of a limiter script */
    BODY_FILE_MAX = 64 << 10, /* bytes of a rejection body */
    ADDRESS_LISTS_MAX = 64,   /* files in each of addresses.allow and addresses.block */
    ADDRESS_FILE_MAX = 64 << 20,
    LISTED_MAX = 1000000, /* addresses and ranges in all files together */
};

/* Maximum time to refill a bucket: added to the current time it stays below 2^53 µs, which Lua
 * doubles hold exactly (see lua/gcra.lua). Windows are bounded by LIMIT_MAX and PERIOD_MAX_US. */
#define REFILL_MAX_US ((int64_t)1 << 52)
#define LIMIT_MAX     1000000000 /* the window logs count modulo 2^40, which is larger */
#define PERIOD_MIN_US INT64_C(1000)
#define PERIOD_MAX_US (INT64_C(366) * 86400 * 1000000)

enum { SCRIPT_TEXT_MAX = 1024 }; /* bytes of a text option of a script */

enum { DEDUP_REPEATS_DEFAULT = 10, DEDUP_REPEATS_MAX = 1000 };
enum { BUCKETS_MIN = 2, BUCKETS_MAX = 100 }; /* buckets of rolling_window */

/* --- limits --- */

bool limit_has_burst(const void *limit); /* for option->applies */
bool limit_has_align(const void *limit);
bool limit_has_offset(const void *limit);
bool limit_has_buckets(const void *limit);
bool limit_has_period(const void *limit);
bool limit_has_max_delay(const void *limit);
bool limit_has_best_effort(const void *limit);
bool limit_has_granted_header(const void *limit);
bool limit_has_enforce(const void *limit);
bool limit_has_time_zone(const void *limit);
bool limit_has_own_options(const void *limit);
bool limit_is_in_flight(const void *limit); /* a concurrency limit */
/* The options of a shipped limiter: checks their names, and sets rest_us. */
void limit_finish_own_options(struct loading *l, const struct node *node, struct limit *limit);
/* Reports combinations in which granted_header has no meaning. */
void limit_check_granted_header(struct loading *l, const struct node *node,
                                const struct limit *limit);
/* Sets the lease after the section is read; reports limiters that allow none. */
void limit_finish_lease(struct loading *l, const struct node *node, struct limit *limit);
/* Returns the length of the limit's shortest window. */
int64_t limit_shortest_window(const struct limit *limit);
/* Reports contradictions between period, align, offset and time_zone, and sets derived fields. */
void limit_finish_windows(struct loading *l, const struct node *node, struct limit *limit);
/* read_variants.c: returns `limit` with the period of `written`, for plans and clients; NULL: it is
 * the limit's own, or an error was reported at `period`. */
const struct limit *limit_variant(struct loading *l, const struct node *period,
                                  const struct limit *limit, const struct limit *written);
/* Reports numbers that Lua doubles cannot hold exactly. */
void limit_check_numbers(struct loading *l, const struct node *node, const struct limit *limit,
                         const struct limit_numbers *numbers);
const struct limit *limit_named(const struct policy *policy, struct slice name);
/* Reports an unknown limit, at the node's key or value. */
void limit_unknown(struct loading *l, const struct node *node, struct slice name, bool is_key);

/* --- clients --- */

/* Returns the name of an id for messages and `weir check`, in the arena: values are shown as their
 * hash if they are hashed. */
char *client_printed_name(struct loading *l, struct slice identity);
bool client_is_blocked(const void *client); /* for option->applies */
bool client_has_plan(const void *client);
bool client_has_quota(const void *client);
bool client_has_limits(const void *client);

bool quotas_are_there(const void *policy); /* for option->applies */

/* --- upstreams --- */

bool upstream_has_health(const void *upstream); /* for option->applies */

/* --- identity --- */

bool identity_reads_tokens(const void *policy); /* for option->applies */
/* Sets headers_from_anyone after the section is read, and reports a jwt source without keys. */
void identity_finish(struct loading *l);

bool jwt_has_inline_secret(const void *policy); /* for option->applies */
void check_jwt(struct loading *l);              /* read_jwt.c: reports a jwt source without keys */

/* --- secrets (secret_file.c) --- */

/* Removes a trailing newline, as added by editors and `echo`. */
struct slice without_newline(struct slice bytes);
/* Warns if every user of the machine may read or write the file with a secret that `node` names. */
void warn_of_file_mode(struct loading *l, const struct node *node, const char *path);

/* Reads a file that holds a secret alone, on one line, into the scratch arena. `what` is its name
 * in errors. Returns false if the value is null, or after reporting an error. Warns if everybody
 * can read the file. */
struct option;
bool secret_file_read(struct loading *l, const struct option *option, const struct node *node,
                      const char *what, struct slice *secret);

/* --- admin --- */

bool admin_is_unix(const void *listener); /* for option->applies */

/* --- addresses --- */

/* Reads the files named in the section into policy->addresses.table. */
void addresses_read(struct loading *l);
bool has_decisions(const void *policy); /* for option->applies */
/* Completes the section decisions; call after listen and identity. */
void decisions_finish(struct loading *l);

/* --- rules --- */

bool rule_has_match(const void *rule); /* for option->applies */
bool rule_has_path(const void *rule);
bool rule_has_host(const void *rule);
bool rule_has_methods(const void *rule);
bool rule_has_header(const void *rule);
bool rule_has_query(const void *rule);
bool rule_has_client(const void *rule);
bool rule_has_scheme(const void *rule);
bool rule_has_cost(const void *rule);
bool rule_has_cost_request(const void *rule);
bool rule_has_cost_response(const void *rule);
bool rule_has_rejection(const void *rule);

/* --- certificates --- */

/* Warns about certificates that are not valid now or expire within CERTIFICATE_WARN_S seconds.
 * `file` is the node that names them. */
enum { CERTIFICATE_WARN_S = 14 * 86400 };
struct tls_dates;
void certificate_check(struct loading *l, const struct node *file, const struct tls_dates *dates);

/* --- destinations --- */

/* Reads "host:port" or "unix:/path" and resolves host names. Returns false after reporting an
 * error. Blocks. */
bool destination_read(struct loading *l, const struct node *node, struct address *address);

/* read_client_tls.c: makes tls->client from the files that the options name. `node` is the map of
 * these options, or a node for errors if there is none. */
void client_tls_load(struct loading *l, const struct node *node, struct client_tls *tls);

/* redis_url.c: reads redis[s]://USER:PASSWORD@HOST:PORT/DATABASE as redis.address. `*position` is
 * set to its host:port. Returns false after reporting an error. */
bool redis_url_is_one(struct slice text);
bool redis_url_read(struct loading *l, const struct node *node, struct redis_url *url,
                    struct slice *position);
/* Applies the parts of the URL after the section is read; checks whether TLS fits the address. */
void redis_url_finish(struct loading *l);

bool redis_has_address(const void *policy); /* for option->applies */
bool redis_has_sentinel(const void *policy);
bool redis_has_cluster(const void *policy);
bool redis_has_password(const void *policy);

/* Sets policy->read_headers, and reports names that servers may not distinguish. */
void read_headers_collect(struct loading *l);

#endif
