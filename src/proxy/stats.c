#include "proxy/stats.h"

const char *response_class_name(unsigned class)
{
    static const char *const names[RESPONSE_CLASSES] = {"none", "1xx", "2xx", "3xx", "4xx", "5xx"};
    return names[class];
}

const char *cause_name(unsigned cause)
{
    return cause_table[cause].label;
}

const char *retry_name(unsigned cause)
{
    return retry_label[cause];
}

const char *http2_error_name(unsigned cause)
{
    return http2_cause_name[cause];
}
