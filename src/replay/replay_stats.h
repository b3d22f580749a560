/* replay_stats.h - what a policy would have done with the requests of the logs. */
#ifndef WEIR_REPLAY_REPLAY_STATS_H
#define WEIR_REPLAY_REPLAY_STATS_H

#include "limit/decision.h"
#include "replay/log_line.h"
#include "replay/replay_clients.h"

/* A request and its line in the logs. */
struct replay_request {
    int64_t time_us;
    struct slice client, method, target;
    const char *file;
    uint64_t line;
};

enum { REPLAY_TEXT_MAX = 160 };

/* A request worth showing. The texts are cut and NUL-terminated. */
struct replay_example {
    int64_t time_us;
    char client[CLIENT_NAME_MAX + 1], request[REPLAY_TEXT_MAX + 1];
    const char *file;
    uint64_t line;
};

/* One limit. A limit in shadow mode counts what it would have rejected; one with a share in
 * `enforce` counts that apart, for clients outside of the share. */
struct limit_stats {
    uint64_t applied;              /* requests to which the limit applied */
    uint64_t rejected;             /* by this limit, alone or together with others */
    uint64_t spared;               /* not rejected, by `enforce` */
    uint64_t delayed;              /* admitted after a wait in the limit's queue */
    struct replay_clients seen;    /* requests to which the limit applied, by client */
    struct replay_clients clients; /* rejections */
    struct replay_example first;   /* first rejection */
    int64_t minute;                /* Unix time in minutes of the current minute */
    uint64_t in_minute;            /* rejections in it */
    int64_t worst_minute;
    uint64_t worst_count;
};

struct replay_stats {
    uint64_t requests;
    uint64_t admitted, rejected;
    uint64_t unlimited; /* admitted: no limit applies, or the client is unlimited */
    uint64_t blocked;   /* rejected: 403, or a quota of 0 */
    uint64_t refused;   /* 400 and the like: no rule was applied */
    struct replay_example first_refused;
    const char *refused_why;
    uint64_t failed; /* the limiter script failed, or Redis */
    struct replay_clients rejected_clients;
    unsigned limit_count;
    struct limit_stats *limits; /* by limit->index */
};

void replay_stats_init(struct replay_stats *stats, unsigned limit_count);
void replay_stats_free(struct replay_stats *stats);

/* Counts a refused request. `why` is static text. */
void replay_stats_refuse(struct replay_stats *stats, const struct replay_request *request,
                         const char *why);
/* Counts a request of a blocked address or client. */
void replay_stats_block(struct replay_stats *stats, const struct replay_request *request);
/* Counts a decided request. Requests must come in the order of their times. */
void replay_stats_decide(struct replay_stats *stats, const struct replay_request *request,
                         const struct decision *decision);

#endif
