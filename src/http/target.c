/* target.c - the four forms of a request target (RFC 9112 section 3.2) and the authority (RFC 3986
 * section 3.2). */
#include <arpa/inet.h>

#include "http/parse.h"

/* Parses "[" IPv6address "]". IPvFuture is not in use, and a zone (RFC 6874) is only meaningful on
 * one host, so both are refused. Returns the byte after it, or NULL. */
static const char *ip_literal_end(const char *p, const char *end)
{
    char text[INET6_ADDRSTRLEN];
    unsigned char address[16];
    const char *close = memchr(p, ']', (size_t)(end - p));
    size_t n = close ? (size_t)(close - p - 1) : 0;
    if (n == 0 || n >= sizeof text)
        return NULL;
    memcpy(text, p + 1, n);
    text[n] = '\0';
    if (memchr(text, '\0', n) != NULL || inet_pton(AF_INET6, text, address) != 1)
        return NULL;
    return close + 1;
}

/* Parses a DNS name, which has no empty labels. A reg-name of RFC 3986 may also contain percent
 * codes and sub-delims; weir refuses both. A name with percent codes would not match the rules of
 * its host. "," and ";" end a host in X-Forwarded-Host and Forwarded. */
static const char *reg_name_end(const char *p, const char *end)
{
    for (const char *label = p;; label = ++p) {
        p = skip_class(p, end, CHAR_LABEL);
        if (p == label)
            return NULL;
        if (p == end || *p != '.' || p + 1 == end || p[1] == ':')
            return p + (p < end && *p == '.');
    }
}

bool authority_is_valid(struct slice authority)
{
    const char *p = authority.p, *end = p + authority.n;
    uint64_t port;
    if (p == end)
        return false;
    p = *p == '[' ? ip_literal_end(p, end) : reg_name_end(p, end);
    if (p == NULL)
        return false;
    if (p == end || (*p == ':' && p + 1 == end)) /* port = *DIGIT: RFC 3986 section 3.2.3 */
        return true;
    return *p == ':' && slice_to_u64(slice_between(p + 1, end), 65535, &port);
}

/* Removes the port of a valid authority if it is empty or equals `port`. */
static struct slice without_port(struct slice authority, uint64_t port)
{
    const char *end = authority.p + authority.n, *p = end;
    uint64_t value = port;
    while (p > authority.p && char_is(p[-1], CHAR_DIGIT))
        p--;
    if (p == authority.p || p[-1] != ':')
        return authority;
    if (p < end && (!slice_to_u64(slice_between(p, end), 65535, &value) || value != port))
        return authority;
    return slice_between(authority.p, p - 1);
}

bool authority_agrees(const struct request_head *head, struct slice host)
{
    uint64_t port = (head->target.p[4] | 0x20) == 's' ? 443 : 80; /* "https:" or "http:" */
    return slice_equal_nocase(without_port(head->host, port), without_port(host, port));
}

/* `slash` is a slash of the path that begins at `start`. Returns whether an adjacent segment is
 * empty, the next one begins with a dot, or the previous one ends with one. */
static bool is_odd_slash(const char *start, const char *slash, const char *end)
{
    return (slash + 1 < end && (slash[1] == '/' || slash[1] == '.')) ||
           (slash > start && slash[-1] == '.');
}

static bool refuse_byte(struct refusal *refusal, char c)
{
    if (c == '#')
        return refuse(refusal, 400, "fragment in the target");
    if ((unsigned char)c > 0x7f)
        return refuse(refusal, 400, "byte above 0x7F in the target; it has to be percent-encoded");
    return refuse(refusal, 400, "control byte in the target");
}

/* Parses path-abempty [ "?" query ] from `p` on. path_normalise() checks percent codes. */
static bool path_and_query_parse(const char *p, const char *end, struct request_head *head,
                                 struct refusal *refusal)
{
    const char *q = p;
    bool plain = true;
    for (; (q = skip_class(q, end, CHAR_SEGMENT)) < end && char_is(*q, CHAR_PATH); q++)
        if (*q != '/' || is_odd_slash(p, q, end))
            plain = false;
    head->path = slice_between(p, q);
    head->path_is_plain = plain && q[-1] != '.';
    p = q;
    if (q < end && *q == '?')
        while (q < end && char_is(*q, CHAR_QUERY))
            q++;
    head->query = slice_between(p, q);
    return q == end || refuse_byte(refusal, *q);
}

/* Sets a path that is already plain, and a query. */
static bool path_set(struct request_head *head, struct slice path, struct slice query)
{
    head->path = path;
    head->query = query;
    head->path_is_plain = true;
    return true;
}

/* Returns the length of a leading "http://" or "https://", or 0. */
static size_t scheme_length(struct slice target)
{
    static const struct slice schemes[] = {SLICE("http://"), SLICE("https://")};
    for (size_t i = 0; i < COUNT_OF(schemes); i++)
        if (slice_starts_with_nocase(target, schemes[i]))
            return schemes[i].n;
    return 0;
}

static bool absolute_form_parse(struct request_head *head, size_t scheme, struct refusal *refusal)
{
    const char *p = head->target.p + scheme, *end = head->target.p + head->target.n, *slash = p;
    while (slash < end && *slash != '/' && *slash != '?' && *slash != '#')
        slash++;
    head->form = TARGET_ABSOLUTE;
    head->host = slice_between(p, slash);
    if (memchr(p, '@', head->host.n) != NULL) /* RFC 9110 section 4.2.4 */
        return refuse(refusal, 400, "userinfo in the target");
    if (!authority_is_valid(head->host))
        return refuse(refusal, 400, "invalid authority in the target");
    if (slash == end) /* RFC 9112 sections 3.2.1 and 3.2.4 */
        return path_set(head, head->method == METHOD_OPTIONS ? SLICE("*") : SLICE("/"), SLICE_NONE);
    if (*slash != '?')
        return path_and_query_parse(slash, end, head, refusal);
    p = skip_class(slash, end, CHAR_QUERY);
    return path_set(head, SLICE("/"), slice_between(slash, p)) &&
           (p == end || refuse_byte(refusal, *p));
}

bool target_parse(struct request_head *head, struct refusal *refusal)
{
    struct slice target = head->target;
    head->host = SLICE_NONE;
    if (target.p[0] == '/') {
        head->form = TARGET_ORIGIN;
        return path_and_query_parse(target.p, target.p + target.n, head, refusal);
    }
    if (slice_equal(target, SLICE("*"))) {
        head->form = TARGET_ASTERISK;
        return head->method == METHOD_OPTIONS
                   ? path_set(head, target, SLICE_NONE)
                   : refuse(refusal, 400, "target * with a method other than OPTIONS");
    }
    size_t scheme = scheme_length(target);
    if (scheme)
        return absolute_form_parse(head, scheme, refusal);
    /* authority-form is only for CONNECT: RFC 9112 section 3.2.3 */
    return refuse(refusal, 400, "invalid target");
}
