#include "proxy/cause.h"

const struct cause_row cause_table[CAUSE_COUNT] = {
#define X(name, status, fault, refund, retry, label, text)                                                   \
    [name] = {status, fault, refund, retry, label, text},
    CAUSES(X)
#undef X
};
