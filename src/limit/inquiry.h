/* inquiry.h - where one client stands on every limit, without charging it; or a fresh start for it.
 *
 *   LOOK    what it is granted -> [SCAN...] -> one call of the driver with a cost of 0 for each state key
 *   GRANT   one call, which tells all weirs
 *   RESET   SCAN -> DEL what was found -> ... -> DEL the other keys and PUBLISH
 *
 * An inquiry only says what is to be asked of Redis and understands the answers: the command line waits for
 * them, the admin listener does not. The state keys of a limit that is counted per several things are looked
 * for by SCAN, which reads the names of all keys in Redis a thousand at a time; hence it ends after a given
 * time, and what was found by then is all there is (inquiry_complete). */
#ifndef WEIR_LIMIT_INQUIRY_H
#define WEIR_LIMIT_INQUIRY_H

#include <hiredis/hiredis.h>

#include "store/quota_row.h"

#include "limit/grants.h"

enum inquiry_kind { INQUIRY_LOOK, INQUIRY_RESET, INQUIRY_GRANT };

enum {
    INQUIRY_FOUND_MAX = 256, /* keys of lists; a look shows so many, a reset goes on after each so many */
    INQUIRY_ROWS_MAX = LIMITS_MAX + INQUIRY_FOUND_MAX,
};

/* One state key. */
struct standing {
    const struct limit *limit;
    struct slice key;  /* whole */
    struct slice rest; /* "{route:/v1}", of a limit that is counted per several things */
    int64_t quota, capacity;
    bool enforced;               /* it may reject this client */
    bool admits;                 /* a request of cost 1 */
    int64_t remaining, reset_us; /* reset: until the limit is as good as new */
    int64_t retry_after_us;      /* until a request of cost 1 is admitted; 0: at once, -1: never */
    bool failed; /* its own script fails: nothing more is known than that, and how it is counted */
};

struct inquiry;

/* Reads "client-2", "id:client-2", "ip:203.0.113.7", "ip:2001:db8::1" (grouped by identity.ipv6_prefix, and
 * as X-Weir-Client writes the group), "ip:unix". False: `*why` (static text). */
MUST_CHECK bool inquiry_identity(const struct policy *policy, struct slice text, struct identity *identity,
                                 const char **why);

/* The script that inquiries of this policy ask, around policy->driver. malloc'ed. NULL: no memory. */
char *inquiry_script(const struct policy *policy);

/* `policy` and `identity` outlive the inquiry. It looks for keys for `patience_us` at most. NULL: no memory.
 */
struct inquiry *inquiry_new(const struct policy *policy, const struct identity *identity,
                            enum inquiry_kind kind, uint64_t patience_us);
void inquiry_free(struct inquiry *inquiry);

/* A quota of GRANT_NONE takes back what was granted. */
struct inquiry *inquiry_new_grant(const struct policy *policy, const struct identity *identity, int64_t quota,
                                  int64_t us);

/* What to ask next: the arguments of EVALSHA after the SHA; they live until inquiry_take. False: nothing
 * more. */
MUST_CHECK bool inquiry_next(struct inquiry *inquiry, int *argc, const char ***argv, const size_t **sizes);
/* Redis may be in several parts (the masters of a cluster), each of which has to be looked through. Before each
 * inquiry_next, where it may be more than one. */
void inquiry_set_parts(struct inquiry *inquiry, unsigned parts);
/* Of which part that asks, from 0; of other calls, which have keys, or have no need of any, 0. */
unsigned inquiry_part(const struct inquiry *inquiry);
/* The answer to it. False: it has the wrong shape, and the inquiry is over. */
MUST_CHECK bool inquiry_take(struct inquiry *inquiry, const redisReply *reply);

/* Afterwards. */
bool inquiry_complete(const struct inquiry *inquiry); /* every key was looked at */
unsigned inquiry_rows(const struct inquiry *inquiry, const struct standing **rows);
/* Of a look: is the client granted a quota, and for how long still? Of a grant: was it done, or are there GRANTS_MAX
 * already? */
bool inquiry_granted(const struct inquiry *inquiry, int64_t *quota, int64_t *us);
/* Of a look: does the database of the policy say what holds for the client? */
bool inquiry_asks_database(const struct inquiry *inquiry);
/* What it said, and for how long that is believed; negative: past its time. False: it is not cached in Redis. */
bool inquiry_row(const struct inquiry *inquiry, struct quota_row *row, int64_t *us);
/* What holds for the client: a grant, else what the policy says, else what the database said. NULL: the limits as written. Of a grant it has the
 * inquiry's life. */
const struct client_terms *inquiry_client(const struct inquiry *inquiry);
uint64_t inquiry_removed(const struct inquiry *inquiry); /* keys */
bool inquiry_told(const struct inquiry *inquiry);        /* Redis took the message for all weirs */

/* "PREFIX:resets": a message there names an identity whose state was removed. NUL-terminated, malloc'ed;
 * NULL: no memory. */
char *inquiry_channel(const struct policy *policy);

/* What these terms are, in words: "quota", "prohibited", ... */
const char *inquiry_terms(const struct client_terms *terms);

#endif
