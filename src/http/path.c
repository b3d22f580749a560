#include "http/path.h"

#include "http/chars.h"

/* Returns whether the octet has the same meaning encoded or not. RFC 3986 defines this for
 * unreserved characters; a space or a non-ASCII octet cannot appear unencoded. */
static bool is_decoded(int octet)
{
    return octet > 0x7f || octet == ' ' || octet == '.' || char_is((char)octet, CHAR_LABEL);
}

bool path_normalise(struct slice path, struct text *out)
{
    const char *p = path.p, *end = p + path.n;

    while (p < end) {
        if (*p != '%') {
            text_char(out, *p++);
            continue;
        }
        int octet = percent_code_at(p, end);
        if (octet <= 0)
            return false;
        if (is_decoded(octet))
            text_char(out, (char)octet);
        else
            text_percent(out, (unsigned char)octet);
        p += 3;
    }
    return !out->failed;
}

/* Returns the length of the segment at `p`. `*dots` is its number of dots, or 0 if it contains
 * anything else. Percent-encoded dots count. */
static size_t segment_measure(const char *p, const char *end, size_t *dots)
{
    const char *slash = memchr(p, '/', (size_t)(end - p));
    const char *q = p;

    end = slash ? slash : end;
    for (*dots = 0; q < end; (*dots)++) {
        if (*q == '.')
            q++;
        else if (percent_code_at(q, end) == '.')
            q += 3;
        else
            break;
    }
    if (q < end)
        *dots = 0;
    return (size_t)(end - p);
}

bool path_has_dot_segments(struct slice path)
{
    const char *p = path.p, *end = p + path.n;
    size_t dots;

    for (; p < end && *p == '/'; p += segment_measure(p + 1, end, &dots) + 1)
        if (segment_measure(p + 1, end, &dots) && (dots == 1 || dots == 2))
            return true;
    return false;
}

/* Removes the last "/segment" written since `start`. */
static void segment_drop(struct text *out, size_t start)
{
    while (out->n > start && out->p[--out->n] != '/')
        ;
}

bool path_remove_dot_segments(struct slice path, struct text *out)
{
    const char *p = path.p, *end = p + path.n;
    size_t start = out->n, dots;

    while (p < end) {
        size_t n = segment_measure(p + 1, end, &dots) + 1;
        if (dots != 1 && dots != 2)
            text_bytes(out, p, n);
        else {
            if (dots == 2)
                segment_drop(out, start);
            if (p + n == end)
                text_char(out, '/');
        }
        p += n;
    }
    return !out->failed;
}
