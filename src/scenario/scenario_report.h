/* scenario_report.h - prints the results of tests. */
#ifndef WEIR_SCENARIO_SCENARIO_REPORT_H
#define WEIR_SCENARIO_SCENARIO_REPORT_H

#include "scenario/expectation.h"

enum scenario_format { SCENARIO_TEXT, SCENARIO_TAP, SCENARIO_JSON };

struct scenario_totals {
    unsigned tests, failed;
    uint64_t requests, took_us; /* took_us: real time */
    bool complete;              /* false: an error was printed to standard error */
};

/* Call once before the first result, for each result in order, and once after the last one. */
void scenario_report_begin(enum scenario_format format, unsigned tests, FILE *out);
void scenario_report(enum scenario_format format, const struct scenario_result *result,
                     unsigned number, FILE *out);
void scenario_report_end(enum scenario_format format, const struct scenario_totals *totals,
                         FILE *out);

#endif
