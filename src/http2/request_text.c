#include "http2/head_text.h"

#include "base/scan.h"
#include "http/chars.h"
#include "http/field_line.h"

/* ---- pseudo-fields and the request line ------------------------------------------------------ */

static struct slice pseudo_value(const struct head_text *text, enum pseudo_field which)
{
    return (struct slice){text->side.p + text->pseudo_at[which], text->pseudo_size[which]};
}

static bool has_pseudo(const struct head_text *text, enum pseudo_field which)
{
    return text->pseudo >> which & 1;
}

/* Returns whether the value stays one word of the request line: visible bytes only. */
static bool is_word(struct slice value)
{
    return value.n > 0 && scan_to_blank(value.p, value.p + value.n) == value.p + value.n;
}

static const char *pseudo_fault(enum pseudo_field which, struct slice value)
{
    switch (which) {
    case PSEUDO_METHOD:
        for (size_t i = 0; i < value.n; i++)
            if (!char_is(value.p[i], CHAR_TOKEN))
                return "invalid :method";
        return value.n ? NULL : "invalid :method";
    case PSEUDO_SCHEME:
        return slice_equal_nocase(value, SLICE("http")) || slice_equal_nocase(value, SLICE("https"))
                   ? NULL
                   : ":scheme other than http and https";
    case PSEUDO_PATH:
        return is_word(value) && (*value.p == '/' || slice_equal(value, SLICE("*")))
                   ? NULL
                   : "invalid :path";
    default: return value.n == 0 || is_word(value) ? NULL : "invalid :authority";
    }
}

static const char *pseudo_add(struct head_text *text, struct slice name, struct slice value)
{
    static const struct slice names[PSEUDO_COUNT] = {[PSEUDO_METHOD] = SLICE(":method"),
                                                     [PSEUDO_SCHEME] = SLICE(":scheme"),
                                                     [PSEUDO_AUTHORITY] = SLICE(":authority"),
                                                     [PSEUDO_PATH] = SLICE(":path")};
    enum pseudo_field which = PSEUDO_METHOD;
    const char *fault;

    while (which < PSEUDO_COUNT && !slice_equal(name, names[which]))
        which++;
    if (which == PSEUDO_COUNT)
        return "unknown pseudo-field";
    if (text->line_written)
        return "pseudo-field after another field";
    if (has_pseudo(text, which))
        return "repeated pseudo-field";
    if ((fault = pseudo_fault(which, value)))
        return fault;
    text->pseudo |= (uint8_t)(1u << which);
    text->pseudo_at[which] = (uint32_t)text->side.n;
    text->pseudo_size[which] = (uint32_t)value.n;
    text_put(&text->side, value);
    return NULL;
}

/* RFC 9113 section 8.3.1. CONNECT (section 8.5) has no :scheme and :path; the parser refuses it. */
static const char *line_write(struct head_text *text)
{
    bool connect = has_pseudo(text, PSEUDO_METHOD) &&
                   slice_equal(pseudo_value(text, PSEUDO_METHOD), SLICE("CONNECT"));
    unsigned wanted = connect ? 1u << PSEUDO_METHOD | 1u << PSEUDO_AUTHORITY
                              : 1u << PSEUDO_METHOD | 1u << PSEUDO_SCHEME | 1u << PSEUDO_PATH;

    if ((text->pseudo & wanted) != wanted || (connect && text->pseudo != wanted))
        return "missing pseudo-field";
    if (connect && pseudo_value(text, PSEUDO_AUTHORITY).n == 0)
        return "invalid :authority";
    text_put(&text->out, pseudo_value(text, PSEUDO_METHOD));
    text_char(&text->out, ' ');
    text_put(&text->out, pseudo_value(text, connect ? PSEUDO_AUTHORITY : PSEUDO_PATH));
    text_literal(&text->out, " HTTP/1.1\r\n");
    if (has_pseudo(text, PSEUDO_AUTHORITY)) {
        text_literal(&text->out, "Host: ");
        text_put(&text->out, pseudo_value(text, PSEUDO_AUTHORITY));
        text_literal(&text->out, "\r\n");
        text->has_authority = true;
        /* kept at the front of `side`, to be compared with Host */
        memmove(text->side.p, text->side.p + text->pseudo_at[PSEUDO_AUTHORITY],
                text->pseudo_size[PSEUDO_AUTHORITY]);
        text->pseudo_at[PSEUDO_AUTHORITY] = 0;
    }
    text->side.n = text->has_authority ? text->pseudo_size[PSEUDO_AUTHORITY] : 0;
    text->line_written = true;
    return NULL;
}

