/* run_suite.h - runs a test suite; called at the end of each unit test's main(). */
#ifndef WEIR_TESTS_RUN_SUITE_H
#define WEIR_TESTS_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static inline int run_suite_as(Suite *suite, enum fork_status fork_status)
{
    SRunner *runner = srunner_create(suite);

    srunner_set_fork_status(runner, fork_status);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Runs the suite and frees it. CK_VERBOSITY sets the verbosity. With CK_FORK=no, its tests share
 * this process, which saves half of the time with sanitizers. Returns the exit status. */
static inline int run_suite(Suite *suite)
{
    return run_suite_as(suite, CK_FORK_GETENV);
}

/* As run_suite(), but with a process for each test, for tests that would disturb each other. */
static inline int run_suite_in_processes(Suite *suite)
{
    return run_suite_as(suite, CK_FORK);
}

/* Runs these test cases of the suite in parallel, each in its own process, and frees the suite. For
 * tests that mostly wait. Returns the exit status. */
static inline int run_in_parallel(Suite *suite, const char *const *cases, unsigned count)
{
    SRunner *runner = srunner_create(suite);
    int status, failed = 0;

    for (unsigned i = 0; i < count; i++) {
        pid_t child = fork();
        if (child == 0) {
            srunner_run(runner, NULL, cases[i], CK_ENV);
            failed = srunner_ntests_failed(runner) != 0 || srunner_ntests_run(runner) == 0;
            srunner_free(runner);
            exit(failed ? EXIT_FAILURE : EXIT_SUCCESS);
        }
        failed |= child < 0;
    }
    while (wait(&status) > 0)
        failed |= status != 0;
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
