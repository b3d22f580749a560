/* counter_table.h - rows of counters that outlive a reload: one row for each name (of a rule, of a limit) that there
 * ever was.
 *
 * The main thread gives names their rows (counter_names_row) and makes room for them in every worker's table
 * before the worker hears of the policy that uses them. A worker adds to its own table; anyone may read it.
 */
#ifndef WEIR_BASE_COUNTER_TABLE_H
#define WEIR_BASE_COUNTER_TABLE_H

#include <stdbool.h>

#include "base/histogram.h"

enum {
    COUNTER_TABLE_COLUMNS = 16,
    COUNTER_TABLE_CHUNK_ROWS = 64,
    COUNTER_TABLE_CHUNKS = 64,
    COUNTER_TABLE_ROWS_MAX = COUNTER_TABLE_CHUNK_ROWS * COUNTER_TABLE_CHUNKS
};

/* One worker's counters. Chunks never move, so that readers need no lock. */
struct counter_table {
    _Atomic(counter_t *) chunk[COUNTER_TABLE_CHUNKS];
};

/* The names of the rows. Main thread only. */
struct counter_names {
    char *name[COUNTER_TABLE_ROWS_MAX];
    unsigned count;
};

/* The row of `name`, a new one if it has none. When all are taken, the last row, which then stands for
 * several. */
unsigned counter_names_row(struct counter_names *names, const char *name);
void counter_names_clear(struct counter_names *names);

/* Makes room for `rows`. False: no memory. */
bool counter_table_grow(struct counter_table *counter_table, unsigned rows);
void counter_table_clear(struct counter_table *counter_table);

static inline counter_t *counter_table_row(struct counter_table *counter_table, unsigned row)
{
    counter_t *chunk =
        atomic_load_explicit(&counter_table->chunk[row / COUNTER_TABLE_CHUNK_ROWS], memory_order_relaxed);
    return chunk + row % COUNTER_TABLE_CHUNK_ROWS * COUNTER_TABLE_COLUMNS;
}

uint64_t counter_table_read(const struct counter_table *counter_table, unsigned row, unsigned column);

#endif
