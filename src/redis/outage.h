/* outage.h - outages of a Redis, per process. An outage begins with the first connection that
 * fails and ends when no connection is down and one is up. The log has one line for its begin and
 * one for its end, whatever the number of workers.
 *
 * A link joins the record of its Redis at creation and reports changes of its state. Reports are
 * rare, so one lock guards all records. Thread-safe. */
#ifndef WEIR_REDIS_OUTAGE_H
#define WEIR_REDIS_OUTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "redis/failure.h"

enum { OUTAGE_REMIND_US = 60000000 };

struct redis_outage;

/* Returns the record of the Redis named `name`. It is created for the first link and freed when
 * the last one leaves. Returns NULL if out of memory: the link then logs no outage. */
struct redis_outage *redis_outage_join(const char *name);
/* Belongs to a link: its last report. */
enum outage_link { OUTAGE_LINK_NEW, OUTAGE_LINK_DOWN, OUTAGE_LINK_UP };

/* Leaves the record. Returns true if the link was the last one down and the outage ends here;
 * `*us` is its duration in microseconds. */
bool redis_outage_leave(struct redis_outage *outage, enum outage_link state, uint64_t *us);

enum outage_event {
    OUTAGE_KNOWN, /* nothing to log */
    OUTAGE_BEGINS,
    OUTAGE_CHANGES, /* a new cause */
    OUTAGE_LASTS    /* it has lasted OUTAGE_REMIND_US longer */
};

/* Reports that a link is down because of `cause`. `*us` is set to the duration of the outage so
 * far. */
enum outage_event redis_outage_down(struct redis_outage *outage, enum outage_link *state,
                                    enum redis_failure cause, uint64_t *us);

/* Reports that a link is up since `ready_us` (clock_us). Returns true if this ends the outage;
 * `*us` is its duration. */
bool redis_outage_up(struct redis_outage *outage, enum outage_link *state, uint64_t ready_us,
                     uint64_t *us);

/* Rate-limits the logging of error replies. Returns true if this link may log `cause`: one line
 * per `every_us` over all links. */
bool redis_outage_may_complain(struct redis_outage *outage, enum redis_failure cause,
                               uint64_t every_us);

/* Reports a call answered with such an error at `us` (clock_us). */
void redis_outage_refused(struct redis_outage *outage, uint64_t us);
/* Reports that calls succeed. Returns true if no link has reported an error for `calm_us`, no link
 * is down and this was not reported before; the errors lasted `*us`. If false, `*over` is set to
 * whether another link has already reported the end. */
bool redis_outage_accepted(struct redis_outage *outage, uint64_t calm_us, uint64_t *us, bool *over);

/* Returns true if a Redis of this process has answered a call with such an error within the last
 * `within_us`, and calls do not succeed again yet. For the admin listener. */
bool redis_outage_any_refuses(uint64_t within_us);

#endif
