/* expectation.h - compares what came of a step with what is expected. */
#ifndef WEIR_SCENARIO_EXPECTATION_H
#define WEIR_SCENARIO_EXPECTATION_H

#include "scenario/outcome.h"

/* An expectation that was not met. Texts are NUL-terminated and without control characters. */
struct scenario_failure {
    struct position position;
    uint64_t number;      /* of the request in its test, from 1 */
    const char *request;  /* "GET / of id:alice at 2026-01-01T00:00:00Z" */
    const char *expected; /* "remaining: 3" */
    const char *came;     /* "remaining: 4" */
    const char *decision; /* "rule *; per-client: 4 of 5 left" */
    struct scenario_failure *next;
};

enum { FAILURES_MAX = 20 /* per test; more are counted */ };

/* The result of a test. */
struct scenario_result {
    const struct scenario_file *file;
    const struct scenario *scenario;
    uint64_t requests;
    int64_t virtual_us; /* from the start to the last request */
    unsigned failure_count;
    struct scenario_failure *failures, **end;
    struct arena arena; /* holds the failures */
};

/* Appends the expectations of `step` that are not met. */
void expectations_check(const struct scenario_step *step, const struct step_result *came,
                        struct scenario_result *result);

/* Appends a failure that is not about an expectation. */
void scenario_fail(struct scenario_result *result, const struct scenario_step *step,
                   const struct outcome *outcome, struct position position, const char *expected,
                   const char *came);

#endif
