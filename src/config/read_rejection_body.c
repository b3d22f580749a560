/* read_rejection_body.c - rejection.body_file: the body of rejections, with placeholders. */
#include "config/sections.h"

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

const struct option_type type_body_file = {"path", read_body_file, print_body_file, true, 0};
