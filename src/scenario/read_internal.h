/* read_internal.h - what the readers of test files share. Their options are rows of the form that
 * config/ has, in a table of their own. */
#ifndef WEIR_SCENARIO_READ_INTERNAL_H
#define WEIR_SCENARIO_READ_INTERNAL_H

#include "config/option_rows.h"
#include "scenario/scenario.h"

extern const struct option_group options_steps; /* read_steps.c: of requests */

extern const struct option_type type_step_costs; /* read_expect.c: stated_cost * */
extern const struct option_type type_expect;     /* read_expect.c: expectation * */
extern const struct option_type type_steps;      /* read_steps.c: scenario */
extern const struct option_type type_from;       /* read_file.c: slice */

/* Reads the client that a text names, as in `clients`. Returns false after reporting an error. */
bool client_is_good(struct loading *l, const struct node *node, struct identity *identity);

/* Bounds of virtual time: time zones are known until its end. */
#define TIME_END_US (INT64_C(2840140800) * 1000000) /* 2060-01-01T00:00:00Z */

enum { REPEAT_MAX = 10000000 };

#endif
