/* outcome.h - what came of a request of a test, and in words. */
#ifndef WEIR_SCENARIO_OUTCOME_H
#define WEIR_SCENARIO_OUTCOME_H

#include "base/text.h"
#include "replay/replay_engine.h"
#include "scenario/scenario.h"

struct outcome {
    uint64_t number; /* of the request in its test, from 1 */
    int64_t now_us;
    enum replay_kind kind;
    const char *why; /* BLOCKED, REFUSED */
    bool admitted;
    unsigned status;         /* that the client gets */
    const struct rule *rule; /* NULL: refused before it was chosen */
    struct decision decision;
    int64_t units[LIMITS_PER_RULE_MAX]; /* charged in the end, by position in rule->limits */
    size_t client_size;
    char client[REPLAY_CLIENT_MAX];
};

/* The outcomes of a step. */
struct step_result {
    uint64_t admitted, rejected;
    struct outcome last, first_admitted, first_rejected;
};

static inline struct slice outcome_client(const struct outcome *outcome)
{
    return outcome->client_size ? (struct slice){outcome->client, outcome->client_size}
                                : SLICE("(no client)");
}

/* Returns the result that response fields show; NULL: none. */
const struct limit_result *outcome_shown(const struct outcome *outcome);
/* Returns the result of a limit; NULL: it did not apply. */
const struct limit_result *outcome_result(const struct outcome *outcome, const struct limit *limit);

/* Writes "GET /v1/items of id:alice at 2026-01-01T00:00:00Z". */
void outcome_write_request(struct text *out, const struct outcome *outcome,
                           const struct scenario_step *step);
/* Writes "rejected with 429 by per-client". */
void outcome_write(struct text *out, const struct outcome *outcome);
/* Writes "admitted; rule writes; per-client: 0 of 20 left, more in 600ms". */
void outcome_write_decision(struct text *out, const struct outcome *outcome);

#endif
