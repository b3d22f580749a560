/* report.h - what is wrong with a policy file, collected while it is read and printed at the end, in the
 * file's order. */
#ifndef WEIR_CONFIG_REPORT_H
#define WEIR_CONFIG_REPORT_H

#include "policy/arena.h"
#include "policy/policy.h"

enum {
    REPORT_SHOWN_MAX = 20, /* mistakes that are printed */
    REPORT_KEPT_MAX =
        10000, /* mistakes and warnings that are kept for sorting; what comes later is counted */
};

struct report_line {
    const char *file; /* NULL: the policy's */
    struct position position;
    bool warning;
    unsigned number; /* in the order of reporting */
    char *text;
};

struct report {
    const char *file;
    struct arena arena;
    struct report_line *lines;
    unsigned count, room;
    unsigned mistakes, warnings;
};

void report_line_add(struct report *report, bool warning, struct position position, const char *text);
void report_mistake(struct report *report, struct position position, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Of another file that the policy names; `file` lives as long as the report. */
void report_mistake_in(struct report *report, const char *file, struct position position, const char *format,
                       ...) PRINTF_LIKE(4, 5);

/* Prints everything as "FILE:LINE:COLUMN: ..." and frees what the report holds. */
void report_finish(struct report *report, FILE *out);
/* Frees what the report holds and prints nothing. */
void report_forget(struct report *report);

/* Somebody's text in a message: quoted, cut when long, control bytes made visible. */
struct quote {
    char text[160];
};
const char *quote_into(struct quote *quote, struct slice text);
#define QUOTE(slice) quote_into(&(struct quote){{0}}, (slice))

#endif
