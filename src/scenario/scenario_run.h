/* scenario_run.h - runs tests in virtual time, in a private Redis. */
#ifndef WEIR_SCENARIO_SCENARIO_RUN_H
#define WEIR_SCENARIO_SCENARIO_RUN_H

#include <event2/event.h>

#include "scenario/expectation.h"

struct embedded;

struct scenario_runner {
    struct event_base *base;
    struct embedded *redis; /* NULL: no policy has limits */
    const char *lua_dir;
    bool progress;          /* show it on standard error */
    unsigned number, total; /* of the current test, from 1 */
    uint64_t shown_us;      /* when progress was shown */
};

/* Runs a test. Fills `result`, which scenario_result_free() frees in both cases. Returns false
 * after printing an error to standard error: Redis has failed, or a script cannot be composed. */
MUST_CHECK bool scenario_run(struct scenario_runner *runner, struct scenario_file *file,
                             const struct scenario *scenario, struct scenario_result *result);
void scenario_result_free(struct scenario_result *result);

/* Removes what progress has written to the terminal. */
void scenario_clear_progress(struct scenario_runner *runner);

#endif
