#include "config/printer.h"

#include "base/macros.h"
#include "http/chars.h"

/* Returns true for a text that YAML could read as null, a boolean or a number if it is not quoted
 * (YAML 1.2.2 section 10.3.2; booleans of YAML 1.1). Also some texts that look similar. */
static bool has_other_type(struct slice text)
{
    static const char *const words[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n"};
    bool based = text.n > 2 && text.p[0] == '0' && (text.p[1] == 'x' || text.p[1] == 'o');
    unsigned dots = 0;

    for (size_t i = 0; i < COUNT_OF(words); i++)
        if (slice_equal_nocase(text, slice_of(words[i])))
            return true;
    for (size_t i = 0; i < text.n && !based; i++) {
        dots += text.p[i] == '.';
        if (!char_is(text.p[i], CHAR_DIGIT) && !memchr("._eE+-", text.p[i], 6))
            return false;
    }
    return dots < 2;
}

/* Returns false for words that YAML or these readers do not read as plain text. */
static bool is_plain_word(struct slice text)
{
    static const char *const safe = "/_.:@%+-";
    bool good = text.n > 0 && text.p[text.n - 1] != ':' && !has_other_type(text);

    for (size_t i = 0; i < text.n && good; i++) {
        char c = text.p[i];
        good = ascii_is_alnum(c) || (c && strchr(i ? safe : "/_", c));
    }
    return good;
}

/* Escapes "${", so that the output can be read again without variable substitution, and U+FFFD, of
 * which text_json() writes another form before two digits. */
void print_quoted(FILE *out, struct slice text)
{
    while (text.n) {
        char room[6 * 256];
        const char *dollar = memmem(text.p, text.n, "${", 2),
                   *replacement = memmem(text.p, text.n, "\xef\xbf\xbd", 3);
        if (replacement == text.p) {
            fputs("\\ufffd", out);
            text.p += 3, text.n -= 3;
            continue;
        }
        size_t n = replacement ? (size_t)(replacement - text.p) : text.n;
        if (dollar == text.p) {
            fputc('$', out);
            n = 2;
        } else if (dollar && dollar < text.p + n)
            n = (size_t)(dollar - text.p);
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

void print_scalar_value(const struct printer *printer, struct slice text)
{
    fputc(' ', printer->out);
    print_scalar(printer->out, text);
    fputc('\n', printer->out);
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
    return (struct printer){.out = printer->out, .indent = printer->indent + 2};
}

static void print_between(const char *brackets, FILE *out, unsigned count, print_item *item,
                          const void *base)
{
    fputc(brackets[0], out);
    for (unsigned i = 0; i < count; i++) {
        fputs(i ? ", " : " ", out);
        item(out, base, i);
    }
    fputs(count ? &brackets[1] : &brackets[2], out);
}

void print_list(FILE *out, unsigned count, print_item *item, const void *base)
{
    print_between("[ ]", out, count, item, base);
}

void print_map(FILE *out, unsigned count, print_item *item, const void *base)
{
    print_between("{ }", out, count, item, base);
}

void print_items(const struct printer *printer, unsigned count, print_item *item, const void *base)
{
    fputc(' ', printer->out);
    print_list(printer->out, count, item, base);
    fputc('\n', printer->out);
}

/* Skips digits. Returns false if there are none. */
static bool skip_digits(const char **p)
{
    const char *start = *p;

    while (char_is(**p, CHAR_DIGIT))
        ++*p;
    return *p > start;
}

bool is_json_number(const char *text)
{
    const char *p = text + (*text == '-'), *start = p;

    if (!skip_digits(&p) || (*start == '0' && p > start + 1))
        return false;
    if (*p == '.') {
        p++;
        if (!skip_digits(&p))
            return false;
    }
    if (*p == 'e' || *p == 'E') {
        p += p[1] == '+' || p[1] == '-' ? 2 : 1;
        if (!skip_digits(&p))
            return false;
    }
    return *p == 0;
}

static void print_json_scalar(struct json_writer *json, const struct node *node)
{
    bool word = slice_equal(node->text, SLICE("true")) || slice_equal(node->text, SLICE("false"));

    if (node->null)
        json_put_null(json, NULL);
    else if (!node->quoted && (word || is_json_number(node->text.p)))
        json_put_verbatim(json, NULL, node->text);
    else
        json_put_slice(json, NULL, node->text);
}

/* The depth of the tree is bounded by TREE_DEPTH_MAX. */
void print_json(struct json_writer *json, const struct node *node)
{
    bool map = node->kind == NODE_MAP;

    if (node->kind == NODE_SCALAR) {
        print_json_scalar(json, node);
        return;
    }
    json_begin(json, NULL, map ? '{' : '[');
    for (const struct node *child = node->first; child; child = child->next) {
        if (map)
            json_put_key(json, child->key);
        print_json(json, child);
    }
    json_end(json, map ? '}' : ']');
}
