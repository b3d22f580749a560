/* read_answers.c - options headers and rejection. */
#include "config/parts.h"
#include "config/types.h"

/* x-ratelimit-epoch includes the bit of x-ratelimit and precedes it, so that only it is printed. */
static const struct family {
    const char *name;
    unsigned bits;
} families[] = {
    {"x-ratelimit-epoch", HEADERS_X_RATELIMIT | HEADERS_X_RATELIMIT_EPOCH},
    {"x-ratelimit", HEADERS_X_RATELIMIT},
    {"x-rate-limit", HEADERS_X_RATE_LIMIT},
    {"ietf", HEADERS_IETF},
};

static void read_family(struct loading *l, const struct node *item, unsigned *headers)
{
    static const char expected[] = "x-ratelimit, x-ratelimit-epoch, x-rate-limit or ietf";
    struct suggestion meant = suggestion_for(item->text);

    if (item->broken || !expect_scalar(l, item, expected))
        return;
    for (size_t i = 0; i < COUNT_OF(families); i++) {
        suggestion_consider(&meant, slice_of(families[i].name));
        if (slice_equal(item->text, slice_of(families[i].name))) {
            *headers |= families[i].bits;
            return;
        }
    }
    mistake(l, item, "%s is unknown; expected %s%s", QUOTE(item->text), expected,
            DID_YOU_MEAN(&meant));
}

static void read_headers(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    if (!list_fits(option, node)) {
        mistake(l, node,
                "expected a list of x-ratelimit, x-ratelimit-epoch, x-rate-limit and ietf");
        return;
    }
    for (const struct node *item = list_first(node); item; item = list_next(node, item))
        read_family(l, item, field);
}

static void print_headers(const struct printer *printer, const struct option *option,
                          const void *field)
{
    unsigned left = *(const unsigned *)field;
    bool any = left != 0;

    (void)option;
    fputs(" [", printer->out);
    for (size_t i = 0; i < COUNT_OF(families); i++)
        if ((left & families[i].bits) == families[i].bits) {
            left &= ~families[i].bits;
            fprintf(printer->out, " %s%s", families[i].name, left ? "," : "");
        }
    fputs(any ? " ]\n" : "]\n", printer->out);
}

const struct option_type type_headers = {"list of words", read_headers, print_headers, false};

/* --- rejection body --- */

static const struct {
    struct slice text;
    enum body_word word;
} words[] = {
    {SLICE("{limit}"), BODY_LIMIT},
    {SLICE("{retry_after}"), BODY_RETRY_AFTER},
    {SLICE("{client}"), BODY_CLIENT},
};

/* Finds the first placeholder in the text, at `*at`; BODY_END: none. Other braces are text. */
static enum body_word next_word(struct slice text, size_t *at, size_t *size)
{
    const char *brace = text.p, *end = text.p + text.n;

    for (; (brace = memchr(brace, '{', (size_t)(end - brace))); brace++)
        for (size_t i = 0; i < COUNT_OF(words); i++)
            if (slice_starts_with((struct slice){brace, (size_t)(end - brace)}, words[i].text)) {
                *at = (size_t)(brace - text.p);
                *size = words[i].text.n;
                return words[i].word;
            }
    *at = text.n;
    *size = 0;
    return BODY_END;
}

static void cut_body(struct loading *l, const struct node *node,
                     struct rejection_settings *rejection)
{
    struct slice rest = {rejection->body, rejection->body_size};
    size_t at, size;

    rejection->pieces = arena_zeroed(l->arena, BODY_WORDS_MAX + 1, sizeof *rejection->pieces);
    for (;;) {
        enum body_word word = next_word(rest, &at, &size);
        rejection->pieces[rejection->piece_count++] = (struct body_piece){{rest.p, at}, word};
        if (word == BODY_END)
            return;
        if (rejection->piece_count > BODY_WORDS_MAX) {
            mistake(l, node, "contains more than %d of {limit}, {retry_after} and {client}",
                    BODY_WORDS_MAX);
            return;
        }
        rest = (struct slice){rest.p + at + size, rest.n - at - size};
    }
}

static void read_body_file(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    struct rejection_settings *rejection = field;
    struct slice bytes;
    const char *path = file_path(l, option, node);

    if (!path || !named_file_read(l, node, l->arena, path, BODY_FILE_MAX, &bytes))
        return;
    rejection->body_file = keep_text(l, node);
    rejection->body = arena_text(l->arena, bytes);
    rejection->body_size = bytes.n;
    cut_body(l, node, rejection);
}

static void print_body_file(const struct printer *printer, const struct option *option,
                            const void *field)
{
    const struct rejection_settings *rejection = field;
    type_text.print(printer, option, &rejection->body_file);
}

const struct option_type type_body_file = {"path", read_body_file, print_body_file, true};
