#include "http/path.h"

#include "http/chars.h"

/* Ends the segment that starts at `start`: "" and "." vanish, ".." takes the segment before it along (at the
 * root there is none: RFC 3986 section 5.2.4), others stay. What remains ends with "/" but for the last
 * segment. `root`: just after the first "/". */
static void segment_end(struct text *out, size_t root, size_t start, bool last)
{
    size_t n = out->n - start;
    const char *p = out->p + start;
    if (n == 0 || (n == 1 && p[0] == '.')) {
        out->n = start;
    } else if (n == 2 && p[0] == '.' && p[1] == '.') {
        out->n = start;
        if (out->n > root)
            out->n--;
        while (out->n > root && out->p[out->n - 1] != '/')
            out->n--;
    } else if (!last) {
        text_char(out, '/');
    }
}

/* The octet at `path->p`, decoded and taken off; -1: a bad percent code or NUL. */
static int next_octet(struct slice *path)
{
    char c = *path->p;
    size_t n = 1;
    if (c == '%') {
        if (path->n < 3 || !char_is(path->p[1], CHAR_HEX) || !char_is(path->p[2], CHAR_HEX))
            return -1;
        c = (char)(char_hex_value(path->p[1]) << 4 | char_hex_value(path->p[2]));
        n = 3;
    }
    path->p += n;
    path->n -= n;
    return c == '\0' ? -1 : (unsigned char)c;
}

/* Slashes are merged before dot segments are resolved, so that /a//../b is /b, as nginx and file systems have
 * it. */
bool path_normalise(struct slice path_and_query, struct text *out)
{
    struct slice path = path_and_query;
    const char *query = path.n ? memchr(path.p, '?', path.n) : NULL;
    if (query)
        path.n = (size_t)(query - path.p);
    if (slice_equal(path, SLICE("*"))) {
        text_char(out, '*');
        return !out->failed;
    }
    if (path.n == 0 || path.p[0] != '/')
        return false;

    text_char(out, '/');
    size_t root = out->n, start = root;
    path.p++, path.n--;
    while (path.n && !out->failed) {
        int c = next_octet(&path);
        if (c < 0)
            return false;
        if (c == '/') {
            segment_end(out, root, start, false);
            start = out->n;
        } else {
            text_char(out, (char)c);
        }
    }
    if (!out->failed)
        segment_end(out, root, start, true);
    return !out->failed;
}
