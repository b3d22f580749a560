/* parts.h - what the parts of a policy keep for their printing and checks; for src/policy/ alone. */
#ifndef WEIR_CONFIG_PARTS_H
#define WEIR_CONFIG_PARTS_H

#include "config/load.h"
#include "policy/client_table.h"

enum {
    LISTEN_MAX = 64,
    CERTIFICATES_MAX = 64, /* of a listener */
    ADMIN_HOSTS_MAX = 64,
    UPSTREAMS_MAX = 256,
    SERVERS_MAX = 64,
    REDIS_NODES_MAX = 64,
    TRUSTED_MAX = 1024,
    CLIENTS_MAX = 100000,
    PLANS_MAX = 1024,
    METHODS_MAX = 32,
    STATUSES_MAX = 32,        /* in a limit's count */
    LUA_FILE_MAX = 256 << 10, /* bytes of a limiter */
    BODY_FILE_MAX = 64 << 10, /* bytes of a rejection's body */
    ADDRESS_LISTS_MAX = 64,   /* files of addresses.allow, and of addresses.block */
    ADDRESS_FILE_MAX = 64 << 20,
    LISTED_MAX = 1000000, /* addresses and ranges in all of them together */
};

/* The most that a bucket's time to refill may be: a time of today plus it stays below 2^53 µs, so that Lua's
 * doubles hold it exactly (see lua/gcra.lua). Windows are bounded by LIMIT_MAX and PERIOD_MAX_US alone. */
#define REFILL_MAX_US ((int64_t)1 << 52)
#define LIMIT_MAX     1000000000 /* the window logs count modulo 2^40 */
#define PERIOD_MIN_US INT64_C(1000)
#define PERIOD_MAX_US (INT64_C(366) * 86400 * 1000000)

enum { SCRIPT_TEXT_MAX = 1024 }; /* bytes of a text among a script's options */

enum { DEDUP_REPEATS_DEFAULT = 10, DEDUP_REPEATS_MAX = 1000 };
enum { BUCKETS_MIN = 2, BUCKETS_MAX = 100 }; /* of rolling_window */

/* --- limits --- */

bool limit_has_burst(const void *limit); /* for the table's `applies` */
bool limit_has_align(const void *limit);
bool limit_has_offset(const void *limit);
bool limit_has_buckets(const void *limit);
bool limit_has_period(const void *limit);
bool limit_has_max_delay(const void *limit);
bool limit_has_best_effort(const void *limit);
bool limit_has_enforce(const void *limit);
bool limit_has_time_zone(const void *limit);
bool limit_has_own_options(const void *limit);
/* Reports what of period, align, offset and time_zone does not go together, and fills in what follows. */
void limit_finish_windows(struct loading *l, const struct node *node, struct limit *limit);
/* The most that can be had at once. */
int64_t limit_capacity(const struct limit *limit, const struct limit_numbers *numbers);
/* Reports numbers that Lua's doubles would not hold. */
void limit_check_numbers(struct loading *l, const struct node *node, const struct limit *limit,
                         const struct limit_numbers *numbers);
const struct limit *limit_named(const struct policy *policy, struct slice name);
/* Reports that there is no such limit. */
void limit_unknown(struct loading *l, const struct node *node, struct slice name, bool is_key);

/* --- clients --- */

bool client_has_plan(const void *client); /* for the table's `applies` */
bool client_has_quota(const void *client);
bool client_has_limits(const void *client);

bool quotas_are_there(const void *policy); /* for the table's `applies` */

/* --- upstreams --- */

bool upstream_has_health(const void *upstream); /* for the table's `applies` */

/* --- identity --- */

/* Works out whose identity headers are believed, once all of the section is read. */
void identity_finish(struct policy *policy);

/* --- addresses --- */

/* Reads the files that were named. */
void addresses_read(struct loading *l);

/* --- rules --- */

bool rule_has_match(const void *rule); /* for the table's `applies` */
bool rule_has_path(const void *rule);
bool rule_has_host(const void *rule);
bool rule_has_methods(const void *rule);
bool rule_has_cost(const void *rule);
bool rule_has_cost_request(const void *rule);
bool rule_has_cost_response(const void *rule);
bool rule_has_rejection(const void *rule);

/* --- certificates --- */

/* Warns where certificates are not valid now, or not for CERTIFICATE_WARN_S more. `file` is the node that names them. */
enum { CERTIFICATE_WARN_S = 14 * 86400 };
struct tls_dates;
void certificate_check(struct loading *l, const struct node *file, const struct tls_dates *dates);

/* --- whom weir connects to --- */

/* "host:port" or "unix:/path", names resolved. False: a mistake was reported. */
bool destination_read(struct loading *l, const struct node *node, struct address *address);

/* redis_url.c: redis://USER:PASSWORD@HOST:PORT/DATABASE as redis.address. `*place` is its host:port. False: a mistake
 * was reported. */
bool redis_url_is_one(struct slice text);
bool redis_url_read(struct loading *l, const struct node *node, struct redis_url *url,
                    struct slice *position);
/* Takes over what stood in the URL, once all of the section is read. */
void redis_url_finish(struct loading *l);

bool redis_has_address(const void *policy); /* for the table's `applies` */
bool redis_has_sentinel(const void *policy);
bool redis_has_cluster(const void *policy);
bool redis_has_password(const void *policy);

/* Fills in policy->read_headers, and reports names that could not be kept apart. */
void read_headers_collect(struct loading *l);

/* check.c: what no single option shows. Warnings only where nothing is wrong. */
void policy_check(struct loading *l);
void warn_of_costs(struct loading *l);
void warn_of_paths(struct loading *l);
void warn_of_identity(struct loading *l); /* check_identity.c */
void warn_of_rules(struct loading *l);    /* check_rules.c */
/* The value of `section`.`key` in the file, or NULL. */
const struct node *node_at(const struct loading *l, const char *section, const char *key);

#endif
