/* test_command.h - `weir test`: runs the tests of files. */
#ifndef WEIR_SCENARIO_TEST_COMMAND_H
#define WEIR_SCENARIO_TEST_COMMAND_H

#include "scenario/scenario_report.h"

struct test_order {
    char *const *files;
    unsigned file_count;
    const char *policy; /* of all files, instead of those that they name; NULL: none */
    const char *lua_dir;
    enum scenario_format format;
    bool progress; /* show it on standard error */
};

/* Runs the tests and prints their results to standard output. If a file has a mistake, nothing is
 * run. Returns the exit status: 0, or 1 if a test failed or after an error was printed to standard
 * error. Blocks until all have run. */
int scenario_test(const struct test_order *order);

#endif
