/* request_head.c - parsing of request heads: RFC 9112 sections 3, 5 and 9. */
#include "base/scan.h"
#include "http/parse.h"

/* Parses method SP request-target SP HTTP-version CRLF, with single spaces (RFC 9112 section 3).
 * Returns the first byte of the next line; NULL if refused. */
static const char *request_line_parse(const char *p, const char *end, struct request_head *head,
                                      struct refusal *refusal)
{
    const char *start = p;
    p = skip_class(p, end, CHAR_TOKEN);
    head->method_text = slice_between(start, p);
    if (p == start || p == end || *p != ' ') {
        refuse(refusal, 400, "malformed request line");
        return NULL;
    }
    start = ++p;
    p = scan_to_blank(p, end);
    head->target = slice_between(start, p);
    if (p == start || p == end || *p != ' ') {
        refuse(refusal, 400,
               p == start || p == end || *p == '\t' ? "malformed request line"
               : *p == '\r'                         ? "no HTTP version (HTTP/0.9)"
                                                    : "control byte in the target");
        return NULL;
    }
    if ((p = version_parse(p + 1, end, &head->minor, refusal)) == NULL)
        return NULL;
    if (!is_line_end(p, end)) {
        refuse(refusal, 400, "malformed request line");
        return NULL;
    }
    return p + 2;
}

struct request_line request_line_peek(struct slice bytes)
{
    const char *end = bytes.p + bytes.n, *p = skip_class(bytes.p, end, CHAR_TOKEN),
               *start = bytes.p;
    struct request_line line = {.method = slice_between(start, p)};

    if (p == start || p == end || *p != ' ')
        return (struct request_line){SLICE_NONE, SLICE_NONE};
    for (start = ++p; p < end && *p != ' ' && *p != '\r' && *p != '\n';)
        p++;
    line.target = slice_between(start, p);
    return line;
}

enum scan request_scan(struct slice bytes, size_t *seen, size_t *size, struct refusal *refusal)
{
    size_t before = *seen;
    enum scan scan = head_scan(bytes, seen, size, refusal);
    struct request_head line;

    /* The parser checks the first line of a complete head. If the first byte was refused, keep that
     * reason. */
    if (scan == SCAN_WHOLE || bytes.n == 0 || !(char_is(*bytes.p, CHAR_TOKEN) || *bytes.p == '\r'))
        return scan;
    const char *lf = memchr(bytes.p + before, '\n', bytes.n - before);
    if (lf == NULL || lf[-1] != '\r' || memchr(bytes.p, '\n', before) != NULL)
        return scan;
    return request_line_parse(bytes.p, lf + 1, &line, refusal) ? scan : SCAN_REFUSED;
}

/* RFC 9112 section 3.2: HTTP/1.1 requires exactly one valid Host. It must equal the authority of an
 * absolute target: section 3.2.2 would prefer the target, but weir refuses two different names. An
 * empty Host is for URIs without an authority, which http and https do not have. */
static bool host_check(struct request_head *head, struct refusal *refusal)
{
    const struct field *host = fields_find(&head->fields, FIELD_HOST);
    if (host == NULL)
        return head->minor == 0 || refuse(refusal, 400, "no Host");
    if (fields_repeat(&head->fields, FIELD_HOST))
        return refuse(refusal, 400, "more than one Host");
    if (host->value.n == 0)
        return head->minor == 0 || refuse(refusal, 400, "empty Host");
    if (!authority_is_valid(host->value))
        return refuse(refusal, 400, "invalid Host");
    if (head->form == TARGET_ABSOLUTE)
        return authority_agrees(head, host->value) ||
               refuse(refusal, 400, "Host does not agree with the target");
    head->host = host->value;
    return true;
}

/* Returns whether the value lists only 100-continue, once or several times. */
static bool names_continue_only(struct slice value)
{
    struct slice expectation;

    while (slice_next_element(&value, &expectation))
        if (!slice_equal_nocase(expectation, SLICE("100-continue")))
            return false;
    return true;
}

