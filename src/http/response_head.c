/* response_head.c - parsing of response heads: RFC 9112 sections 4, 5 and 9. */
#include "http/parse.h"

/* Parses HTTP-version SP status-code SP [ reason-phrase ] CRLF (RFC 9112 section 4). If there is no
 * reason, the space before it may be missing: many servers omit it, and the line stays unambiguous.
 * Returns the first byte of the next line; NULL if refused. */
static const char *status_line_parse(const char *p, const char *end, struct response_head *head,
                                     struct refusal *refusal)
{
    head->version = HTTP_VERSION_1;
    if ((p = version_parse(p, end, &head->minor, refusal)) == NULL)
        return NULL;
    if (end - p < 6 || p[0] != ' ' || p[1] < '1' || p[1] > '5' || !char_is(p[2], CHAR_DIGIT) ||
        !char_is(p[3], CHAR_DIGIT) || (p[4] != ' ' && p[4] != '\r')) {
        refuse(refusal, 502, "malformed status line");
        return NULL;
    }
    head->status = (uint16_t)((p[1] - '0') * 100 + (p[2] - '0') * 10 + (p[3] - '0'));
    p += p[4] == ' ' ? 5 : 4;
    const char *reason = p;
    p = skip_class(p, end, CHAR_TEXT);
    head->reason = slice_between(reason, p);
    if (!is_line_end(p, end)) {
        refuse(refusal, 502, "control byte in the reason");
        return NULL;
    }
    return p + 2;
}

/* Parses the head at the front of `bytes`; sets `*size` to its length. */
static bool response_parse(struct slice bytes, struct response_head *head, size_t *size,
                           struct refusal *refusal)
{
    const char *end = bytes.p + bytes.n, *p = status_line_parse(bytes.p, end, head, refusal);
    if (p == NULL ||
        (p = fields_parse(p, end, RESPONSE_FIELDS_MAX, &head->fields, refusal)) == NULL)
        return false;
    *size = (size_t)(p - bytes.p);
    return connection_parse(&head->fields, head->minor, &head->keep_alive, refusal);
}

bool response_head_parse(struct slice whole, struct response_head *head, struct refusal *refusal)
{
    size_t size;
    if (response_parse(whole, head, &size, refusal) &&
        (size == whole.n || refuse(refusal, 502, "bytes after the head")))
        return true;
    refusal->status = 502; /* not the client's fault */
    return false;
}

enum scan response_head_read(struct slice bytes, size_t *seen, size_t *size,
                             struct response_head *head, struct refusal *refusal)
{
    struct refusal unread; /* discarded: the head may only be incomplete */
    if (*seen == 0 && response_parse(bytes, head, size, &unread)) {
        *seen = *size;
        return SCAN_WHOLE;
    }
    *size = 0;
    /* A server of another protocol may wait for more before it ends its line. */
    if (!slice_starts_with(SLICE("HTTP/"), (struct slice){bytes.p, bytes.n < 5 ? bytes.n : 5})) {
        refuse(refusal, 502, "not HTTP");
        return SCAN_REFUSED;
    }
    enum scan scan = head_scan(bytes, seen, size, refusal);
    if (scan == SCAN_WHOLE && !response_head_parse((struct slice){bytes.p, *size}, head, refusal))
        return SCAN_REFUSED;
    if (scan == SCAN_REFUSED)
        refusal->status = 502;
    return scan;
}
