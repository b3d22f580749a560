#include "config/printer.h"

/* Returns false for words that YAML or these readers do not read as plain text. */
static bool is_plain_word(struct slice text)
{
    static const char *const safe = "/_.:@%+-";
    bool good = text.n > 0 && text.p[text.n - 1] != ':' && !slice_equal(text, SLICE("null"));

    for (size_t i = 0; i < text.n && good; i++) {
        char c = text.p[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        good = letter || (c && strchr(i ? safe : "/_", c));
    }
    return good;
}

/* Escapes "${", so that the output can be read again without variable substitution. */
void print_quoted(FILE *out, struct slice text)
{
    while (text.n) {
        char room[6 * 256];
        const char *dollar = memmem(text.p, text.n, "${", 2);
        size_t n = dollar == text.p ? 2 : dollar ? (size_t)(dollar - text.p) : text.n;
        if (dollar == text.p)
            fputc('$', out);
        while (n > 256 || (n < text.n && n > 1 && ((unsigned char)text.p[n] & 0xc0) == 0x80))
            n = n > 256 ? 256 : n - 1; /* a piece that fits and ends between characters */
        struct text piece = text_over(room, sizeof room);
        text_json(&piece, (struct slice){text.p, n});
        fwrite(room, 1, piece.n, out);
        text.p += n;
        text.n -= n;
    }
}

void print_scalar(FILE *out, struct slice text)
{
    if (is_plain_word(text)) {
        fwrite(text.p, 1, text.n, out);
        return;
    }
    fputc('"', out);
    print_quoted(out, text);
    fputc('"', out);
}

void print_key(struct printer *printer, struct slice key)
{
    unsigned spaces = printer->indent - (printer->item ? 2 : 0);
    fprintf(printer->out, "%*s%s", (int)spaces, "", printer->item ? "- " : "");
    print_scalar(printer->out, key);
    fputc(':', printer->out);
    printer->item = false;
}

struct printer printer_below(const struct printer *printer)
{
    return (struct printer){printer->out, printer->indent + 2, false};
}

void print_list(FILE *out, unsigned count, print_item *item, const void *base)
{
    fputc('[', out);
    for (unsigned i = 0; i < count; i++) {
        fputs(i ? ", " : " ", out);
        item(out, base, i);
    }
    fputs(count ? " ]" : "]", out);
}

void print_items(const struct printer *printer, unsigned count, print_item *item, const void *base)
{
    fputc(' ', printer->out);
    print_list(printer->out, count, item, base);
    fputc('\n', printer->out);
}
