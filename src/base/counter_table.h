/* counter_table.h - counters that outlive a reload: one row for each rule or limit name ever used.
 *
 * The main thread assigns rows to names (counter_names_row) and allocates them in every worker's
 * table. Only then do the workers receive the policy that uses them. A worker adds to its own
 * table; any thread may read it. */
#ifndef WEIR_BASE_COUNTER_TABLE_H
#define WEIR_BASE_COUNTER_TABLE_H

#include <stdbool.h>

#include "base/histogram.h"

enum {
    COUNTER_TABLE_COLUMNS = 16,
    COUNTER_TABLE_CHUNK_ROWS = 64,
    COUNTER_TABLE_CHUNKS = 256,
    COUNTER_TABLE_ROWS_MAX = COUNTER_TABLE_CHUNK_ROWS * COUNTER_TABLE_CHUNKS
};

/* One worker's counters. Chunks never move, so readers need no lock. */
struct counter_table {
    _Atomic(counter_t *) chunk[COUNTER_TABLE_CHUNKS];
};

/* Row names. Main thread only. */
struct counter_names {
    char *name[COUNTER_TABLE_ROWS_MAX];
    char *owner[COUNTER_TABLE_ROWS_MAX]; /* of a server: its upstream. NULL: none */
    unsigned count;
    unsigned used[COUNTER_TABLE_ROWS_MAX]; /* number of the last policy that has the name */
    unsigned newest, in_effect;            /* numbers of policies */
    bool full;                             /* that was logged */
};

/* Call before the rows of a policy are assigned, and when that policy takes effect. */
void counter_names_begin(struct counter_names *names);
void counter_names_commit(struct counter_names *names);
/* Returns whether the policy in effect has the name, or a later one that was not accepted. */
bool counter_names_uses(const struct counter_names *names, unsigned row);

/* Returns the row of `name`, adding one if needed. `owner`: NULL if the name alone is unique. When
 * the table is full, returns the last row, which several names then share. */
unsigned counter_names_row(struct counter_names *names, const char *owner, const char *name);
void counter_names_clear(struct counter_names *names);

/* Allocates rows 0 to `rows` - 1. Returns false if out of memory. */
bool counter_table_grow(struct counter_table *counter_table, unsigned rows);
void counter_table_clear(struct counter_table *counter_table);

static inline counter_t *counter_table_row(struct counter_table *counter_table, unsigned row)
{
    counter_t *chunk = atomic_load_explicit(&counter_table->chunk[row / COUNTER_TABLE_CHUNK_ROWS],
                                            memory_order_relaxed);
    return chunk + row % COUNTER_TABLE_CHUNK_ROWS * COUNTER_TABLE_COLUMNS;
}

uint64_t counter_table_read(const struct counter_table *counter_table, unsigned row,
                            unsigned column);

/* --- A histogram in one row, coarse, since there is one for each name ------------------------- */

/* Columns of a row: a bucket for each bound, one for values above the last, and the sum. */
enum { ROW_HISTOGRAM_BUCKETS = 14, ROW_HISTOGRAM_SUM = ROW_HISTOGRAM_BUCKETS + 1 };

/* Upper bounds in microseconds. */
extern const uint64_t row_histogram_bounds_us[ROW_HISTOGRAM_BUCKETS];

static inline void row_histogram_add(counter_t *row, uint64_t value_us)
{
    unsigned i = bucket_of(row_histogram_bounds_us, ROW_HISTOGRAM_BUCKETS, value_us);

    counter_add(&row[i], 1);
    counter_add(&row[ROW_HISTOGRAM_SUM], value_us);
}

#endif
