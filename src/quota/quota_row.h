/* quota_row.h - what a database says of one client: as it came, and as it is kept in Redis. */
#ifndef WEIR_QUOTA_QUOTA_ROW_H
#define WEIR_QUOTA_QUOTA_ROW_H

#include "base/text.h"

enum {
    QUOTA_PLAN_MAX = 64,  /* bytes; no plan of a policy has a longer name */
    QUOTA_TEXT_MAX = 96,  /* of a row in Redis */
    QUOTA_OF_ITS_OWN = -2 /* none: the limits as written, or the plan's */
};

struct quota_row {
    bool present;                  /* false: there is none */
    int64_t quota;                 /* -1: unlimited, 0: prohibited, n, or QUOTA_OF_ITS_OWN */
    char plan[QUOTA_PLAN_MAX + 1]; /* "": none */
};

/* "3", "-1", "0", "unlimited", also "3.00" and with spaces around it. False: no quota. */
MUST_CHECK bool quota_read(struct slice text, int64_t *quota);

/* "absent"; else the quota, or "-", and behind a space the plan. */
void quota_row_write(struct text *out, const struct quota_row *row);
MUST_CHECK bool quota_row_parse(struct slice text, struct quota_row *row);

#endif
