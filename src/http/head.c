/* head.c - where a head ends, and what requests and responses have in common. */
#include "base/scan.h"
#include "http/parse.h"

/* RFC 9112 section 2.2 lets a recipient take a bare LF for a line's end. weir does not: what one program
 * takes for a line's end and another does not is how requests are smuggled. */
enum scan head_scan(struct slice bytes, size_t *seen, size_t *size, struct refusal *refusal)
{
    struct scan_lines lines = scan_lines_of(bytes.p + *seen, bytes.p + bytes.n);

    /* Both a method and "HTTP/" begin with a tchar: a TLS handshake is told apart at its first byte. */
    if (*seen == 0 && bytes.n && bytes.p[0] != '\r' && bytes.p[0] != '\n' &&
        !char_is(bytes.p[0], CHAR_TOKEN)) {
        refuse(refusal, 400, "not HTTP");
        return SCAN_REFUSED;
    }
    for (const char *lf; (lf = scan_next_line_end(&lines)) != NULL;) {
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
    /* A first CR may be half of an empty line that the caller will skip. */
    *seen = bytes.n == 1 && lines.at[-1] == '\r' ? 0 : bytes.n;
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
    *minor = p[7] != '0'; /* a higher minor version is read as the highest known: RFC 9110 section 2.5 */
    return p + 8;
}
