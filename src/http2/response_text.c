#include "http2/head_text.h"

#include "http/chars.h"
#include "http/field_line.h"

/* RFC 9113 section 8.3.2: exactly one, before all other fields. 101 does not exist in HTTP/2
 * (section 8.6). */
static const char *status_add(struct head_text *text, struct slice name, struct slice value)
{
    if (!slice_equal(name, SLICE(":status")))
        return "unknown pseudo-field";
    if (text->line_written)
        return "repeated :status, or one after another field";
    if (value.n != 3 || value.p[0] < '1' || value.p[0] > '5' || !char_is(value.p[1], CHAR_DIGIT) ||
        !char_is(value.p[2], CHAR_DIGIT))
        return "invalid :status";
    if (slice_equal(value, SLICE("101")))
        return ":status 101";
    text_literal(&text->out, "HTTP/1.1 ");
    text_put(&text->out, value);
    text_literal(&text->out, " \r\n");
    text->line_written = true;
    return NULL;
}

const char *response_text_field(struct head_text *text, struct slice name, struct slice value)
{
    const char *fault;

    if (!head_text_count(text, name, value))
        return NULL;
    if (name.n && *name.p == ':')
        return status_add(text, name, value);
    if (!text->line_written)
        return "no :status before other fields";
    if ((fault = head_text_fault(name, value)))
        return fault;
    field_line_put(&text->out, name, value);
    text->has_length |= slice_equal(name, SLICE("content-length"));
    return NULL;
}

/* Returns whether the message is one that HTTP/1.1 would send chunked. */
static bool has_unknown_length(const struct head_text *text, enum method method, bool end_stream)
{
    const char *status = text->out.p + sizeof "HTTP/1.1 " - 1;
    bool none = method == METHOD_HEAD || *status == '1' || memcmp(status, "204", 3) == 0 ||
                memcmp(status, "304", 3) == 0;

    return !none && !end_stream && !text->has_length;
}

const char *response_text_end(struct head_text *text, enum method method, bool end_stream,
                              struct response_head *head, struct framing *framing)
{
    struct refusal refusal;

    if (text->too_large)
        return "the header is too large";
    if (!text->line_written)
        return "no :status";
    if (has_unknown_length(text, method, end_stream))
        field_line_put(&text->out, SLICE("transfer-encoding"), SLICE("chunked"));
    text_literal(&text->out, "\r\n");
    if (text->out.failed)
        return "the header is too large";
    if (!response_head_parse(text_slice(&text->out), head, &refusal) ||
        !response_framing(head, method, framing, &refusal))
        return refusal.why;
    head->fields.never_indexed = text->never_indexed;
    if (head->status < 200 && end_stream) /* RFC 9113 section 8.1 */
        return "an interim response that ends the stream";
    if (framing->kind == FRAMING_UNTIL_CLOSE) /* no content, and no Content-Length */
        framing->kind = FRAMING_NONE;
    if (end_stream && framing->kind != FRAMING_NONE) /* section 8.1.1 */
        return "Content-Length without content";
    return NULL;
}
