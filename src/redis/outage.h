/* outage.h - outages of a Redis as the process sees it: one begins with the first connection that fails, and ends when none is
 * down any more. So an outage is one line in the log and its end another, however many workers meet it.
 *
 * A link joins the record of its Redis when it is made, and reports changes of its own state. That is rare, so a lock guards all
 * records. For any thread. */
#ifndef WEIR_REDIS_OUTAGE_H
#define WEIR_REDIS_OUTAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "redis/failure.h"

enum { OUTAGE_REMIND_US = 60000000 };

struct redis_outage;

/* The record of the Redis that `name` stands for; made for the first link that joins, freed when the last one leaves. */
struct redis_outage *redis_outage_join(const char *name);
/* `down`: as the link's last report says. True: all others are back, so with it the outage has ended; it lasted for `*us`. */
bool redis_outage_leave(struct redis_outage *outage, bool down, uint64_t *us);

enum outage_news {
    OUTAGE_KNOWN, /* nothing to log */
    OUTAGE_BEGINS,
    OUTAGE_CHANGES, /* another cause */
    OUTAGE_LASTS    /* for OUTAGE_REMIND_US more */
};

/* A link cannot ask because of `cause`. `*down` is the link's own: counted already? `*us`: how long the outage has lasted. */
enum outage_news redis_outage_down(struct redis_outage *outage, bool *down, enum redis_failure cause,
                                   uint64_t *us);

/* A link can ask since `ready_us` (clock_us). True: with it, the outage has ended; it lasted for `*us`. */
bool redis_outage_up(struct redis_outage *outage, bool *down, uint64_t ready_us, uint64_t *us);

/* A call was answered with an error that many may be: may this link log it? One of all links does so, every `every_us`. */
bool redis_outage_may_complain(struct redis_outage *outage, enum redis_failure cause, uint64_t every_us);

/* A call was answered with such an error, at `us` (clock_us). */
void redis_outage_refused(struct redis_outage *outage, uint64_t us);
/* Calls are answered. True: no link had one refused for `calm_us`, and this was not known yet; they were refused for `*us`.
 * False: `*over` says whether another link has found that. */
bool redis_outage_accepted(struct redis_outage *outage, uint64_t calm_us, uint64_t *us, bool *over);

#endif
