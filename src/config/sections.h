/* sections.h - what the section readers share: the types of their options, bounds and functions;
 * internal to src/config/.
 *
 * Each section of a policy file has a reader, read_SECTION.c, and rows in options_*.c. */
#ifndef WEIR_CONFIG_SECTIONS_H
#define WEIR_CONFIG_SECTIONS_H

#include "config/types.h"
#include "http/parse.h"
#include "policy/client_table.h"
#include "policy/criteria.h"

/* Types for single sections. The comments give the file and the C type of the field, which may be
 * the enclosing struct; the keyword struct is omitted. */
extern const struct option_type type_workers;          /* read_listen.c: unsigned */
extern const struct option_type type_listen;           /* read_listen.c: policy */
extern const struct option_type type_listen_tls;       /* read_listen_tls.c: listen_tls * */
extern const struct option_type type_admin;            /* read_admin.c: policy */
extern const struct option_type type_own_hosts;        /* read_admin.c: own_hosts */
extern const struct option_type type_admin_mode;       /* read_admin.c: unsigned */
extern const struct option_type type_token_file;       /* read_admin.c: admin_listener */
extern const struct option_type type_redis_address;    /* read_redis.c: redis_settings */
extern const struct option_type type_sentinel;         /* read_redis.c: policy */
extern const struct option_type type_redis_nodes;      /* read_redis.c: redis_nodes */
extern const struct option_type type_cluster;          /* read_redis.c: redis_settings */
extern const struct option_type type_password_file;    /* read_redis.c: redis_settings */
extern const struct option_type type_key_prefix;       /* read_redis.c: char * */
extern const struct option_type type_upstreams;        /* read_upstreams.c: policy */
extern const struct option_type type_health;           /* read_upstreams.c: upstream_health */
extern const struct option_type type_health_path;      /* read_upstreams.c: char * */
extern const struct option_type type_nameservers;      /* read_upstreams.c: resolver_settings */
extern const struct option_type type_servers;          /* read_upstreams.c: upstream */
extern const struct option_type type_identity_from;    /* read_identity.c: identity_settings */
extern const struct option_type type_client_ip_header; /* read_identity.c: identity_settings */
extern const struct option_type type_hash_key;         /* read_identity.c: identity_settings */
extern const struct option_type type_jwt_keys;         /* read_jwt.c: jwt_settings */
extern const struct option_type type_jwt_ca;           /* read_jwt.c: jwt_settings */
extern const struct option_type type_jwt_secret;       /* read_jwt.c: jwt_settings */
extern const struct option_type type_jwt_secret_file;  /* read_jwt.c: jwt_settings */
extern const struct option_type type_address_files;    /* read_addresses.c: address_files */
extern const struct option_type type_trusted;          /* read_identity.c: identity_settings */
extern const struct option_type type_priorities;       /* read_priorities.c: policy */
extern const struct option_type type_priority;         /* read_priorities.c: priority * */
extern const struct option_type type_limits;           /* read_limits.c: policy */
extern const struct option_type type_script;           /* read_script.c: limit */
extern const struct option_type type_per;              /* read_limit_per.c: limit */
extern const struct option_type type_own_header;       /* read_limit_parts.c: char * */
extern const struct option_type type_label;            /* read_limits.c: char * */
extern const struct option_type type_script_number;    /* read_script.c: limit */
extern const struct option_type type_script_duration;  /* read_script.c: limit */
extern const struct option_type type_period;           /* read_windows.c: limit */
extern const struct option_type type_offset;           /* read_windows.c: int64_t, µs */
extern const struct option_type type_time_zone;        /* read_windows.c: limit */
extern const struct option_type type_lease;            /* read_limit_parts.c: limit */
extern const struct option_type type_dedup;            /* read_limit_parts.c: dedup_settings */
extern const struct option_type type_own_options;      /* read_script.c: limit */
extern const struct option_type type_plans;            /* read_clients.c: policy */
extern const struct option_type type_plan_limits;      /* read_clients.c: plan */
extern const struct option_type type_clients;          /* read_clients.c: policy */
extern const struct option_type type_plan;             /* read_clients.c: client */
extern const struct option_type type_quota;            /* read_clients.c: client */
extern const struct option_type type_client_limits;    /* read_clients.c: client */
extern const struct option_type type_quotas;           /* read_quotas.c: policy */
extern const struct option_type type_quota_connection; /* read_quotas.c: quota_settings */
extern const struct option_type type_quota_query;      /* read_quotas.c: quota_settings */
extern const struct option_type type_rules;            /* read_rules.c: policy */
extern const struct option_type type_path_pattern;     /* read_match.c: slice */
extern const struct option_type type_host_pattern;     /* read_match.c: slice */
extern const struct option_type type_methods;          /* read_match.c: rule */
extern const struct option_type type_match_named;      /* read_match.c: rule */
extern const struct option_type type_match_values;     /* read_match.c: rule */
extern const struct option_type type_match_clients;    /* read_match.c: rule */
extern const struct option_type type_rule_limits;      /* read_rules.c: rule */
extern const struct option_type type_limit_cost;       /* read_limit_cost.c: int64_t */
extern const struct option_type type_reserve;          /* read_limit_cost.c: limit_cost */
extern const struct option_type type_request_json;     /* read_limit_cost.c: limit_cost */
extern const struct option_type type_usage;            /* read_limit_cost.c: usage_settings */
extern const struct option_type type_weight;           /* read_limit_cost.c: int64_t */
extern const struct option_type type_rule_cost;        /* read_rules.c: int64_t */
extern const struct option_type type_rule_upstream;    /* read_rules.c: rule */
extern const struct option_type type_answer_headers;   /* read_rejection.c: rejection_settings */
extern const struct option_type type_dialect;          /* read_rejection.c: rejection_settings */
extern const struct option_type type_body_file;        /* read_rejection.c: rejection_settings */

