#include "proxy/cause.h"

const struct cause_row cause_table[CAUSE_COUNT] = {
#define X(name, status, fault, refund, retry, label, text)                                         \
    [name] = {status, fault, refund, retry, text},
    CAUSES(X)
#undef X
};

#define X(name, status, fault, refund, retry, label, text) [name] = label,
const char *const cause_label[CAUSE_COUNT] = {CAUSES(X)};
#undef X

#define X(name, label) [name] = label,
const char *const retry_label[RETRY_CAUSE_COUNT] = {RETRY_CAUSES(X)};
#undef X
