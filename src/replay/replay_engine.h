/* replay_engine.h - decides the requests of a log as the proxy would, in the logs' own time: the
 * same parser, rules, limiter and scripts, with a private Redis. */
#ifndef WEIR_REPLAY_REPLAY_ENGINE_H
#define WEIR_REPLAY_REPLAY_ENGINE_H

#include "limit/limiter.h"
#include "replay/log_line.h"

enum replay_kind {
    REPLAY_DECIDED, /* see `request.decision` */
    REPLAY_BLOCKED, /* the client's address or entry is blocked */
    REPLAY_REFUSED  /* refused with 400 or the like before any rule; see `why` */
};

enum { REPLAY_CLIENT_MAX = 320 };

/* One request and its decision under one policy. */
struct replay_decision {
    struct decision_request request; /* first: the limiter's callback gets a pointer to it */
    enum replay_kind kind;
    const char *why;  /* static text */
    bool pending;     /* the decision has not arrived yet */
    bool has_charges; /* the response may refund them; see replay_engine_finish() */
    size_t client_size;
    char client[REPLAY_CLIENT_MAX]; /* identity, not NUL-terminated */
};

struct replay_engine;

/* How lines of a log become requests. */
struct replay_options {
    const char *host; /* Host of lines without one; NULL: that of the rule's first server */
    bool user_is_id;  /* the user of common and combined lines is an id */
};

/* Creates an engine for a policy whose Redis settings lead to the private Redis. Its concurrency
 * limits must have been removed from the rules. `options` and `lua_dir` must outlive it. NULL: the
 * error was printed to standard error. */
struct replay_engine *replay_engine_new(struct event_base *base, struct policy *policy,
                                        const struct replay_options *options, const char *lua_dir);
void replay_engine_free(struct replay_engine *engine);

/* Returns true once the private Redis answers. */
bool replay_engine_ready(const struct replay_engine *engine);

/* Decides a request. If `decision->pending` is set afterwards, the decision arrives while the event
 * base runs. Requests must come in the order of their times. */
void replay_engine_decide(struct replay_engine *engine, const struct log_line *line,
                          struct replay_decision *decision);

/* Call when the decision has arrived: refunds what the limits do not count, with the status in the
 * log. */
void replay_engine_finish(struct replay_decision *decision, unsigned status);

/* Sends gathered decisions to Redis. Call once per iteration of the event loop. */
void replay_engine_flush(struct replay_engine *engine);

#endif
