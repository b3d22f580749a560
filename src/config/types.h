/* types.h - option types: each reads a node into a field and prints the field. */
#ifndef WEIR_CONFIG_TYPES_H
#define WEIR_CONFIG_TYPES_H

#include "config/options.h"
#include "http/parse.h"
#include "net/address.h"

/* types.c; the comments give the C type of the field. */
extern const struct option_type type_section;  /* enclosing struct; its options are in the table */
extern const struct option_type type_duration; /* uint64_t or int64_t, µs */
extern const struct option_type type_size;     /* uint64_t, bytes */
extern const struct option_type type_number;   /* uint64_t or int64_t */
extern const struct option_type type_share;    /* int64_t, in units of 0.01% */
extern const struct option_type type_count;    /* unsigned */
extern const struct option_type type_enum;     /* an enum: the index in `names` */
extern const struct option_type type_bool;     /* bool */
extern const struct option_type type_text;     /* char *, low to high bytes; NULL: null */
extern const struct option_type type_secret;   /* as type_text, printed as "***" */

/* Types for single sections. The comments give the file and the C type of the field, which may be
 * the enclosing struct; the keyword struct is omitted. */
extern const struct option_type type_workers;       /* read_listen.c: unsigned */
extern const struct option_type type_listen;        /* read_listen.c: policy */
extern const struct option_type type_listen_tls;    /* read_listen.c: listen_settings */
extern const struct option_type type_address;       /* read_listen.c: address */
extern const struct option_type type_admin;         /* read_admin.c: policy */
extern const struct option_type type_admin_hosts;   /* read_admin.c: admin_listener */
extern const struct option_type type_admin_mode;    /* read_admin.c: unsigned */
extern const struct option_type type_token_file;    /* read_admin.c: admin_listener */
extern const struct option_type type_redis_address; /* read_redis.c: redis_settings */
extern const struct option_type type_sentinel;      /* read_redis.c: policy */
extern const struct option_type type_redis_nodes;   /* read_redis.c: redis_nodes */
extern const struct option_type type_cluster;       /* read_redis.c: redis_settings */
extern const struct option_type type_password_file; /* read_redis.c: redis_settings */
extern const struct option_type type_key_prefix;    /* read_redis.c: char * */
extern const struct option_type type_upstreams;     /* read_upstreams.c: policy */
enum { CLIENT_TLS_HTTP, CLIENT_TLS_NO_ALPN };
extern const struct option_type
    type_client_tls;                         /* read_client_tls.c: client_tls; low: CLIENT_TLS_* */
extern const struct option_type type_health; /* read_upstreams.c: upstream_health */
extern const struct option_type type_health_path;      /* read_upstreams.c: char * */
extern const struct option_type type_retry_on;         /* read_retry.c: unsigned */
extern const struct option_type type_nameservers;      /* read_resolver.c: resolver_settings */
extern const struct option_type type_servers;          /* read_upstreams.c: upstream */
extern const struct option_type type_identity_from;    /* read_identity.c: identity_settings */
extern const struct option_type type_client_ip_header; /* read_identity.c: identity_settings */
extern const struct option_type type_hash_key;         /* read_identity.c: identity_settings */
extern const struct option_type type_jwt_keys;         /* read_jwt.c: jwt_settings */
extern const struct option_type type_jwt_secret;       /* read_jwt.c: jwt_settings */
extern const struct option_type type_jwt_secret_file;  /* read_jwt.c: jwt_settings */
extern const struct option_type type_address_files;    /* read_addresses.c: address_files */
extern const struct option_type type_trusted;          /* read_identity.c: identity_settings */
extern const struct option_type type_limits;           /* read_limits.c: policy */
extern const struct option_type type_script;           /* read_script.c: limit */
extern const struct option_type type_per;              /* read_per.c: limit */
extern const struct option_type type_granted_header;   /* read_granted_header.c: char * */
extern const struct option_type type_label;            /* read_limits.c: char * */
extern const struct option_type type_align;            /* read_limits.c: bool */
extern const struct option_type type_period;           /* read_windows.c: limit */
extern const struct option_type type_time_zone;        /* read_windows.c: limit */
extern const struct option_type type_lease;            /* read_lease.c: limit */
extern const struct option_type type_dedup;            /* read_dedup.c: dedup_settings */
extern const struct option_type type_own_options;      /* read_options.c: limit */
extern const struct option_type type_plans;            /* read_clients.c: policy */
extern const struct option_type type_plan_limits;      /* read_clients.c: plan */
extern const struct option_type type_statuses;         /* read_statuses.c: uint64_t * */
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
extern const struct option_type type_match_header;     /* read_criteria.c: rule */
extern const struct option_type type_match_query;      /* read_criteria.c: rule */
extern const struct option_type type_match_client;     /* read_criteria.c: rule */
extern const struct option_type type_match_scheme;     /* read_criteria.c: rule */
extern const struct option_type type_rule_limits;      /* read_rules.c: rule */
extern const struct option_type type_rule_cost;        /* read_rules.c: int64_t */
extern const struct option_type type_rule_upstream;    /* read_rules.c: rule */
extern const struct option_type type_headers;          /* read_answers.c: unsigned */
extern const struct option_type
    type_answer_headers;                        /* read_rejection_headers.c: rejection_settings */
extern const struct option_type type_body_file; /* read_answers.c: rejection_settings */

/* Prints an address as a YAML scalar. */
void print_address(FILE *out, const struct address *address);
/* Prints a YAML scalar, quoted only if necessary. */
void print_scalar(FILE *out, struct slice text);
/* Prints an escaped text for use between double quotes. */
void print_quoted(FILE *out, struct slice text);
/* Prints "KEY:" with indentation, and with the dash if it starts a list item. */
void print_key(struct printer *printer, struct slice key);
/* Returns a printer for the next level. */
struct printer printer_below(const struct printer *printer);

#endif
