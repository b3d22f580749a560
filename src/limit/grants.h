/* grants.h - temporary quotas that an operator has granted to single clients: this process's
 * copy.
 *
 *   weir grant, PUT --> Redis: one hash PREFIX:grants, and a message to all weir processes
 *   main thread: grant_reader.h --grants_publish--> an immutable table --grants_find--> every
 *                                                                        worker's limiter
 *
 * A worker holds the table that it saw last. One atomic read shows whether there is a newer one;
 * without grants that is the only cost. A grant ends by this process's clock, even if messages
 * are lost. */
#ifndef WEIR_LIMIT_GRANTS_H
#define WEIR_LIMIT_GRANTS_H

#include "policy/identity.h"

enum { GRANTS_MAX = 2048 }; /* at the same time; one Redis reply carries all of them */

#define GRANT_MIN_US INT64_C(1000000)
#define GRANT_MAX_US (INT64_C(30) * 86400 * 1000000)

enum { GRANT_UNLIMITED = -1, GRANT_NONE = -2 };

/* Parses "unlimited" or -1, "none" (GRANT_NONE: revoke), or a number from 0 to LIMIT_MAX. */
MUST_CHECK bool grant_quota_read(struct slice text, int64_t *quota);
/* Parses a duration from GRANT_MIN_US to GRANT_MAX_US. */
MUST_CHECK bool grant_time_read(struct slice text, int64_t *us);

/* One grant: `quota` (GRANT_UNLIMITED, or 0 and more) until `until_us` (monotonic). */
struct grant {
    struct slice client; /* identity_text() */
    int64_t quota;
    uint64_t until_us;
};

struct grants;

/* Creates a table of copies of `all`. Of two grants for one client, the later is used. NULL: no
 * memory. */
struct grants *grants_new(const struct grant *all, unsigned count);
/* Makes `grants` the current table of all workers; takes over the caller's reference. NULL: no
 * grants. Any thread. */
void grants_publish(struct grants *grants);
/* Publishes the current table with this grant in place of the client's earlier one; GRANT_NONE:
 * without it. The next table that is read from Redis replaces it. Returns false if there is no
 * memory. */
bool grants_note(const struct grant *one);
/* The number of grants that were noted. What was requested from Redis before the last one may lack
 * it. */
unsigned grants_noted(void);
/* The number of published grants that have not ended. Any thread. */
unsigned grants_active(void);

/* One thread's reference to a table; initialize with zeros. */
struct grants_hold {
    struct grants *grants;
    unsigned version;
};
void grants_let_go(struct grants_hold *hold);

/* Finds the client's active grant; false: none. Each call sees newly published tables. */
MUST_CHECK bool grants_find_text(struct grants_hold *hold, struct slice client,
                                 struct grant *grant);
MUST_CHECK static inline bool grants_find(struct grants_hold *hold, const struct identity *identity,
                                          struct grant *grant)
{
    return grants_find_text(hold, identity_text(identity), grant);
}

/* A grant as client limits. They replace limit and burst of every limit counted per client. */
struct client_limits grant_client_limits(int64_t quota);

#endif
