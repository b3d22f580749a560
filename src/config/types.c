#include "config/types.h"

#include "base/values.h"
#include "http/chars.h"

enum { PRINTED_MAX = 48 }; /* bytes of a number with its unit */

/* --- numbers, with or without unit --- */

struct amount {
    const char *what;
    enum value_result (*read)(struct slice text, int64_t *value);
    void (*write)(struct text *out, int64_t value);
    void (*meant)(struct slice text, struct text *out); /* or NULL */
};

static const struct amount duration = {"a duration such as 500us, 25ms, 1s, 1m, 1h or 1d",
                                       duration_read, duration_write, duration_meant};
static const struct amount size = {"a size such as 512, 8k or 1m", size_read, size_write,
                                   size_meant};
static const struct amount number = {"a whole number such as 1000", number_read, text_i64, NULL};

static const struct amount share = {"a share such as 10% or 0.5%", share_read, share_write, NULL};

static const char *amount_text(const struct amount *amount, int64_t value,
                               char text[static PRINTED_MAX])
{
    struct text t = text_over(text, PRINTED_MAX - 1);
    amount->write(&t, value);
    text[t.n] = 0;
    return text;
}

static void out_of_range(struct loading *l, const struct option *option, const struct node *node,
                         const struct amount *amount)
{
    char low[PRINTED_MAX], high[PRINTED_MAX];
    mistake(l, node, "%s is out of range; expected %s to %s", QUOTE(node->text),
            amount_text(amount, option->low, low), amount_text(amount, option->high, high));
}

static void no_number(struct loading *l, const struct node *node, const struct amount *amount)
{
    char text[PRINTED_MAX];
    struct text meant = text_over(text, sizeof text - 1);

    if (amount->meant)
        amount->meant(node->text, &meant);
    if (meant.n && !meant.failed)
        mistake(l, node, "%s is not %s; did you mean \"%.*s\"?", QUOTE(node->text), amount->what,
                (int)meant.n, text);
    else
        mistake(l, node, "%s is not %s", QUOTE(node->text), amount->what);
}

static bool read_amount(struct loading *l, const struct option *option, const struct node *node,
                        const struct amount *amount, int64_t *value)
{
    if (!expect_scalar(l, node, amount->what))
        return false;
    enum value_result result = amount->read(node->text, value);
    if (result == VALUE_GOOD && *value >= option->low && *value <= option->high)
        return true;
    if (result == VALUE_NO_NUMBER)
        no_number(l, node, amount);
    else if (result == VALUE_NO_UNIT)
        mistake(l, node, "%s has no unit; write %.*sms, %.*ss or %.*sm", QUOTE(node->text),
                SLICE_ARG(node->text), SLICE_ARG(node->text), SLICE_ARG(node->text));
    else
        out_of_range(l, option, node, amount);
    return false;
}

static void print_amount(const struct printer *printer, const struct amount *amount, int64_t value)
{
    char text[PRINTED_MAX];
    fprintf(printer->out, " %s\n", amount_text(amount, value, text));
}

#define AMOUNT_TYPE(word)                                                                          \
    static void read_##word(struct loading *l, const struct option *option,                        \
                            const struct node *node, void *field)                                  \
    {                                                                                              \
        int64_t value;                                                                             \
        if (read_amount(l, option, node, &word, &value))                                           \
            *(int64_t *)field = value;                                                             \
    }                                                                                              \
    static void print_##word(const struct printer *printer, const struct option *option,           \
                             const void *field)                                                    \
    {                                                                                              \
        (void)option;                                                                              \
        print_amount(printer, &word, *(const int64_t *)field);                                     \
    }                                                                                              \
    const struct option_type type_##word = {#word, read_##word, print_##word, false}

AMOUNT_TYPE(duration);
AMOUNT_TYPE(size);
AMOUNT_TYPE(number);
AMOUNT_TYPE(share);

static void read_count(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    int64_t value;
    if (read_amount(l, option, node, &number, &value))
        *(unsigned *)field = (unsigned)value;
}

static void print_count(const struct printer *printer, const struct option *option,
                        const void *field)
{
    (void)option;
    print_amount(printer, &number, *(const unsigned *)field);
}

const struct option_type type_count = {"number", read_count, print_count, false};

/* --- words --- */

