/* grants.h - quotas that an operator has granted to single clients for a time: what this process knows of them.
 *
 *   weir grant, PUT --> Redis: one hash PREFIX:grants, and a message to all weirs
 *   main thread: grant_reader.h --grants_publish--> an immutable table --grants_find--> every worker's limiter
 *
 * A worker holds the table that it saw last and looks at one atomic to know whether there is a newer one: where nothing
 * is granted that is all it costs. A grant ends by this process' clock, whatever becomes of messages. */
#ifndef WEIR_LIMIT_GRANTS_H
#define WEIR_LIMIT_GRANTS_H

#include "policy/identity.h"

enum { GRANTS_MAX = 2048 }; /* at once; all of them go into one answer of Redis */

#define GRANT_MIN_US INT64_C(1000000)
#define GRANT_MAX_US (INT64_C(30) * 86400 * 1000000)

enum { GRANT_UNLIMITED = -1, GRANT_NONE = -2, GRANT_QUOTA_MAX = 1000000000 };

/* Reads "unlimited" or -1, "none" (GRANT_NONE: take back), or 0 and more. */
MUST_CHECK bool grant_quota_read(struct slice text, int64_t *quota);
/* Reads a duration from GRANT_MIN_US to GRANT_MAX_US. */
MUST_CHECK bool grant_time_read(struct slice text, int64_t *us);

/* One grant: `quota` of GRANT_UNLIMITED, 0 or more, until `until_us` (monotonic). */
struct grant {
    struct slice client; /* identity_text() */
    int64_t quota;
    uint64_t until_us;
};

struct grants;

/* A table of copies of these, the later of two for one client. NULL: no memory. */
struct grants *grants_new(const struct grant *all, unsigned count);
/* From now on every worker finds these; takes over the caller's reference. NULL: none. Any thread. */
void grants_publish(struct grants *grants);
/* How many of those published last go on. Any thread. */
unsigned grants_active(void);

/* What one thread holds on to; zeroed at first. */
struct grants_hold {
    struct grants *grants;
    unsigned version;
};
void grants_let_go(struct grants_hold *hold);

/* What a client is granted now; false: nothing. Newly published tables are seen at the next call. */
MUST_CHECK bool grants_find(struct grants_hold *hold, const struct identity *identity, struct grant *grant);

/* A grant as terms: in place of limit and burst of every limit counted per client. */
struct client_limits grant_client_limits(int64_t quota);

#endif
