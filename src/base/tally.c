#include "base/tally.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

unsigned tally_names_row(struct tally_names *names, const char *name)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return i;
    if (names->count == TALLY_ROWS_MAX)
        return TALLY_ROWS_MAX - 1;
    names->name[names->count] = xstrdup(name);
    return names->count++;
}

void tally_names_clear(struct tally_names *names)
{
    while (names->count)
        free(names->name[--names->count]);
}

bool tally_grow(struct tally *tally, unsigned rows)
{
    for (unsigned i = 0; i < TALLY_CHUNKS && i * TALLY_CHUNK_ROWS < rows; i++) {
        if (atomic_load(&tally->chunk[i]))
            continue;
        counter_t *chunk = calloc((size_t)TALLY_CHUNK_ROWS * TALLY_COLUMNS, sizeof *chunk);
        if (!chunk)
            return false;
        atomic_store(&tally->chunk[i], chunk);
    }
    return true;
}

void tally_clear(struct tally *tally)
{
    for (unsigned i = 0; i < TALLY_CHUNKS; i++)
        free(atomic_exchange(&tally->chunk[i], NULL));
}

uint64_t tally_read(const struct tally *tally, unsigned row, unsigned column)
{
    counter_t *chunk = atomic_load(&tally->chunk[row / TALLY_CHUNK_ROWS]);
    return chunk ? counter_read(chunk + row % TALLY_CHUNK_ROWS * TALLY_COLUMNS + column) : 0;
}