/* "local, allow or deny" */
static const char *names_listed(const struct option *option, char *text, size_t room)
{
    struct text t = text_over(text, room - 1);
    for (const char *const *name = option->names; *name; name++) {
        if (name > option->names)
            text_put(&t, name[1] ? SLICE(", ") : SLICE(" or "));
        text_put(&t, slice_of(*name));
    }
    text[t.n] = 0;
    return text;
}

static void read_enum(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    char names[200];
    struct suggestion meant = suggestion_for(node->text);

    if (!expect_scalar(l, node, names_listed(option, names, sizeof names)))
        return;
    for (unsigned i = 0; option->names[i]; i++) {
        suggestion_consider(&meant, slice_of(option->names[i]));
        if (slice_equal(node->text, slice_of(option->names[i]))) {
            *(unsigned *)field = i;
            return;
        }
    }
    mistake(l, node, "%s is unknown; expected %s%s", QUOTE(node->text), names,
            DID_YOU_MEAN(&meant));
}

static void print_enum(const struct printer *printer, const struct option *option,
                       const void *field)
{
    fprintf(printer->out, " %s\n", option->names[*(const unsigned *)field]);
}

const struct option_type type_enum = {"word", read_enum, print_enum, false};

static void read_bool(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    (void)option;
    if (!expect_scalar(l, node, "true or false"))
        return;
    if (slice_equal(node->text, SLICE("true")))
        *(bool *)field = true;
    else if (slice_equal(node->text, SLICE("false")))
        *(bool *)field = false;
    else
        mistake(l, node, "%s is neither true nor false", QUOTE(node->text));
}

static void print_bool(const struct printer *printer, const struct option *option,
                       const void *field)
{
    (void)option;
    fprintf(printer->out, " %s\n", *(const bool *)field ? "true" : "false");
}

const struct option_type type_bool = {"true or false", read_bool, print_bool, false};

static void read_text(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    if (node->null || !expect_scalar(l, node, "text") ||
        !text_fits(l, node, (size_t)option->low, (size_t)option->high))
        return;
    if (slice_has_control_bytes(node->text))
        mistake(l, node, "contains control bytes; expected printable text");
    else
        *(char **)field = keep_text(l, node);
}

bool ascii_fits(struct loading *l, const struct option *option, const struct node *node,
                const char *refused, const char *what)
{
    if (!expect_scalar(l, node, "text") ||
        !text_fits(l, node, (size_t)option->low, (size_t)option->high))
        return false;
    for (size_t i = 0; i < node->text.n; i++)
        if (node->text.p[i] < ' ' || node->text.p[i] > '~' || strchr(refused, node->text.p[i])) {
            mistake(l, node, "%s contains more than %s", QUOTE(node->text), what);
            return false;
        }
    return true;
}

const char *file_path(struct loading *l, const struct option *option, const struct node *node)
{
    if (node->null || !expect_scalar(l, node, "a file's path") ||
        !text_fits(l, node, (size_t)option->low, (size_t)option->high))
        return NULL;
    return neighbour_path(l, node->text);
}

static void print_text(const struct printer *printer, const struct option *option,
                       const void *field)
{
    const char *text = *(char *const *)field;
    (void)option;
    fputc(' ', printer->out);
    if (text)
        print_scalar(printer->out, slice_of(text));
    else
        fputs("null", printer->out);
    fputc('\n', printer->out);
}

const struct option_type type_text = {"text", read_text, print_text, true};

static void print_secret(const struct printer *printer, const struct option *option,
                         const void *field)
{
    (void)option;
    fputs(*(char *const *)field ? " \"***\"\n" : " null\n", printer->out);
}

const struct option_type type_secret = {"text", read_text, print_secret, true};

bool list_fits(const struct option *option, const struct node *node)
{
    unsigned count = list_count(node);
    return node->kind != NODE_MAP && count >= (unsigned)option->low &&
           count <= (unsigned)option->high;
}

/* --- sections --- */

static void read_section(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    if (expect_map(l, node, "a map of keys and values"))
        options_read(l, node, option->path, field);
}

static void print_section(const struct printer *printer, const struct option *option,
                          const void *field)
{
    struct printer below = printer_below(printer);
    fputc('\n', printer->out);
    options_print(&below, option->path, field);
}

const struct option_type type_section = {"section", read_section, print_section, true};

/* --- printing --- */

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
