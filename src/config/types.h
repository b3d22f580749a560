/* types.h - the types of options: each reads a node and prints what it read. */
#ifndef WEIR_CONFIG_TYPES_H
#define WEIR_CONFIG_TYPES_H

#include "config/options.h"
#include "http/parse.h"

/* types.c; the field's C type stands beside each. */
extern const struct option_type type_section;  /* the struct around it: its options are the table's */
extern const struct option_type type_duration; /* uint64_t or int64_t, µs */
extern const struct option_type type_size;     /* uint64_t, bytes */
extern const struct option_type type_number;   /* uint64_t or int64_t */
extern const struct option_type type_share;    /* int64_t, in hundredths of a per cent */
extern const struct option_type type_count;    /* unsigned */
extern const struct option_type type_enum;     /* an enum: the index in `names` */
extern const struct option_type type_bool;     /* bool */
extern const struct option_type type_text;     /* char *, `low` to `high` bytes; NULL where null is written */
extern const struct option_type type_secret;   /* the same, printed as "***" */

/* The parts of a policy that have a shape of their own; field: the struct around it. */
extern const struct option_type type_workers;          /* read_listen.c: unsigned */
extern const struct option_type type_listen;           /* read_listen.c: struct policy */
extern const struct option_type type_listen_tls;       /* read_listen.c: struct listen_settings */
extern const struct option_type type_address;          /* read_listen.c: struct address */
extern const struct option_type type_admin;            /* read_listen.c: struct admin_settings */
extern const struct option_type type_admin_hosts;      /* read_listen.c: char ** of struct admin_settings */
extern const struct option_type type_redis_address;    /* read_redis.c: struct redis_settings */
extern const struct option_type type_sentinel;         /* read_redis.c: struct policy */
extern const struct option_type type_redis_nodes;      /* read_redis.c: struct redis_nodes */
extern const struct option_type type_cluster;          /* read_redis.c: struct redis_settings */
extern const struct option_type type_password_file;    /* read_redis.c: struct redis_settings */
extern const struct option_type type_key_prefix;       /* read_redis.c: char * */
extern const struct option_type type_upstreams;        /* read_upstreams.c: struct policy */
extern const struct option_type type_upstream_tls;     /* read_upstreams.c: struct upstream_tls */
extern const struct option_type type_health;           /* read_upstreams.c: struct upstream_health */
extern const struct option_type type_health_path;      /* read_upstreams.c: char * */
extern const struct option_type type_retry_on;         /* read_retry.c: unsigned */
extern const struct option_type type_nameservers;      /* read_resolver.c: struct resolver_settings */
extern const struct option_type type_servers;          /* read_upstreams.c: struct upstream */
extern const struct option_type type_identity_from;    /* read_identity.c: struct identity_settings */
extern const struct option_type type_address_files;    /* read_addresses.c: struct address_files */
extern const struct option_type type_trusted;          /* read_identity.c: struct identity_settings */
extern const struct option_type type_limits;           /* read_limits.c: struct policy */
extern const struct option_type type_script;           /* read_limits.c: struct limit */
extern const struct option_type type_per;              /* read_limits.c: struct limit */
extern const struct option_type type_label;            /* read_limits.c: char * */
extern const struct option_type type_align;            /* read_limits.c: bool */
extern const struct option_type type_period;           /* read_windows.c: struct limit */
extern const struct option_type type_time_zone;        /* read_windows.c: struct limit */
extern const struct option_type type_lease;            /* read_limits.c: struct limit */
extern const struct option_type type_dedup;            /* read_limits.c: struct dedup_settings */
extern const struct option_type type_own_options;      /* read_options.c: struct limit */
extern const struct option_type type_plans;            /* read_clients.c: struct policy */
extern const struct option_type type_plan_limits;      /* read_clients.c: struct plan */
extern const struct option_type type_statuses;         /* read_limits.c: uint64_t * */
extern const struct option_type type_clients;          /* read_clients.c: struct policy */
extern const struct option_type type_plan;             /* read_clients.c: struct client */
extern const struct option_type type_quota;            /* read_clients.c: struct client */
extern const struct option_type type_client_limits;    /* read_clients.c: struct client */
extern const struct option_type type_quotas;           /* read_quotas.c: struct policy */
extern const struct option_type type_quota_connection; /* read_quotas.c: struct quota_settings */
extern const struct option_type type_quota_query;      /* read_quotas.c: struct quota_settings */
extern const struct option_type type_rules;            /* read_rules.c: struct policy */
extern const struct option_type type_path_pattern;     /* read_rules.c: struct slice */
extern const struct option_type type_host_pattern;     /* read_rules.c: struct slice */
extern const struct option_type type_methods;          /* read_rules.c: struct rule */
extern const struct option_type type_rule_limits;      /* read_rules.c: struct rule */
extern const struct option_type type_rule_cost;        /* read_rules.c: int64_t */
extern const struct option_type type_rule_upstream;    /* read_rules.c: struct rule */
extern const struct option_type type_headers;          /* read_answers.c: unsigned */
extern const struct option_type type_body_file;        /* read_answers.c: struct rejection_settings */

/* A value as YAML: plain where that is safe, else in quotes. */
void print_scalar(FILE *out, struct slice text);
/* A text as what stands between a pair of double quotes. */
void print_quoted(FILE *out, struct slice text);
/* "KEY:" with its indentation and, for the first of a list's item, its dash. */
void print_key(struct printer *printer, struct slice key);
/* The printer for what stands below. */
struct printer printer_below(const struct printer *printer);

#endif
