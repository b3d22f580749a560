#include "http/own_host.h"

#include "http/head.h"
#include "net/address.h"

enum { HOST_MAX = 255 };

static bool is_port(struct slice text)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
    return text.n <= 5;
}

struct slice host_port(struct slice host)
{
    const char *colon = host.n ? memrchr(host.p, ':', host.n) : NULL;
    struct slice port = {colon ? colon + 1 : NULL,
                         colon ? (size_t)(host.p + host.n - colon) - 1 : 0};

    return is_port(port) ? port : SLICE_NONE; /* not the end of an IPv6 address in brackets */
}

/* Removes ":PORT" from the end; the port may be empty (RFC 3986 section 3.2.3). False: invalid
 * port. */
static bool take_port(struct slice *host)
{
    const char *colon = memrchr(host->p, ':', host->n);

    if (!colon)
        return true;
    size_t n = (size_t)(colon - host->p);
    if (!is_port((struct slice){colon + 1, host->n - n - 1}))
        return false;
    host->n = n;
    return true;
}

/* "]" has been found behind the address; `rest` follows it. */
static bool is_in_brackets(struct slice address, struct slice rest)
{
    struct ip ip;
    return memchr(address.p, ':', address.n) && ip_parse(address, &ip) &&
           (rest.n == 0 || (rest.p[0] == ':' && is_port((struct slice){rest.p + 1, rest.n - 1})));
}

bool host_is_own(const struct own_hosts *hosts, struct slice host)
{
    struct ip ip;

    if (host.n == 0 || host.n > HOST_MAX)
        return false;
    if (host.p[0] == '[') {
        const char *end = memchr(host.p, ']', host.n);
        size_t n = end ? (size_t)(end - host.p) : 0;
        return end && is_in_brackets((struct slice){host.p + 1, n - 1},
                                     (struct slice){end + 1, host.n - n - 1});
    }
    if (!take_port(&host))
        return false;
    if (ip_parse_v4(host, &ip))
        return true;
    host.n -=
        host.n > 1 && host.p[host.n - 1] == '.'; /* a trailing dot (DNS root) names the same host */
    bool own = slice_equal_nocase(host, SLICE("localhost"));
    for (unsigned i = 0; i < hosts->count && !own; i++)
        own = slice_equal_nocase(host, slice_of(hosts->names[i]));
    return own;
}

bool origin_is_own(struct slice origin, struct slice host)
{
    const char *end = origin.p + origin.n;
    const char *authority = origin.n ? memmem(origin.p, origin.n, "://", 3) : NULL;

    return authority && host.n &&
           slice_equal_nocase((struct slice){authority + 3, (size_t)(end - authority) - 3}, host);
}

bool fetch_site_is_own(struct slice site)
{
    return slice_equal(site, SLICE("same-origin")) || slice_equal(site, SLICE("none"));
}

bool fields_are_of_own_page(const struct fields *fields, struct slice host)
{
    const struct field *field = NULL;

    while ((field = fields_next_named(fields, SLICE("Origin"), field)))
        if (!origin_is_own(field->value, host))
            return false;
    while ((field = fields_next_named(fields, SLICE("Sec-Fetch-Site"), field)))
        if (!fetch_site_is_own(field->value))
            return false;
    return true;
}
