#include "upstream/upstream_stats.h"

_Static_assert((int)SERVER_COLUMNS <= (int)COUNTER_TABLE_COLUMNS, "a row holds all counts");

#define X(name, label) [name] = label,
const char *const ejection_label[EJECTION_COUNT] = {EJECTIONS(X)};
const char *const server_error_label[SERVER_ERROR_COUNT] = {SERVER_ERRORS(X)};
#undef X
