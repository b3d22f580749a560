/* replay_run.h - `weir replay`: runs access logs through a policy and reports who would have been
 * limited, when and by what.
 *
 * This directory reads logs (log_*.c), decides their requests in a private Redis (replay_engine.c),
 * counts (replay_stats.c, replay_clients.c), and prints reports (replay_report.c, replay_json.c).
 * replay_run.c runs it all. It never contacts the Redis or the servers of the policy. */
#ifndef WEIR_REPLAY_REPLAY_RUN_H
#define WEIR_REPLAY_REPLAY_RUN_H

#include <stdbool.h>

enum replay_suggest {
    REPLAY_SUGGEST_AUTO, /* if the logs are files and the first pass was short */
    REPLAY_SUGGEST_ALWAYS,
    REPLAY_SUGGEST_NEVER
};

/* How lines of a log become requests. */
struct replay_options {
    const char *host; /* Host of lines without one; NULL: that of the policy's first server */
    bool user_is_id;  /* the user of common and combined lines is an id */
};

struct replay_order {
    const char *policies[2]; /* the second one is compared with the first; NULL: none */
    const char *lua_dir;
    char *const *logs; /* paths; "-": standard input */
    unsigned log_count;
    struct replay_options options;
    enum replay_suggest suggest;
    bool json;
    bool progress; /* show a progress bar on standard error */
};

/* Replays the logs and prints the report to standard output. Returns the exit status: 0, or 1 after
 * printing an error to standard error. Blocks until the logs are read. */
int replay_run(const struct replay_order *order);

#endif
