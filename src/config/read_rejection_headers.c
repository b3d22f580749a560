/* read_rejection_headers.c - rejection.headers: response headers of rejections. */
#include "config/sections.h"
#include "http/head.h"

enum { VALUE_MAX = 1024, LINES_MAX = 4096 /* bytes of all lines */ };

/* Returns why the header cannot be set, or NULL. */
static const char *name_fault(struct slice name)
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
    const char *fault = name_fault(node->key);

    if (fault)
        mistake_of_key(l, node, "%s %s", QUOTE(node->key), fault);
    else if (is_twice(rejection, node->key))
        mistake_of_key(l, node, "%s is listed twice", QUOTE(node->key));
    else if (node->broken || !expect_scalar(l, node, "a header's value") ||
             !text_fits(l, node, 1, VALUE_MAX))
        return false;
    else if (!value_is_good(node->text))
        mistake(l, node, "%s is not a header value; use printable ASCII without spaces at its ends",
                QUOTE(node->text));
    else
        return true;
    return false;
}

static void read_headers(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
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
        text_put(&lines, child->key);
        text_literal(&lines, ": ");
        text_put(&lines, child->text);
        text_literal(&lines, "\r\n");
    }
    if (lines.failed)
        mistake(l, node, "is longer than %d bytes in all", LINES_MAX);
    rejection->header_lines = text_slice(&lines);
    rejection->has_headers = true;
}

static void print_headers(const struct printer *printer, const struct option *option,
                          const void *field)
{
    const struct rejection_settings *rejection = field;

    (void)option;
    fputs(rejection->header_count ? "\n" : " {}\n", printer->out);
    for (unsigned i = 0; i < rejection->header_count; i++) {
        struct printer below = printer_below(printer);
        print_key(&below, rejection->headers[i].name);
        fputc(' ', printer->out);
        print_scalar(printer->out, rejection->headers[i].value);
        fputc('\n', printer->out);
    }
}

const struct option_type type_answer_headers = {"map by name", read_headers, print_headers, true,
                                                0};
