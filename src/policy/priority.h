/* priority.h - section priorities: how much of the shared limits each priority may use. */
#ifndef WEIR_POLICY_PRIORITY_H
#define WEIR_POLICY_PRIORITY_H

#include "base/position.h"

enum { PRIORITIES_MAX = 8 };

struct priority {
    char *name;
    int64_t share; /* of every shared limit, in 1/SHARE_WHOLE; falling from entry to entry */
    unsigned row;  /* counter row, as in struct limit */
    struct position position;
};

#endif
