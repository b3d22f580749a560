#include "proxy/worker_tables.h"

#include "proxy/worker_state.h"

static const struct {
    enum worker_names names;
    size_t offset;
} tables[TABLE_COUNT] = {
#define X(table, names, member) [table] = {names, offsetof(struct worker, member)},
    WORKER_TABLES(X)
#undef X
};

struct counter_table *worker_table(struct worker *worker, enum worker_table table)
{
    return (struct counter_table *)((char *)worker + tables[table].offset);
}

enum worker_names worker_table_names(enum worker_table table)
{
    return tables[table].names;
}

bool worker_tables_grow(struct worker *worker, const unsigned rows[static NAMES_COUNT])
{
    for (unsigned t = 0; t < TABLE_COUNT; t++)
        if (!counter_table_grow(worker_table(worker, t), rows[tables[t].names]))
            return false;
    return true;
}

void worker_tables_clear(struct worker *worker)
{
    for (unsigned t = 0; t < TABLE_COUNT; t++)
        counter_table_clear(worker_table(worker, t));
}
