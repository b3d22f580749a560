#include "upstream/server_stats.h"

_Static_assert((int)SERVER_COLUMNS <= (int)COUNTER_TABLE_COLUMNS, "a row holds all counts");

const char *server_error_name(unsigned error)
{
    static const char *const names[SERVER_ERROR_COUNT] = {
#define X(name, label) [name] = label,
        SERVER_ERRORS(X)
#undef X
    };
    return names[error];
}

bool server_stats_grow(struct server_stats *stats, unsigned rows)
{
    return counter_table_grow(&stats->counts, rows) && counter_table_grow(&stats->first, rows) &&
           counter_table_grow(&stats->last, rows);
}

void server_stats_clear(struct server_stats *stats)
{
    counter_table_clear(&stats->counts);
    counter_table_clear(&stats->first);
    counter_table_clear(&stats->last);
}
