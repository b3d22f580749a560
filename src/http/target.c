/* target.c - the four forms of a request's target (RFC 9112 section 3.2) and the authority (RFC 3986
 * section 3.2). */
#include <arpa/inet.h>

#include "http/parse.h"

/* "[" IPv6address "]"; IPvFuture has no user, and a zone (RFC 6874) means nothing to another host. The bytes
 * after it, or NULL. */
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

/* A reg-name may hold percent codes by its grammar and never does by DNS: refused, since a coded name would
 * slip past rules on hosts. */
bool authority_is_valid(struct slice authority)
{
    const char *p = authority.p, *end = p + authority.n;
    uint64_t port;
    if (p == end)
        return false;
    if (*p == '[')
        p = ip_literal_end(p, end);
    else
        while (p < end && char_is(*p, CHAR_HOST))
            p++;
    if (p == NULL || p == authority.p)
        return false;
    if (p == end || (*p == ':' && p + 1 == end)) /* port = *DIGIT: RFC 3986 section 3.2.3 */
        return true;
    return *p == ':' && slice_to_u64(slice_between(p + 1, end), 65535, &port);
}

/* At a slash: does an empty segment follow, or one that begins with a dot? */
static bool is_odd_segment(const char *slash, const char *end)
{
    return slash + 1 < end && (slash[1] == '/' || slash[1] == '.');
}

/* path-abempty [ "?" query ] from `p` on; percent codes are path_normalise()'s business. */
static bool path_and_query_parse(const char *p, const char *end, struct request_head *head,
                                 struct refusal *refusal)
{
    const char *q = p;
    bool odd = false;
    for (; q < end && char_is(*q, CHAR_PATH); q++)
        if (*q == '%' || (*q == '/' && is_odd_segment(q, end)))
            odd = true;
    head->path = slice_between(p, q);
    head->path_is_normal = !odd;
    if (q < end && *q == '?')
        for (q++; q < end && char_is(*q, CHAR_QUERY);)
            q++;
    if (q < end)
        return refuse(refusal, 400, *q == '#' ? "fragment in the target" : "invalid byte in the target");
    head->path_and_query = slice_between(p, end);
    return true;
}

/* A path that stands for itself, and no query. */
static bool path_set(struct request_head *head, struct slice path)
{
    head->path_and_query = head->path = path;
    head->path_is_normal = true;
    return true;
}

/* The length of "http://" or "https://" at the front, 0 if neither is there. */
static size_t scheme_length(struct slice target)
{
    static const struct slice schemes[] = {{"http://", 7}, {"https://", 8}};
    for (size_t i = 0; i < COUNT_OF(schemes); i++)
        if (target.n >= schemes[i].n &&
            slice_equal_nocase((struct slice){target.p, schemes[i].n}, schemes[i]))
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
        return path_set(head, head->method == METHOD_OPTIONS ? SLICE("*") : SLICE("/"));
    if (*slash == '?') /* allowed by the grammar, sent by nobody, and not a slice that starts with "/" */
        return refuse(refusal, 400, "query without a path in the target");
    return path_and_query_parse(slash, end, head, refusal);
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
                   ? path_set(head, target)
                   : refuse(refusal, 400, "target * with a method other than OPTIONS");
    }
    size_t scheme = scheme_length(target);
    if (scheme)
        return absolute_form_parse(head, scheme, refusal);
    /* authority-form is CONNECT's alone: RFC 9112 section 3.2.3 */
    return refuse(refusal, 400, "invalid target");
}
