/* worker_tables.h - the counter tables of a worker: what it counts by rule, limit, server and so on
 * (base/counter_table.h). A new table is one row here. */
#ifndef WEIR_PROXY_WORKER_TABLES_H
#define WEIR_PROXY_WORKER_TABLES_H

#include "base/counter_table.h"
#include "base/macros.h"

struct worker;

/* What the rows of a table are named after. The main thread has the names of each. */
enum worker_names {
    NAMES_RULES,
    NAMES_PRIORITIES,
    NAMES_LIMITS,
    NAMES_SERVERS,
    NAMES_DOMAINS,   /* row 0: unknown ones */
    NAMES_LISTENERS, /* their numbers */
    NAMES_COUNT
};

/* table, names of its rows, member of struct worker, which says what the columns are */
#define WORKER_TABLES(X)                                                                           \
    X(TABLE_RULES, NAMES_RULES, stats.by_rule)                                                     \
    X(TABLE_RULE_DURATIONS, NAMES_RULES, stats.rule_durations)                                     \
    X(TABLE_PRIORITIES, NAMES_PRIORITIES, stats.by_priority)                                       \
    X(TABLE_LIMITS, NAMES_LIMITS, limiter_stats.by_limit)                                          \
    X(TABLE_SERVERS, NAMES_SERVERS, upstream.stats.servers.counts)                                 \
    X(TABLE_SERVER_FIRST, NAMES_SERVERS, upstream.stats.servers.first)                             \
    X(TABLE_SERVER_LAST, NAMES_SERVERS, upstream.stats.servers.last)                               \
    X(TABLE_DOMAINS, NAMES_DOMAINS, stats.by_domain)                                               \
    X(TABLE_HANDSHAKE_FAILURES, NAMES_LISTENERS, stats.handshake_failures)

enum worker_table {
#define X(table, names, member) table,
    WORKER_TABLES(X)
#undef X
        TABLE_COUNT
};

/* Callable from any thread while the worker exists; only the worker writes. */
struct counter_table *worker_table(struct worker *worker, enum worker_table table);
/* Returns what the rows of the table are named after. */
enum worker_names worker_table_names(enum worker_table table);

/* Makes room for so many rows of each kind. False: no memory. Main thread only. */
MUST_CHECK bool worker_tables_grow(struct worker *worker, const unsigned rows[static NAMES_COUNT]);
void worker_tables_clear(struct worker *worker);

#endif
