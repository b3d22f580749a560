/* head.c - finding the end of a head, and code shared by requests and responses. */
#include "http/parse.h"

/* RFC 9112 section 2.2 permits a bare LF as a line end. weir refuses it: programs that disagree
 * about line ends make request smuggling possible. */
enum scan head_scan(struct slice bytes, size_t *seen, size_t *size, struct refusal *refusal)
{
    const char *p = bytes.p + *seen, *end = bytes.p + bytes.n;

    /* A method begins with a tchar. This refuses a TLS handshake at its first byte. */
    if (*seen == 0 && bytes.n && bytes.p[0] != '\r' && bytes.p[0] != '\n' &&
        !char_is(bytes.p[0], CHAR_TOKEN)) {
        refuse(refusal, 400, "not HTTP");
        return SCAN_REFUSED;
    }
    for (const char *lf; p < end && (lf = memchr(p, '\n', (size_t)(end - p))); p = lf + 1) {
        size_t before = (size_t)(lf - bytes.p);
        if (before == 0 || lf[-1] != '\r') {
            refuse(refusal, 400, "bare LF in the head");
            return SCAN_REFUSED;
        }
        if (before == 1 || lf[-2] == '\n') {
            *seen = *size = before + 1;
            return SCAN_WHOLE;
        }
    }
    /* A lone CR may be the first half of an empty line that the caller will skip. */
    *seen = bytes.n == 1 && bytes.p[0] == '\r' ? 0 : bytes.n;
    return SCAN_PARTIAL;
}

size_t request_skip_empty_line(struct slice bytes)
{
    size_t n = 0;
    while (n + 2 <= bytes.n && bytes.p[n] == '\r' && bytes.p[n + 1] == '\n')
        n += 2;
    return n;
}

bool slice_is_token(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (!char_is(s.p[i], CHAR_TOKEN))
            return false;
    return s.n != 0;
}

const char *version_parse(const char *p, const char *end, uint8_t *minor, struct refusal *refusal)
{
    if (end - p < 10 || memcmp(p, "HTTP/", 5) != 0 || !char_is(p[5], CHAR_DIGIT) || p[6] != '.' ||
        !char_is(p[7], CHAR_DIGIT) || char_is(p[8], CHAR_DIGIT)) {
        refuse(refusal, 400, "malformed HTTP version");
        return NULL;
    }
    if (p[5] != '1') {
        refuse(refusal, 505, "HTTP version other than 1.0 and 1.1");
        return NULL;
    }
    *minor = p[7] != '0'; /* treat a higher minor as 1: RFC 9110 section 2.5 */
    return p + 8;
}
