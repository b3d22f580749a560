#include "base/counter_table.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

void counter_names_begin(struct counter_names *names)
{
    names->newest++;
}

void counter_names_commit(struct counter_names *names)
{
    names->in_effect = names->newest;
}

bool counter_names_uses(const struct counter_names *names, unsigned row)
{
    return names->used[row] >= names->in_effect;
}

static unsigned row_of(struct counter_names *names, const char *owner, const char *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0 && (!owner || strcmp(names->owner[i], owner) == 0))
            return i;
    if (names->count == COUNTER_TABLE_ROWS_MAX) {
        if (!names->full)
            log_warn("metrics: %s and later names share their counts: since the start, there were "
                     "%u others in policies; restart weir to forget those that are gone",
                     name, COUNTER_TABLE_ROWS_MAX);
        names->full = true;
        return COUNTER_TABLE_ROWS_MAX - 1;
    }
    names->name[names->count] = xstrdup(name);
    names->owner[names->count] = owner ? xstrdup(owner) : NULL;
    return names->count++;
}

unsigned counter_names_row(struct counter_names *names, const char *owner, const char *name)
{
    unsigned row = row_of(names, owner, name);

    names->used[row] = names->newest;
    return row;
}

void counter_names_clear(struct counter_names *names)
{
    while (names->count) {
        free(names->name[--names->count]);
        free(names->owner[names->count]);
    }
}

bool counter_table_grow(struct counter_table *counter_table, unsigned rows)
{
    for (unsigned i = 0; i < COUNTER_TABLE_CHUNKS && i * COUNTER_TABLE_CHUNK_ROWS < rows; i++) {
        if (atomic_load(&counter_table->chunk[i]))
            continue;
        counter_t *chunk =
            calloc((size_t)COUNTER_TABLE_CHUNK_ROWS * COUNTER_TABLE_COLUMNS, sizeof *chunk);
        if (!chunk)
            return false;
        atomic_store(&counter_table->chunk[i], chunk);
    }
    return true;
}

void counter_table_clear(struct counter_table *counter_table)
{
    for (unsigned i = 0; i < COUNTER_TABLE_CHUNKS; i++)
        free(atomic_exchange(&counter_table->chunk[i], NULL));
}

uint64_t counter_table_read(const struct counter_table *counter_table, unsigned row,
                            unsigned column)
{
    counter_t *chunk = atomic_load(&counter_table->chunk[row / COUNTER_TABLE_CHUNK_ROWS]);
    return chunk ? counter_read(chunk + row % COUNTER_TABLE_CHUNK_ROWS * COUNTER_TABLE_COLUMNS +
                                column)
                 : 0;
}

_Static_assert((int)ROW_HISTOGRAM_SUM < (int)COUNTER_TABLE_COLUMNS, "a row holds the histogram");

/* Each is at most 3.4 times the one before: a percentile is interpolated within a bucket. */
const uint64_t row_histogram_bounds_us[ROW_HISTOGRAM_BUCKETS] = {
    100,    300,    1000,    3000,    10000,   30000,   100000,
    250000, 500000, 1000000, 2000000, 2500000, 5000000, 10000000};
