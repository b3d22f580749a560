/* response.c - the head of a response: RFC 9112 sections 4, 5 and 9. */
#include "http/parse.h"

/* RFC 9112 section 4: HTTP-version SP status-code SP [ reason-phrase ] CRLF. The space before a reason that
 * is not there may be missing too: many servers leave it out, and nothing can be read into it. The first byte
 * of the next line, or NULL. */
static const char *status_line_parse(const char *p, const char *end, struct response_head *head,
                                     struct refusal *refusal)
{
    if ((p = version_parse(p, end, &head->minor, refusal)) == NULL)
        return NULL;
    if (p[0] != ' ' || p[1] < '1' || p[1] > '5' || !char_is(p[2], CHAR_DIGIT) || !char_is(p[3], CHAR_DIGIT) ||
        (p[4] != ' ' && p[4] != '\r')) {
        refuse(refusal, 502, "malformed status line");
        return NULL;
    }
    head->status = (uint16_t)((p[1] - '0') * 100 + (p[2] - '0') * 10 + (p[3] - '0'));
    p += p[4] == ' ' ? 5 : 4;
    const char *reason = p;
    p = skip_class(p, CHAR_TEXT);
    head->reason = slice_between(reason, p);
    if (p[0] != '\r' || p[1] != '\n') {
        refuse(refusal, 502, "control byte in the reason");
        return NULL;
    }
    return p + 2;
}

static bool response_parse(struct slice whole, struct response_head *head, struct refusal *refusal)
{
    const char *end = whole.p + whole.n;
    if (!head_is_whole(whole))
        return refuse(refusal, 502, "malformed status line");
    const char *p = status_line_parse(whole.p, end, head, refusal);
    return p != NULL && fields_parse(p, end, &head->fields, refusal) &&
           connection_parse(&head->fields, head->minor, &head->keep_alive, refusal);
}

bool response_head_parse(struct slice whole, struct response_head *head, struct refusal *refusal)
{
    if (response_parse(whole, head, refusal))
        return true;
    refusal->status = 502; /* the client is not to blame */
    return false;
}
