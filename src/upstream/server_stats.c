#include "upstream/server_stats.h"

_Static_assert((int)SERVER_COLUMNS <= (int)COUNTER_TABLE_COLUMNS, "a row holds all counts");

const char *const server_error_label[SERVER_ERROR_COUNT] = {
#define X(name, label) [name] = label,
    SERVER_ERRORS(X)
#undef X
};
