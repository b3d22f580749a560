#include "proxy/stats.h"

const char *const content_direction_name[] = {
    [CONTENT_OF_REQUEST] = "request", [CONTENT_OF_RESPONSE] = "response"};
const char *const content_result_name[] = {[CONTENT_READ] = "read",
                                           [CONTENT_NONE] = "none",
                                           [CONTENT_INVALID] = "invalid",
                                           [CONTENT_TOO_LARGE] = "too_large",
                                           [CONTENT_COMPRESSED] = "compressed",
                                           [CONTENT_INCOMPLETE] = "incomplete"};

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

const char *const service_code_name[SERVICE_CODE_COUNT] = {
#define X(name) [SERVICE_##name] = #name,
    SERVICE_CODES(X)
#undef X
};
