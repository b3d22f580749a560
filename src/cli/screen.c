#include "cli/screen.h"

#include <stdarg.h>
#include <stdlib.h>

/* --- Output ----------------------------------------------------------------------------------- */

static void put_char(struct screen *s, char c)
{
    if (s->column < s->all_columns && s->lines) {
        fputc(c, s->out);
        s->column++;
    }
}

void put_slice(struct screen *s, struct slice text)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (c >= ' ' && c <= '~') {
            put_char(s, (char)c);
            continue;
        }
        put_char(s, '\\');
        put_char(s, 'x');
        put_char(s, digits[c >> 4]);
        put_char(s, digits[c & 15]);
    }
}

void put_text(struct screen *s, const char *format, ...)
{
    char bytes[512];
    va_list args;

    va_start(args, format);
    vsnprintf(bytes, sizeof bytes, format, args);
    va_end(args);
    put_slice(s, slice_of(bytes));
}

void style(struct screen *s, const char *code)
{
    if (!s->plain && s->lines)
        fprintf(s->out, "\033[%sm", code);
}

void styled(struct screen *s, const char *code, const char *text)
{
    style(s, code);
    put_text(s, "%s", text);
    style(s, "0");
}

void go_to(struct screen *s, unsigned column)
{
    while (s->column < column && s->column < s->all_columns && s->lines)
        put_char(s, ' ');
}

void end_line(struct screen *s)
{
    if (!s->lines)
        return;
    if (!s->plain)
        fputs("\033[K", s->out); /* erases the rest of the line before */
    fputc('\n', s->out);
    s->column = 0;
    s->lines--;
}

static size_t escaped_size(struct slice text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.n; i++)
        n += text.p[i] >= ' ' && text.p[i] <= '~' ? 1 : 4;
    return n;
}

void cell(struct screen *s, struct slice name, unsigned width)
{
    unsigned begin = s->column, all = s->all_columns;
    bool cut = escaped_size(name) > width;

    s->all_columns = begin + width < all ? begin + width - cut : all;
    put_slice(s, name);
    s->all_columns = all;
    if (cut)
        put_char(s, '~');
    go_to(s, begin + width + 1);
}

/* --- Numbers ---------------------------------------------------------------------------------- */

const char *rate_text(double n, char text[static NUMBER_MAX])
{
    if (n < 0)
        return "-";
    snprintf(text, NUMBER_MAX,
             n >= 1e6   ? "%.2fM"
             : n >= 1e4 ? "%.1fk"
             : n >= 100 ? "%.0f"
                        : "%.1f",
             n >= 1e6   ? n / 1e6
             : n >= 1e4 ? n / 1e3
                        : n);
    char *zero = strstr(text, ".0");
    if (zero && !zero[2])
        *zero = 0;
    return text;
}

const char *duration_text(double seconds, char text[static NUMBER_MAX])
{
    if (seconds < 0)
        return "-";
    snprintf(text, NUMBER_MAX,
             seconds < 0.001  ? "%.0f us"
             : seconds < 0.01 ? "%.2f ms"
             : seconds < 1    ? "%.1f ms"
                              : "%.2f s",
             seconds < 0.001 ? seconds * 1e6
             : seconds < 1   ? seconds * 1e3
                             : seconds);
    return text;
}

const char *span_text(double seconds, char text[static NUMBER_MAX])
{
    unsigned long s = seconds > 0 ? (unsigned long)seconds : 0;

    if (s >= 86400)
        snprintf(text, NUMBER_MAX, "%lu d %lu h", s / 86400, s % 86400 / 3600);
    else if (s >= 3600)
        snprintf(text, NUMBER_MAX, "%lu h %lu min", s / 3600, s % 3600 / 60);
    else if (s >= 60)
        snprintf(text, NUMBER_MAX, "%lu min", s / 60);
    else
        snprintf(text, NUMBER_MAX, "%lu s", s);
    return text;
}

double number_at(const json_t *node, const char *path)
{
    return json_double(json_at(node, path), -1);
}
