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
