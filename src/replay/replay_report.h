/* replay_report.h - prints the results of a replay, as text for people or as JSON for programs. */
#ifndef WEIR_REPLAY_REPLAY_REPORT_H
#define WEIR_REPLAY_REPLAY_REPORT_H

#include "policy/policy.h"
#include "replay/log_merge.h"
#include "replay/replay_stats.h"

/* The suggested value of a limit. */
enum { SUGGESTED_CLIENTS_MAX = 3 };

struct limit_suggestion {
    int64_t limit;           /* 0: none */
    int64_t burst;           /* with it; 0: the limit has none */
    double share;            /* of the requests to which the limit applies, that it would reject */
    size_t limited, clients; /* clients that it would limit, of all */
    unsigned named;          /* of these, those with the most rejections */
    char names[SUGGESTED_CLIENTS_MAX][CLIENT_NAME_MAX + 1];
};

/* The results of one policy. */
struct replay_result {
    struct policy *policy; /* owns a reference; NULL: it could not be loaded */
    struct replay_stats stats;
    struct limit_suggestion *suggestions; /* by limit->index; NULL: not searched */
    const char *notes[16];                /* what the replay leaves out */
    unsigned note_count;
};

struct replay_summary {
    struct log_counts logs;
    int64_t first_us, last_us; /* times of the first and the last request */
    uint64_t took_us;          /* duration of the (first) pass */
    unsigned result_count;     /* 2: compared */
    struct replay_result results[2];
    uint64_t only_first, only_second, both; /* requests rejected by one policy only, and by both */
};

/* Both print to standard output. */
void replay_report_text(const struct replay_summary *summary);
void replay_report_json(const struct replay_summary *summary);

#endif
