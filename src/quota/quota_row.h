/* quota_row.h - the database's row for one client, and its text form in Redis. */
#ifndef WEIR_QUOTA_QUOTA_ROW_H
#define WEIR_QUOTA_QUOTA_ROW_H

#include "base/text.h"

enum {
    QUOTA_PLAN_MAX = 64,  /* bytes; plan names in a policy are not longer */
    QUOTA_TEXT_MAX = 96,  /* bytes of a row in Redis */
    QUOTA_OF_ITS_OWN = -2 /* no quota: the limits as written, or those of the plan */
};

struct quota_row {
    bool present;                  /* false: the database has no row */
    int64_t quota;                 /* -1: unlimited, 0: prohibited, n, or QUOTA_OF_ITS_OWN */
    char plan[QUOTA_PLAN_MAX + 1]; /* "": none */
    bool unusable; /* the database has a value that cannot be used; not stored in Redis */
};

/* Parses "3", "-1", "0" or "unlimited"; also "3.00" and surrounding spaces. Numbers above LIMIT_MAX
 * are read as LIMIT_MAX, and negative ones except -1 as 0. Returns false if it is not a whole
 * number. */
MUST_CHECK bool quota_read(struct slice text, int64_t *quota);

/* Text form: "absent", or the quota ("-": none), followed by a space and the plan, if any. */
void quota_row_write(struct text *out, const struct quota_row *row);
MUST_CHECK bool quota_row_parse(struct slice text, struct quota_row *row);

#endif
