/* tally.h - rows of counters that outlive a reload: one row for each name (of a rule, of a limit) that there
 * ever was.
 *
 * The main thread gives names their rows (tally_names_row) and makes room for them in every worker's table
 * before the worker hears of the policy that uses them. A worker adds to its own table; anyone may read it.
 */
#ifndef WEIR_BASE_TALLY_H
#define WEIR_BASE_TALLY_H

#include <stdbool.h>

#include "base/histogram.h"

enum {
    TALLY_COLUMNS = 16,
    TALLY_CHUNK_ROWS = 64,
    TALLY_CHUNKS = 64,
    TALLY_ROWS_MAX = TALLY_CHUNK_ROWS * TALLY_CHUNKS
};

/* One worker's counters. Chunks never move, so that readers need no lock. */
struct tally {
    _Atomic(counter_t *) chunk[TALLY_CHUNKS];
};

/* The names of the rows. Main thread only. */
struct tally_names {
    char *name[TALLY_ROWS_MAX];
    unsigned count;
};

/* The row of `name`, a new one if it has none. When all are taken, the last row, which then stands for
 * several. */
unsigned tally_names_row(struct tally_names *names, const char *name);
void tally_names_clear(struct tally_names *names);

/* Makes room for `rows`. False: no memory. */
bool tally_grow(struct tally *tally, unsigned rows);
void tally_clear(struct tally *tally);

static inline counter_t *tally_row(struct tally *tally, unsigned row)
{
    counter_t *chunk = atomic_load_explicit(&tally->chunk[row / TALLY_CHUNK_ROWS], memory_order_relaxed);
    return chunk + row % TALLY_CHUNK_ROWS * TALLY_COLUMNS;
}

uint64_t tally_read(const struct tally *tally, unsigned row, unsigned column);

#endif