extern const struct option_type type_service_listen;     /* read_rate_limit_service.c: service */
extern const struct option_type type_rate_limit_domains; /* the same */
extern const struct option_type type_rate_limit_files;   /* the same */
extern const struct option_type type_descriptors;        /* read_descriptors.c: entry_level */
extern const struct option_type type_entry_text;         /* the same: slice */
extern const struct option_type type_rate_limit;         /* the same: configured_entry */
extern const struct option_type type_rate_limit_unit;    /* the same: an enum */
extern const struct option_type type_replaces;           /* the same: configured_entry */
extern const struct option_type type_entry_limits;       /* the same: configured_entry */
extern const struct option_type type_metadata;           /* the same: metadata * */

enum {
    LISTEN_MAX = 64,
    CERTIFICATES_MAX = 64, /* per listener */
    ADMIN_LISTENERS_MAX = 16,
    OWN_HOSTS_MAX = 64, /* per listener */
    TOKEN_MIN = 16,     /* bytes of an admin token */
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

enum { SCRIPT_TEXT_MAX = 1024 }; /* bytes of a text option of a script */

enum { DEDUP_REPEATS_DEFAULT = 10, DEDUP_REPEATS_MAX = 1000 };

/* --- read_limits.c --- */

bool limit_has_burst(const void *limit); /* for option->applies */
bool limit_has_align(const void *limit);
bool limit_is_not_in_flight(const void *limit);
bool limit_is_in_flight(const void *limit); /* a concurrency limit */
/* Reads an entry of the section limits, without its name. */
void limit_read(struct loading *l, const struct node *node, struct limit *limit);
/* Reports numbers that Lua doubles cannot hold exactly. */
void limit_check_numbers(struct loading *l, const struct node *node, const struct limit *limit,
                         const struct limit_numbers *numbers);
/* Returns the limit that the node, or its key, names; NULL after reporting an error. */
struct limit *limit_named(struct loading *l, const struct node *node, bool is_key);
/* Returns the limit that an item of a list names, after `count` others; NULL after reporting an
 * error. */
struct limit *limit_in_list(struct loading *l, const struct node *item,
                            const struct limit *const *others, unsigned count);
/* Prints a name of such a list. */
print_item print_limit_name;

/* --- read_limit_parts.c --- */

/* Reports combinations in which granted_header has no meaning. */
void limit_check_granted_header(struct loading *l, const struct node *node,
                                const struct limit *limit);
/* Sets the lease after the section is read; reports limiters that allow none. */
void limit_finish_lease(struct loading *l, const struct node *node, struct limit *limit);
/* Returns `limit` with the period of `written`, for plans and clients; NULL: it is the limit's own,
 * or an error was reported at `period`. */
const struct limit *limit_variant(struct loading *l, const struct node *period,
                                  const struct limit *limit, const struct limit *written);

/* --- read_limit_cost.c --- */

bool cost_is_of_openai(const void *cost); /* for a struct limit_cost */
bool cost_has_weights(const void *cost);
bool cost_is_adjusted(const void *cost);
/* Returns true if `name` is a header name; NULL: the key is missing. Reports other names. */
bool cost_header_is_good(struct loading *l, const struct node *map, const char *key,
                         const char *name);
/* Reports that `max` is missing for `what`, or stands without need (NULL). `applies_to`: the keys
 * that need it, and a remedy. */
void cost_check_max(struct loading *l, const struct node *map, const char *what,
                    const char *applies_to);
/* Adds what the cost and the keys of a limit need to its rule. `item` names the limit there. */
void rule_add_contents(struct loading *l, const struct node *item, struct rule *rule,
                       const struct limit *limit);

/* --- read_script.c --- */

bool limit_has_own_options(const void *limit); /* for option->applies */
/* Reports options that the limit's script does not support. */
void script_options_refuse(struct loading *l, const struct node *node, const struct limit *limit);

/* --- read_windows.c --- */

/* Returns the length of the limit's shortest window. */
int64_t limit_shortest_window(const struct limit *limit);
/* Reports contradictions between period, align, offset and time_zone, and sets derived fields. */
void limit_finish_windows(struct loading *l, const struct node *node, struct limit *limit);

/* --- read_clients.c --- */

/* Reads the client that the node, or its key, names: an id, or ip: with an address, a range or
 * "unix". Returns false after reporting an error. */
bool client_name_read(struct loading *l, const struct node *node, bool is_key,
                      struct client_pattern *pattern);
/* Returns the name of a client for messages and `weir check`, in the arena: `text`, which was read,
 * or of an id its name without secrets. */
char *client_printed_name(struct loading *l, struct slice text,
                          const struct client_pattern *pattern);
bool plan_has_limits(const void *plan); /* for option->applies, as the next two */
bool client_has_quota(const void *client);
bool client_has_limits(const void *client);

/* --- read_upstreams.c --- */

bool upstream_has_health(const void *upstream); /* for option->applies */

/* --- read_identity.c --- */

/* Reads one source, as in identity.from; false: reported. */
bool identity_read_source(struct loading *l, const struct node *item, struct identity_from *from);
/* Adds a jwt source to those whose claims are read from tokens; of others, does nothing. */
void identity_add_claim(struct loading *l, struct identity_from *from);
/* Sets headers_from_anyone after the section is read. Reports a jwt source without keys, and a
 * certificate source without a listener that requests certificates. */
void identity_finish(struct loading *l);

/* --- read_jwt.c --- */

bool jwt_has_inline_secret(const void *policy);
void check_jwt(struct loading *l); /* reports a jwt source without keys */

/* --- read_listen_tls.c --- */

/* Prints ", tls: ..." for a listener that is printed as a map in one line; NULL: nothing. */
void listen_tls_print_inline(FILE *out, const struct listen_tls *tls);
/* Returns whether a listener of clients requests certificates. */
bool listeners_verify_clients(const struct policy *policy);

/* --- read_listen.c --- */

/* Reads, prints a list of listeners. */
void listeners_read(struct loading *l, const struct option *option, const struct node *node,
                    struct listen_settings **listen, unsigned *listen_count);
void listeners_print(const struct printer *printer, const struct listen_settings *listen,
                     unsigned count);
/* Adds a listener of another section to those of clients. Reports an address that is used twice. */
void listener_add(struct loading *l, const struct node *node,
                  const struct listen_settings *listener);
/* Reports two addresses on which weir cannot listen at once, and returns true. `option`: that of
 * `other`; NULL: the same list. */
bool refuse_conflict(struct loading *l, const struct node *node, const struct address *address,
                     const struct address *other, const char *option);
/* Reports that `last` conflicts with one of the addresses before it, which are `stride` bytes
 * apart. */
void refuse_same_address(struct loading *l, const struct node *item, const struct address *first,
                         const struct address *last, size_t stride);
/* Trusts programs on this machine and identity.trusted_proxies, if `trusted` is not set. */
void peers_trust_by_default(const struct policy *policy, struct identity_settings *trusted);
/* Completes the section decisions; call after listen and identity. */
void decisions_finish(struct loading *l);

/* --- read_admin.c --- */

/* Reports an address of admin that is one of listen, decisions or rate_limit_service, too. */
void admin_finish(struct loading *l);

/* --- read_addresses.c --- */

/* Reads the files named in the section into policy->addresses.table. */
void addresses_read(struct loading *l);

/* --- read_rate_limit_service.c --- */

/* Sets which sections the policy has; call before it is read. */
void service_begin(struct loading *l);
/* Reads the domains and adds the listeners; call after all other sections are read. */
void service_finish(struct loading *l);
/* Returns a new limit of this unit. */
struct limit *rate_limit_new(struct loading *l, struct slice name, enum rate_limit_unit unit);
/* Adds the limit of an entry to those of the service. */
void rate_limit_add(struct loading *l, struct limit *limit);

/* --- read_descriptors.c --- */

/* Reads a list of entries into a level below `parent`, which is NULL on the first one. */
void entries_read(struct loading *l, const struct node *node,
                  const struct rate_limit_domain *domain, const struct configured_entry *parent,
                  struct entry_level *level);

/* --- read_match.c --- */

bool rule_has_match(const void *rule);                      /* for option->applies */
bool rule_has_criterion(const void *rule, const char *key); /* for option->has */

/* --- read_rules.c --- */

bool rule_has_cost(const void *rule);

/* --- redis_url.c --- */

/* Reads redis[s]://USER:PASSWORD@HOST:PORT/DATABASE as redis.address. `*host_port` is set to the
 * part HOST:PORT. Returns false after reporting an error. */
bool redis_url_is_one(struct slice text);
bool redis_url_read(struct loading *l, const struct node *node, struct redis_url *url,
                    struct slice *host_port);
/* Applies the parts of the URL after the section is read; checks whether TLS fits the address. */
void redis_url_finish(struct loading *l);

/* --- read_redis.c --- */

bool redis_has_address(const void *policy); /* for option->applies */

/* --- collect_headers.c --- */

/* Sets policy->read_headers, and reports names that servers may not distinguish. */
void read_headers_collect(struct loading *l);

#endif
