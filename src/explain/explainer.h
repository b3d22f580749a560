/* explainer.h - shared by the files that make an explanation. */
#ifndef WEIR_EXPLAIN_EXPLAINER_H
#define WEIR_EXPLAIN_EXPLAINER_H

#include "admin/query_redis.h"
#include "explain/explanation.h"
#include "proxy/exchange_state.h"

/* What Redis stores of a client: its grant, and the row of the database that is cached there. */
struct explained_client {
    bool granted, row_cached;
    int64_t grant_quota, grant_us;
    struct quota_row row;
};

struct explainer {
    struct policy *policy;
    struct dry_run *run;
    struct dry_run_answers answers;
    bool reads_state; /* in Redis: */
    struct query_redis redis;
    bool failed;        /* Redis could not be read */
    struct arena arena; /* of the explanation */
    struct explanation now;
    /* The head that the dry run changes, that as received, and that as rules see it. */
    struct request_head used, received, sorted;
    struct identity identity;
    struct client_limits granted;
    struct explained_client client;
    struct route_room room;
    struct json_values values;
};

static inline struct slice explain_copy(struct explainer *m, struct slice text)
{
    return (struct slice){arena_text(&m->arena, text), text.n};
}

/* Makes a decision of the limits: struct dry_run_answers. */
void explain_decide(struct dry_run_answers *answers, const struct planned_limit *limits,
                    unsigned count, struct decision *decision);
/* Answers in place of the database. */
void explain_quota(struct dry_run_answers *answers, const struct identity *identity,
                   enum quota_outcome *outcome, struct quota_row *row);
/* Reads the client's grant from Redis, for the next run. False: not possible. */
bool explain_read_grant(struct explainer *m, const struct identity *identity);

/* Each evaluates again what the exchange has evaluated, and fills its part. */
void explain_identity(struct explainer *m, struct exchange *x);
void explain_rules(struct explainer *m, struct exchange *x);
void explain_limits(struct explainer *m, struct exchange *x);
void explain_fields(struct explainer *m, struct exchange *x);

#endif
