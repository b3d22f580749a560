/* run_suite.h - what every unit test's main() ends with. */
#ifndef WEIR_TESTS_RUN_SUITE_H
#define WEIR_TESTS_RUN_SUITE_H

#include <check.h>
#include <stdlib.h>

/* Runs it and frees it; CK_VERBOSITY says how much is told. The program's exit status. */
static inline int run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);

    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