/* ---- other fields ---------------------------------------------------------------------------- */

/* Offset of the joined cookies in `side`, after :authority. */
static size_t cookies_at(const struct head_text *text)
{
    return text->has_authority ? text->pseudo_size[PSEUDO_AUTHORITY] : 0;
}

static void cookie_add(struct head_text *text, struct slice value)
{
    if (text->side.n > cookies_at(text))
        text_literal(&text->side, "; ");
    text_put(&text->side, value);
}

const char *request_text_field(struct head_text *text, struct slice name, struct slice value)
{
    const char *fault;

    if (!head_text_count(text, name, value))
        return NULL;
    if (name.n && *name.p == ':')
        return pseudo_add(text, name, value);
    if (!text->line_written && (fault = line_write(text)))
        return fault;
    if ((fault = head_text_fault(name, value)))
        return fault;
    if (slice_equal(name, SLICE("cookie")))
        cookie_add(text, value);
    else if (!slice_equal(name, SLICE("host")) || !text->has_authority)
        field_line_put(&text->out, name, value);
    else if (!slice_equal_nocase(value, pseudo_value(text, PSEUDO_AUTHORITY)))
        return "Host differs from :authority";
    text->has_length |= slice_equal(name, SLICE("content-length"));
    return NULL;
}

enum request_text_end request_text_end(struct head_text *text, bool end_stream,
                                       struct request_head *head, struct framing *framing,
                                       struct refusal *refusal)
{
    const char *fault = NULL;

    if (text->too_large) {
        *refusal = (struct refusal){431, "see http2.max_header_list"};
        return REQUEST_TEXT_REFUSED;
    }
    if (!text->line_written && (fault = line_write(text))) {
        *refusal = (struct refusal){400, fault};
        return REQUEST_TEXT_MALFORMED;
    }
    if (text->side.n > cookies_at(text))
        field_line_put(
            &text->out, SLICE("cookie"),
            (struct slice){text->side.p + cookies_at(text), text->side.n - cookies_at(text)});
    if (!end_stream && !text->has_length)
        field_line_put(&text->out, SLICE("transfer-encoding"), SLICE("chunked"));
    text_literal(&text->out, "\r\n");
    if (text->out.failed || text->side.failed) {
        *refusal = (struct refusal){431, "see http2.max_header_list"};
        return REQUEST_TEXT_REFUSED;
    }
    if (!request_head_parse(text_slice(&text->out), head, refusal) ||
        !request_framing(head, framing, refusal))
        return REQUEST_TEXT_REFUSED;
    head->fields.never_indexed = text->never_indexed;
    if (end_stream && framing->kind != FRAMING_NONE) { /* RFC 9113 section 8.1.1 */
        *refusal = (struct refusal){400, "Content-Length without content"};
        return REQUEST_TEXT_MALFORMED;
    }
    if (!end_stream && framing->kind == FRAMING_NONE) { /* "Content-Length: 0" */
        if (head->method == METHOD_TRACE) {
            *refusal = (struct refusal){400, "TRACE with content"};
            return REQUEST_TEXT_REFUSED;
        }
        /* content may still follow and make the request malformed: it is not complete */
        framing->kind = FRAMING_CHUNKED;
    }
    return REQUEST_TEXT_GOOD;
}
