#include "jwks/freshness.h"

/* Reads digits, perhaps quoted. Returns false for anything else. */
static bool read_delta(struct slice text, uint64_t *seconds)
{
    if (text.n >= 2 && text.p[0] == '"' && text.p[text.n - 1] == '"')
        text = (struct slice){text.p + 1, text.n - 2};
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
    if (text.n == 0)
        return false;
    if (!slice_to_u64(text, FRESHNESS_MAX_S, seconds)) /* also of more digits than a uint64_t has */
        *seconds = FRESHNESS_MAX_S;
    return true;
}

static void limit(struct freshness *freshness, uint64_t seconds)
{
    if (!freshness->limited || seconds < freshness->max_age_s)
        freshness->max_age_s = seconds;
    freshness->limited = true;
}

static void read_directive(struct freshness *freshness, struct slice directive)
{
    const char *equals = memchr(directive.p, '=', directive.n);
    struct slice name = {directive.p, equals ? (size_t)(equals - directive.p) : directive.n};
    uint64_t seconds = 0;

    if (slice_equal_nocase(name, SLICE("no-store")) || slice_equal_nocase(name, SLICE("no-cache")))
        limit(freshness, 0);
    if (!slice_equal_nocase(name, SLICE("max-age")))
        return;
    /* malformed: already stale (RFC 9111 section 4.2.1) */
    if (!equals || !read_delta((struct slice){equals + 1, directive.n - name.n - 1}, &seconds))
        seconds = 0;
    limit(freshness, seconds);
}

/* Removes the next directive: commas inside quotes do not end it. */
static bool next_directive(struct slice *rest, struct slice *directive)
{
    size_t n = 0;
    bool quoted = false;

    if (rest->n == 0)
        return false;
    for (; n < rest->n && (quoted || rest->p[n] != ','); n++)
        if (quoted && rest->p[n] == '\\' && n + 1 < rest->n)
            n++;
        else if (rest->p[n] == '"')
            quoted = !quoted;
    *directive = slice_trim_ows((struct slice){rest->p, n});
    n += n < rest->n;
    *rest = (struct slice){rest->p + n, rest->n - n};
    return true;
}

void freshness_read(struct freshness *freshness, struct slice line)
{
    const char *colon = line.n ? memchr(line.p, ':', line.n) : NULL;
    struct slice name = {line.p, colon ? (size_t)(colon - line.p) : 0}, value, directive;

    while (line.n && (line.p[line.n - 1] == '\n' || line.p[line.n - 1] == '\r'))
        line.n--;
    if (name.n == 0 || name.n >= line.n)
        return;
    value = slice_trim_ows((struct slice){colon + 1, line.n - name.n - 1});
    if (slice_equal_nocase(name, SLICE("Age")))
        (void)read_delta(value, &freshness->age_s);
    if (!slice_equal_nocase(name, SLICE("Cache-Control")))
        return;
    while (next_directive(&value, &directive))
        if (directive.n)
            read_directive(freshness, directive);
}

uint64_t freshness_seconds(const struct freshness *freshness)
{
    return freshness->age_s < freshness->max_age_s ? freshness->max_age_s - freshness->age_s : 0;
}