/* RFC 9110 section 10.1.1: 100-continue is the only known expectation. Expect is ignored in
 * HTTP/1.0. */
static bool expect_check(struct request_head *head, struct refusal *refusal)
{
    const struct field *expect = fields_find(&head->fields, FIELD_EXPECT);
    head->expects_continue = false;
    if (expect == NULL || head->minor == 0)
        return true;
    if (fields_repeat(&head->fields, FIELD_EXPECT))
        return refuse(refusal, 417, "more than one Expect");
    if (!slice_equal_nocase(expect->value, SLICE("100-continue")))
        return refuse(refusal, 417,
                      expect->value.n && names_continue_only(expect->value)
                          ? "more than one expectation"
                          : "an expectation other than 100-continue");
    head->expects_continue = true;
    return true;
}

/* RFC 9110 section 7.6.2: applies to OPTIONS and TRACE and may be ignored for other methods. weir
 * does not forward TRACE. */
static bool max_forwards_check(struct request_head *head, struct refusal *refusal)
{
    head->max_forwards = -1;
    if (head->method != METHOD_OPTIONS)
        return true;
    const struct field *field = fields_find(&head->fields, FIELD_MAX_FORWARDS);
    if (field == NULL)
        return true;
    uint64_t value;
    if (fields_repeat(&head->fields, FIELD_MAX_FORWARDS) ||
        !slice_to_u64(field->value, INT32_MAX, &value))
        return refuse(refusal, 400, "invalid Max-Forwards");
    head->max_forwards = (int32_t)value;
    return true;
}

/* Parses the head at the front of `bytes`, with at most `most` fields; sets head->whole. */
static bool request_parse(struct slice bytes, unsigned most, struct request_head *head,
                          struct refusal *refusal)
{
    const char *end = bytes.p + bytes.n, *p = request_line_parse(bytes.p, end, head, refusal);
    if (p == NULL)
        return false;
    head->method = method_of(head->method_text);
    /* weir is a gateway, not a tunnel: RFC 9110 section 9.3.6 */
    if (head->method == METHOD_CONNECT)
        return refuse(refusal, 501, "CONNECT");
    if (!target_parse(head, refusal) ||
        (p = fields_parse(p, end, most, &head->fields, refusal)) == NULL)
        return false;
    head->whole = slice_between(bytes.p, p);
    if (head->fields.odd_names)
        fields_drop_twins(&head->fields, NULL, 0);
    return host_check(head, refusal) && expect_check(head, refusal) &&
           max_forwards_check(head, refusal) &&
           connection_parse(&head->fields, head->minor, &head->keep_alive, refusal);
}

static bool parse_whole(struct slice whole, unsigned most, struct request_head *head,
                        struct refusal *refusal)
{
    return request_parse(whole, most, head, refusal) &&
           (head->whole.n == whole.n || refuse(refusal, 400, "bytes after the head"));
}

bool request_head_parse(struct slice whole, struct request_head *head, struct refusal *refusal)
{
    return parse_whole(whole, HEAD_FIELDS_MAX, head, refusal);
}

bool request_head_parse_forwarded(struct slice whole, struct request_head *head,
                                  struct refusal *refusal)
{
    return parse_whole(whole, RESPONSE_FIELDS_MAX, head, refusal);
}

enum scan request_head_read(struct slice bytes, size_t *seen, size_t *size,
                            struct request_head *head, struct refusal *refusal)
{
    struct refusal unread; /* discarded: the head may only be incomplete */
    *size = 0;
    if (*seen == 0 && request_parse(bytes, HEAD_FIELDS_MAX, head, &unread)) {
        *size = *seen = head->whole.n;
        return SCAN_WHOLE;
    }
    enum scan scan = request_scan(bytes, seen, size, refusal);
    if (scan == SCAN_WHOLE && !request_head_parse((struct slice){bytes.p, *size}, head, refusal))
        return SCAN_REFUSED;
    return scan;
}
