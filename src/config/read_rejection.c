/* read_rejection.c - section rejection, also of rules: headers, and a body with placeholders. */
#include "config/sections.h"
#include "http/field_line.h"
#include "http/head.h"

/* ---- headers --------------------------------------------------------------------------------- */

enum { VALUE_MAX = 1024, LINES_MAX = 4096 /* bytes of all lines */ };

/* Returns why the header cannot be set, or NULL. */
static const char *rejection_header_fault(struct slice name)
{
    static const char *const own[] = {"Allow", "Content-Encoding", "Content-Range"};

    if (!slice_is_token(name) || name.n > 128)
        return "is not a header name";
    if (field_id_of(name) == FIELD_CONTENT_TYPE)
        return "is set by content_type";
    for (size_t i = 0; i < COUNT_OF(own); i++)
        if (slice_equal_nocase(name, slice_of(own[i])))
            return "describes a body or a method, which rejections do not have";
    if (field_id_of(name) != FIELD_OTHER)
        return "is set by weir, or belongs to one connection; choose another name";
    return NULL;
}

/* RFC 9110 section 5.5: visible characters, spaces and tabs within. */
static bool value_is_good(struct slice value)
{
    bool good = value.n > 0 && value.p[0] != ' ' && value.p[value.n - 1] != ' ';

    for (size_t i = 0; i < value.n; i++)
        good &= value.p[i] >= ' ' && value.p[i] <= '~';
    return good;
}

static bool is_twice(const struct rejection_settings *rejection, struct slice name)
{
    for (unsigned i = 0; i < rejection->header_count; i++)
        if (slice_equal_nocase(rejection->headers[i].name, name))
            return true;
    return false;
}

static bool header_is_good(struct loading *l, const struct rejection_settings *rejection,
                           const struct node *node)
{
    const char *fault = rejection_header_fault(node->key);

    if (fault)
        mistake_of_key(l, node, "%s %s", QUOTE(node->key), fault);
    else if (is_twice(rejection, node->key))
        mistake_of_key(l, node, "%s is listed twice", QUOTE(node->key));
    else if (!expect_scalar(l, node, "a header's value") || !text_fits(l, node, 1, VALUE_MAX))
        return false;
    else if (!value_is_good(node->text))
        mistake(l, node, "%s is not a header value; use printable ASCII without spaces at its ends",
                QUOTE(node->text));
    else
        return true;
    return false;
}

static void read_rejection_headers(struct loading *l, const struct option *option,
                                   const struct node *node, void *field)
{
    struct rejection_settings *rejection = field;
    struct text lines = text_over(arena_zeroed(l->arena, LINES_MAX, 1), LINES_MAX);

    if (!expect_entries(l, option, node, "a map of headers and values", "headers"))
        return;
    struct rejection_header *headers = arena_zeroed(l->arena, node->count, sizeof *headers);
    rejection->headers = headers;
    for (const struct node *child = node->first; child; child = child->next) {
        if (!header_is_good(l, rejection, child))
            continue;
        headers[rejection->header_count++] = (struct rejection_header){
            {arena_text(l->arena, child->key), child->key.n}, {keep_text(l, child), child->text.n}};
        field_line_put(&lines, child->key, child->text);
    }
    if (lines.failed)
        mistake(l, node, "is longer than %d bytes in all", LINES_MAX);
    rejection->header_lines = text_slice(&lines);
    rejection->has_headers = true;
}

static void print_headers(const struct printer *printer, const void *field)
{
    const struct rejection_settings *rejection = field;

    fputs(rejection->header_count ? "\n" : " {}\n", printer->out);
    for (unsigned i = 0; i < rejection->header_count; i++) {
        struct printer below = printer_below(printer);
        print_key(&below, rejection->headers[i].name);
        fputc(' ', printer->out);
        print_scalar(printer->out, rejection->headers[i].value);
        fputc('\n', printer->out);
    }
}

const struct option_type type_answer_headers = {"map by name", read_rejection_headers,
                                                print_headers, true, 0};

/* ---- body_file ------------------------------------------------------------------------------- */

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

const struct option_type type_body_file = {"path", read_body_file, print_text, true, 0};

/* ---- dialect --------------------------------------------------------------------------------- */

static void read_dialect(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct rejection_settings *rejection = field;

    type_enum.read(l, option, node, &rejection->dialect);
    rejection->has_dialect = true;
    const struct node *body = node_find(node->parent, "body_file");
    if (rejection->dialect != DIALECT_PROBLEM && body && !body->null)
        mistake(l, node, "body_file replaces the body of a dialect; remove one of the two");
}

const struct option_type type_dialect = {"word", read_dialect, print_enum, false, 0};
