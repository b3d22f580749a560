#include "config/report.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/memory.h"

static struct report_line *next_line(struct report *report)
{
    if (report->count == REPORT_KEPT_MAX)
        return NULL;
    if (report->count == report->room) {
        unsigned room = report->room ? report->room * 2 : 32;
        report->lines = xrealloc(report->lines, room * sizeof *report->lines);
        report->room = room;
    }
    return &report->lines[report->count];
}

void report_line_add(struct report *report, bool warning, struct position position,
                     const char *text)
{
    *(warning ? &report->warnings : &report->mistakes) += 1;
    struct report_line *line = next_line(report);
    if (!line)
        return;
    *line = (struct report_line){report->current, position, warning, report->count,
                                 arena_text(&report->arena, slice_of(text))};
    report->count++;
}

void report_mistake(struct report *report, struct position position, const char *format, ...)
{
    char text[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    report_line_add(report, false, position, text);
}

/* Orders the policy file first, then the other files in the order of reading. */
static int by_position(const void *left, const void *right)
{
    const struct report_line *a = left, *b = right;
    if (a->file != b->file && (!a->file || !b->file || strcmp(a->file, b->file) != 0))
        return !a->file ? -1 : !b->file ? 1 : a->number < b->number ? -1 : 1;
    if (a->position.line != b->position.line)
        return a->position.line < b->position.line ? -1 : 1;
    if (a->position.column != b->position.column)
        return a->position.column < b->position.column ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

void report_finish(struct report *report, FILE *out)
{
    unsigned shown = 0;

    if (report->count)
        qsort(report->lines, report->count, sizeof *report->lines, by_position);
    for (unsigned i = 0; i < report->count; i++) {
        const struct report_line *line = &report->lines[i];
        if (!line->warning && shown++ >= REPORT_SHOWN_MAX)
            continue;
        fprintf(out, "%s:%u:%u: %s%s\n", line->file ? line->file : report->file,
                line->position.line, line->position.column, line->warning ? "warning: " : "",
                line->text);
    }
    if (report->mistakes > REPORT_SHOWN_MAX)
        fprintf(out, "%s: %u errors; the first %d are shown\n", report->file, report->mistakes,
                REPORT_SHOWN_MAX);
    report_forget(report);
}

void report_forget(struct report *report)
{
    free(report->lines);
    report->lines = NULL;
    arena_free(&report->arena);
}

const char *quote_into(struct quote *quote, struct slice text)
{
    static const char hex[] = "0123456789abcdef";
    size_t cut = text.n > 64 ? 60 : text.n;
    struct text out = text_over(quote->text, sizeof quote->text - 8);

    while (cut < text.n && cut > 0 && ((unsigned char)text.p[cut] & 0xc0) == 0x80)
        cut--; /* do not cut a UTF-8 sequence */
    text_char(&out, '"');
    for (size_t i = 0; i < cut && !out.failed; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c < 0x20 || c == 0x7f)
            text_bytes(&out, (char[]){'\\', 'x', hex[c >> 4], hex[c & 15]}, 4);
        else
            text_char(&out, (char)c);
    }
    bool whole = cut == text.n && !out.failed;
    memcpy(out.p + out.n, whole ? "\"" : "...\"", whole ? 2 : 5);
    return quote->text;
}
