/* screen.h - lines of text with styles. All output is ASCII, so a byte is a column. */
#ifndef WEIR_CLI_SCREEN_H
#define WEIR_CLI_SCREEN_H

#include <stdio.h>

#include "base/json_read.h"
#include "base/macros.h"

/* Values of style(). */
#define BOLD  "1"
#define RED   "31"
#define GREEN "32"
#define AMBER "33"

struct screen {
    FILE *out;
    unsigned lines; /* that may still be written, with the current one */
    unsigned column, all_columns;
    bool plain;
};

/* Bytes other than visible ASCII and blanks are written as \xNN. Text beyond the last column is
 * left out. */
void put_slice(struct screen *s, struct slice text);
void put_text(struct screen *s, const char *format, ...) PRINTF_LIKE(2, 3);
void style(struct screen *s, const char *code);
void styled(struct screen *s, const char *code, const char *text);
/* Fills with blanks up to a column. */
void go_to(struct screen *s, unsigned column);
void end_line(struct screen *s);
/* A name in a cell of `width` columns and a blank; a longer one is cut and ends with "~". */
void cell(struct screen *s, struct slice name, unsigned width);

enum { NUMBER_MAX = 32 };

/* Write a number of things per second, seconds with a unit, and a long time. Return `text`, or "-"
 * for a negative number. */
const char *rate_text(double n, char text[static NUMBER_MAX]);
const char *duration_text(double seconds, char text[static NUMBER_MAX]);
const char *span_text(double seconds, char text[static NUMBER_MAX]);

/* Returns the number at a path of names joined by dots; -1: there is none. */
double number_at(const json_t *node, const char *path);

#endif
