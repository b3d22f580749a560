/* types.h - types of option values: each reads a node into a field and prints the field. */
#ifndef WEIR_CONFIG_TYPES_H
#define WEIR_CONFIG_TYPES_H

#include "config/options.h"
#include "net/address.h"
#include "policy/client_tls.h"

/* types.c; the comments give the C type of the field. */
extern const struct option_type type_section;  /* enclosing struct; its options are in the table */
extern const struct option_type type_duration; /* uint64_t or int64_t, µs */
extern const struct option_type type_size;     /* uint64_t, bytes */
extern const struct option_type type_number;   /* uint64_t or int64_t */
extern const struct option_type type_share;    /* int64_t, in units of 0.01% */
extern const struct option_type type_count;    /* unsigned */
extern const struct option_type type_enum;     /* an enum: the index in `names` */
extern const struct option_type type_words;    /* unsigned: a list; bit i stands for names[i] */
extern const struct option_type type_bool;     /* bool */
extern const struct option_type type_text;     /* char *, low to high bytes; NULL: null */
extern const struct option_type type_secret;   /* as type_text, printed as "***" */

/* In files of their own. */
extern const struct option_type type_address;    /* type_lists.c: struct address */
extern const struct option_type type_statuses;   /* type_lists.c: uint64_t *; NULL: all */
extern const struct option_type type_client_tls; /* type_files.c: struct client_tls */
extern const struct option_type type_log_file;   /* type_files.c: char *, a path or "stderr" */
extern const struct option_type type_directory;  /* type_files.c: char *, an absolute path */
enum { CLIENT_TLS_HTTP, CLIENT_TLS_NO_ALPN };    /* `low` of type_client_tls */

/* --- reading --- */

/* Returns true for a list (or a scalar as its only item) of option->low to option->high items.
 * Otherwise reports "expected a list of LOW to HIGH WHAT". */
bool expect_items(struct loading *l, const struct option *option, const struct node *node,
                  const char *what);
/* Returns true for a map of option->low to option->high entries; otherwise reports "expected A MAP"
 * or "has 9 THINGS; expected at most HIGH". */
bool expect_entries(struct loading *l, const struct option *option, const struct node *node,
                    const char *a_map, const char *things);
/* Returns true for a text of option->low to option->high bytes; otherwise reports an error. */
bool expect_text(struct loading *l, const struct option *option, const struct node *node,
                 const char *what);
/* Returns true for option->low to option->high printable ASCII characters, none in `refused`.
 * Otherwise reports "contains more than WHAT". */
bool ascii_fits(struct loading *l, const struct option *option, const struct node *node,
                const char *refused, const char *what);

/* Sets `*index` to that of the node's word in `names`, which ends with NULL. Otherwise reports
 * "WORD is unknown; expected EXPECTED" and returns false. */
bool word_read(struct loading *l, const struct node *node, const char *const *names,
               const char *expected, unsigned *index);
/* name_at() of a policy (suggest.h). */
name_at limit_at, rule_at, upstream_at, plan_at, priority_at;
/* Returns the index of the policy's limit, rule and so on that the node, or its key, names. Returns
 * -1 after reporting "there is no WHAT NAME". */
int policy_index(struct loading *l, const struct node *node, bool is_key, name_at *at,
                 const char *what);

/* Returns the neighbour_path() of a file named by an option. NULL: the value is null, or an error
 * was reported. */
const char *file_path(struct loading *l, const struct option *option, const struct node *node);

/* Reads "host:port" or "unix:/path" and resolves host names. Returns false after reporting an
 * error. Blocks. */
bool destination_read(struct loading *l, const struct node *node, struct address *address);

/* Notes that a secret stands in the policy itself, unless it is an environment variable. */
void note_secret(struct loading *l, const struct node *node);

/* Makes tls->client from the files that the options name. `node` is the map of these options, or a
 * node for errors if there is none. */
void client_tls_load(struct loading *l, const struct node *node, struct client_tls *tls);

/* read() of types whose value is read before or after the others. */
void read_elsewhere(struct loading *l, const struct option *option, const struct node *node,
                    void *field);

/* --- printing --- */

/* print() of types whose field is a section's struct; char *, NULL meaning null; char *, printed as
 * "***"; struct slice; unsigned; an enum. */
void print_section(const struct printer *printer, const void *field);
void print_text(const struct printer *printer, const void *field);
void print_secret(const struct printer *printer, const void *field);
void print_count(const struct printer *printer, const void *field);
void print_enum(const struct printer *printer, const void *field);
void print_slice(const struct printer *printer, const void *field);
/* Prints an address as a YAML scalar. */
void print_address(FILE *out, const struct address *address);

/* --- type_files.c: files with secrets, certificates --- */

/* Removes a trailing newline, as added by editors and `echo`. */
struct slice without_newline(struct slice bytes);
/* Warns if every user of the machine may read or write the file with a secret that `node` names. */
void warn_of_file_mode(struct loading *l, const struct node *node, const char *path);

/* Reads a file that holds a secret alone, on one line, into the scratch arena. `what` is its name
 * in errors. Returns false if the value is null, or after reporting an error. Warns if everybody
 * can read the file. */
bool secret_file_read(struct loading *l, const struct option *option, const struct node *node,
                      const char *what, struct slice *secret);

/* Warns about certificates that are not valid now or expire within CERTIFICATE_WARN_S seconds.
 * `file` is the node that names them. */
enum { CERTIFICATE_WARN_S = 14 * 86400 };
struct tls_dates;
void certificate_check(struct loading *l, const struct node *file, const struct tls_dates *dates);

#endif
