#include "proxy/stats.h"

const char *const content_direction_name[] = {
    [CONTENT_OF_REQUEST] = "request", [CONTENT_OF_RESPONSE] = "response"};
const char *const content_result_name[] = {[CONTENT_READ] = "read",
                                           [CONTENT_NONE] = "none",
                                           [CONTENT_INVALID] = "invalid",
                                           [CONTENT_TOO_LARGE] = "too_large",
                                           [CONTENT_COMPRESSED] = "compressed",
                                           [CONTENT_INCOMPLETE] = "incomplete"};

const char *const response_class_name[RESPONSE_CLASSES] = {"none", "1xx", "2xx",
                                                           "3xx",  "4xx", "5xx"};

const char *const service_code_name[SERVICE_CODE_COUNT] = {
#define X(name) [SERVICE_##name] = #name,
    SERVICE_CODES(X)
#undef X
};
