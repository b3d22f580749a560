#include "upstream/upstream_stats.h"

const char *ejection_name(unsigned reason)
{
    static const char *const names[EJECTION_COUNT] = {
#define X(name, label) [name] = label,
        EJECTIONS(X)
#undef X
    };
    return names[reason];
}

const char *upstream_http2_error_name(unsigned cause)
{
    return http2_cause_name[cause];
}
