#include "http/own_host.h"

#include <arpa/inet.h>

enum { HOST_MAX = 255 };

/* Returns true if the text is an address as parsed by inet_pton(3). */
static bool is_address(int family, struct slice text)
{
    char bytes[INET6_ADDRSTRLEN + 1];
    struct in6_addr address;

    if (text.n == 0 || text.n >= sizeof bytes || memchr(text.p, 0, text.n))
        return false;
    memcpy(bytes, text.p, text.n);
    bytes[text.n] = 0;
    return inet_pton(family, bytes, &address) == 1;
}

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

bool host_is_own(const struct own_hosts *hosts, struct slice host)
{
    if (host.n == 0 || host.n > HOST_MAX)
        return false;
    if (host.p[0] == '[') {
        const char *end = memchr(host.p, ']', host.n);
        size_t n = end ? (size_t)(end - host.p) : 0;
        struct slice rest = {host.p + n + 1, end ? host.n - n - 1 : 0};
        return end && is_address(AF_INET6, (struct slice){host.p + 1, n - 1}) &&
               (rest.n == 0 ||
                (rest.p[0] == ':' && is_port((struct slice){rest.p + 1, rest.n - 1})));
    }
    if (!take_port(&host))
        return false;
    if (is_address(AF_INET, host))
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
