/* replay_engine.h - decides requests in virtual time as the proxy would: the same parser, rules,
 * limiter and scripts, with a private Redis. The requests come from logs (replay_run.c) or from
 * policy tests (scenario/). */
#ifndef WEIR_REPLAY_REPLAY_ENGINE_H
#define WEIR_REPLAY_REPLAY_ENGINE_H

#include "limit/limiter.h"
#include "quota/quota_row.h"

/* A request. Empty slices: not known. */
struct virtual_request {
    int64_t now_us; /* Unix time in microseconds */
    struct slice method, target;
    struct slice host;        /* empty: that of the first server of the policy */
    struct slice field_lines; /* further fields, each with its CRLF */
    unsigned field_count;
    struct slice content; /* p NULL: none */
    struct slice claims;  /* of a verified token: a JSON object; p NULL: none */
    struct slice address; /* of the peer; "unix:": a Unix socket */
    struct slice client; /* as identity_parse() takes it: instead of the sources of identity.from */
    /* Finds the row of an identity in the stand-in for the quota database. NULL: there is no
     * database. */
    struct {
        bool (*find)(const void *context, struct slice identity, struct quota_row *row);
        const void *context;
    } quotas;
    bool https;
    bool wants_units; /* replay_engine_units() will be called */
};

/* What the response states. */
struct virtual_response {
    unsigned status; /* 0: not known */
    int64_t cost;    /* in the header that the rule names; -1: none */
    /* By position in rule->limits, of limits with costs of their own; -1: none. */
    int64_t own_costs[LIMITS_PER_RULE_MAX];
};

enum replay_kind {
    REPLAY_DECIDED, /* see `request.decision` */
    REPLAY_BLOCKED, /* the client's address or entry is blocked */
    REPLAY_REFUSED  /* refused with 400 or the like before any rule */
};

enum { REPLAY_CLIENT_MAX = 320, REPLAY_HEAD_MAX = 128 * 1024 };

/* One request and its decision under one policy. */
struct replay_decision {
    struct decision_request request; /* first: the limiter's callback gets a pointer to it */
    enum replay_kind kind;
    const char *why;         /* BLOCKED, REFUSED: static text */
    unsigned status;         /* BLOCKED, REFUSED: of weir's response */
    const struct rule *rule; /* DECIDED */
    bool pending;            /* the decision has not arrived yet */
    bool end_matters;        /* the response, or its end, changes what is charged or held */
    size_t client_size;
    char client[REPLAY_CLIENT_MAX]; /* identity, not NUL-terminated */
};

struct replay_engine;

/* Creates an engine for a policy whose Redis settings lead to the private Redis. NULL: the error
 * was printed to standard error. */
struct replay_engine *replay_engine_new(struct event_base *base, struct policy *policy,
                                        const char *lua_dir);
void replay_engine_free(struct replay_engine *engine);

/* Waits until the private Redis answers, at most `us` microseconds. Returns false if it does
 * not. */
MUST_CHECK bool replay_engine_connect(struct replay_engine *engine, uint64_t us);
/* Returns true while the private Redis answers. */
bool replay_engine_ready(const struct replay_engine *engine);

/* Decides a request. If `decision->pending` is set afterwards, the decision arrives while the event
 * base runs. Times of requests and ends must not fall. */
void replay_engine_decide(struct replay_engine *engine, const struct virtual_request *request,
                          struct replay_decision *decision);

/* Writes what a decided request with wants_units is charged in the end, by position in
 * rule->limits. */
void replay_engine_units(const struct replay_decision *decision,
                         const struct virtual_response *response, int64_t *units);

/* Ends a decided request at `now_us`: gives back what it held, and charges what its response
 * states. */
void replay_engine_finish(struct replay_engine *engine, struct replay_decision *decision,
                          int64_t now_us, const struct virtual_response *response);

/* Sends gathered decisions to Redis. Call once per iteration of the event loop. */
void replay_engine_flush(struct replay_engine *engine);

#endif
