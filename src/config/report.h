/* report.h - collects errors and warnings while a policy is read, and prints them in file order. */
#ifndef WEIR_CONFIG_REPORT_H
#define WEIR_CONFIG_REPORT_H

#include <stdio.h>

#include "base/arena.h"
#include "base/position.h"
#include "base/text.h"

enum {
    REPORT_SHOWN_MAX = 20,   /* maximum errors printed */
    REPORT_KEPT_MAX = 10000, /* maximum errors and warnings stored; later ones are only counted */
};

struct report_line {
    const char *file; /* NULL: the policy file */
    struct position position;
    bool warning;
    unsigned number; /* order of reporting */
    char *text;
};

struct report {
    const char *file;
    const char *current; /* file of the lines that are added, which lives as long; NULL: `file` */
    struct arena arena;
    struct report_line *lines;
    unsigned count, room;
    unsigned mistakes, warnings;
};

void report_line_add(struct report *report, bool warning, struct position position,
                     const char *text);
void report_mistake(struct report *report, struct position position, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Prints errors and warnings as "FILE:LINE:COLUMN: ..." and frees the contents. */
void report_finish(struct report *report, FILE *out);
/* Frees the contents without printing. */
void report_forget(struct report *report);

/* Untrusted text for a message: quoted, truncated if long, control bytes escaped. */
struct quote {
    char text[160];
};
const char *quote_into(struct quote *quote, struct slice text);
#define QUOTE(slice) quote_into(&(struct quote){{0}}, (slice))

#endif
