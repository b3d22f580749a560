/* pattern.c - matching of paths and hosts against the policy's patterns. */
#include "http/path.h"

/* Removes "/segment" from the front of the path. Returns false if there is none. */
static bool next_segment(struct slice *path, struct slice *segment)
{
    if (path->n == 0 || path->p[0] != '/')
        return false;
    const char *start = path->p + 1, *end = path->p + path->n;
    const char *slash = start < end ? memchr(start, '/', (size_t)(end - start)) : NULL;
    if (slash == NULL)
        slash = end;
    *segment = (struct slice){start, (size_t)(slash - start)};
    *path = (struct slice){slash, (size_t)(end - slash)};
    return true;
}

/* Each piece between the stars is found at its first occurrence after the piece before: if there
 * is a match at all, then with these. memmem(3) takes linear time. */
static bool pieces_occur(struct slice pieces, struct slice text, size_t *steps)
{
    while (pieces.n) {
        const char *star = memchr(pieces.p, '*', pieces.n);
        size_t n = star ? (size_t)(star - pieces.p) : pieces.n;
        const char *found = n && text.n ? memmem(text.p, text.n, pieces.p, n) : text.p;
        size_t taken = found && n <= text.n ? (size_t)(found - text.p) + n : text.n;

        *steps += taken + n;
        if (!found || n > text.n)
            return false;
        text = (struct slice){text.p + taken, text.n - taken};
        n += star != NULL;
        pieces = (struct slice){pieces.p + n, pieces.n - n};
    }
    return true;
}

bool glob_matches(struct slice pattern, struct slice text, size_t *steps)
{
    const char *first = pattern.n ? memchr(pattern.p, '*', pattern.n) : NULL;

    *steps += pattern.n;
    if (!first)
        return slice_equal(pattern, text);
    const char *last = memrchr(pattern.p, '*', pattern.n), *end = pattern.p + pattern.n;
    struct slice start = {pattern.p, (size_t)(first - pattern.p)};
    struct slice tail = {last + 1, (size_t)(end - last) - 1};
    size_t fixed = start.n + tail.n;

    if (text.n < fixed || !slice_equal(start, (struct slice){text.p, start.n}) ||
        !slice_equal(tail, (struct slice){text.p + text.n - tail.n, tail.n}))
        return false;
    return first == last || pieces_occur((struct slice){first + 1, (size_t)(last - first) - 1},
                                         (struct slice){text.p + start.n, text.n - fixed}, steps);
}

/* Returns the length of the common prefix, up to the pattern's first "*". */
static size_t same_start(struct slice pattern, struct slice path)
{
    size_t n = 0, most = pattern.n < path.n ? pattern.n : path.n;
    while (n < most && pattern.p[n] == path.p[n] && pattern.p[n] != '*')
        n++;
    return n;
}

/* Not inlined: most patterns are rejected before. */
static __attribute__((noinline)) bool segments_match(struct slice pattern, struct slice path,
                                                     size_t *steps)
{
    struct slice wanted, segment;

    while (next_segment(&pattern, &wanted)) {
        if (pattern.n == 0 && slice_equal(wanted, SLICE("**")))
            return path.n == 0 || path.p[0] == '/';
        if (!next_segment(&path, &segment))
            return false;
        *steps += segment.n + 1;
        if (!glob_matches(wanted, segment, steps))
            return false;
    }
    return path.n == 0;
}

bool path_matches(struct slice pattern, struct slice path, size_t *steps)
{
    if (pattern.n == 0 || pattern.p[0] != '/')
        return slice_equal(pattern, path); /* "*", the target of OPTIONS */
    /* Most patterns are accepted or rejected here. Segment matching starts at the segment that
     * contains the first "*". */
    size_t same = same_start(pattern, path);
    *steps += same + 1;
    if (same == pattern.n)
        return same == path.n;
    if (pattern.p[same] != '*')
        /* The pattern for all paths also matches "*", the target of OPTIONS. */
        return (same == path.n || (path.n && path.p[0] != '/')) &&
               slice_equal((struct slice){pattern.p + same, pattern.n - same}, SLICE("/**"));
    while (pattern.p[same] != '/')
        same--;
    struct slice rest = {pattern.p + same, pattern.n - same};
    return slice_equal(rest, SLICE("/**")) ||
           segments_match(rest, (struct slice){path.p + same, path.n - same}, steps);
}

struct slice host_without_port(struct slice host)
{
    const char *from = host.n && host.p[0] == '[' ? memchr(host.p, ']', host.n) : host.p;
    const char *colon = from ? memchr(from, ':', (size_t)(host.p + host.n - from)) : NULL;
    if (colon)
        host.n = (size_t)(colon - host.p);
    if (host.n > 1 && host.p[host.n - 1] == '.')
        host.n--;
    return host;
}

bool host_matches(struct slice pattern, struct slice host)
{
    struct slice name = host_without_port(host);
    if (!slice_starts_with(pattern, SLICE("*.")))
        return slice_equal_nocase(host_without_port(pattern), name);
    struct slice tail = host_without_port((struct slice){pattern.p + 1, pattern.n - 1});
    return name.n > tail.n &&
           slice_equal_nocase(tail, (struct slice){name.p + name.n - tail.n, tail.n});
}
