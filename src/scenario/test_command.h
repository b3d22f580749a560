/* test_command.h - `weir test`: runs the tests of files. */
#ifndef WEIR_SCENARIO_TEST_COMMAND_H
#define WEIR_SCENARIO_TEST_COMMAND_H

#include "scenario/expectation.h"

struct scenario_totals {
    unsigned tests, failed;
    uint64_t requests, took_us; /* took_us: real time */
    bool complete;              /* false: an error was printed to standard error */
};

/* How results are printed to standard output: once before the first result (NULL: nothing), each
 * result in order, once after the last one. */
struct scenario_format {
    void (*begin)(unsigned tests);
    void (*result)(const struct scenario_result *result, unsigned number);
    void (*end)(const struct scenario_totals *totals);
};

/* --- scenario_report.c --- */
extern const struct scenario_format scenario_text, scenario_tap, scenario_json;

struct test_order {
    char *const *files;
    unsigned file_count;
    const char *policy; /* of all files, instead of those that they name; NULL: none */
    const char *lua_dir;
    const struct scenario_format *format;
    bool progress; /* show it on standard error */
};

/* Runs the tests and prints their results to standard output. If a file has a mistake, nothing is
 * run. Returns the exit status: 0, or 1 if a test failed or after an error was printed to standard
 * error. Blocks until all have run. */
int scenario_test(const struct test_order *order);

#endif
