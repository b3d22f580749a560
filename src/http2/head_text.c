#include "http2/head_text.h"

#include "base/scan.h"
#include "http/chars.h"
#include "http/field_line.h"

void head_text_begin(struct head_text *text, char *out, char *side, uint32_t list_max)
{
    *text = (struct head_text){.out = text_over(out, HEAD_TEXT_MAX),
                               .side = text_over(side, HEAD_TEXT_MAX),
                               .list_max = list_max};
}

bool head_text_count(struct head_text *text, struct slice name, struct slice value)
{
    text->list_size += (uint32_t)(name.n + value.n) + HEAD_TEXT_ENTRY;
    text->too_large |= text->list_size > text->list_max;
    return !text->too_large;
}

/* ---- checks of one field --------------------------------------------------------------------- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* RFC 9113 section 8.2.1: a token without upper-case letters. */
static bool name_is_valid(struct slice name)
{
    for (size_t i = 0; i < name.n; i++)
        if (!char_is(name.p[i], CHAR_TOKEN) || (name.p[i] >= 'A' && name.p[i] <= 'Z'))
            return false;
    return name.n > 0;
}

/* RFC 9113 section 8.2.1, and stricter: no control bytes except HTAB, as in HTTP/1.1. */
static bool value_is_valid(struct slice value)
{
    const char *p = value.p, *end = p + value.n;

    if (value.n == 0)
        return true;
    if (is_blank(*p) || is_blank(end[-1]))
        return false;
    while ((p = scan_to_control(p, end)) < end && *p == '\t')
        p++;
    return p == end;
}

/* RFC 9113 section 8.2.2: meaningful on one connection of HTTP/1.1 only. */
static bool is_connection_specific(struct slice name)
{
    static const struct slice names[] = {SLICE("connection"), SLICE("keep-alive"),
                                         SLICE("proxy-connection"), SLICE("transfer-encoding"),
                                         SLICE("upgrade")};

    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (slice_equal(name, names[i]))
            return true;
    return false;
}

const char *head_text_fault(struct slice name, struct slice value)
{
    if (!name_is_valid(name))
        return "invalid byte in a field name";
    if (!value_is_valid(value))
        return "invalid byte in a field value, or a blank at its end";
    if (is_connection_specific(name))
        return "connection-specific field";
    if (slice_equal(name, SLICE("te")) && !slice_equal(value, SLICE("trailers")))
        return "TE other than trailers";
    return NULL;
}

/* ---- trailers -------------------------------------------------------------------------------- */

const char *trailer_text_field(struct head_text *text, struct slice name, struct slice value)
{
    const char *fault = head_text_fault(name, value);

    if (!fault && head_text_count(text, name, value))
        field_line_put(&text->out, name, value);
    return fault;
}

struct slice trailer_text_end(struct head_text *text)
{
    if (text->out.n)
        text_literal(&text->out, "\r\n");
    return text->out.failed ? SLICE_NONE : text_slice(&text->out);
}
