#include "jwks/key_url.h"

static const struct slice https = SLICE("https://"), http = SLICE("http://");

enum { PORT_TEXT_MAX = 6 };

bool key_url_is_one(struct slice text)
{
    return text.n >= 3 && memmem(text.p, text.n, "://", 3) != NULL && text.p[0] != '/' &&
           text.p[0] != '.';
}

static bool is_loopback(const struct key_url *url)
{
    return url->is_ip ? ip_is_loopback(&url->ip)
                      : slice_equal_nocase(url->host, SLICE("localhost"));
}

static bool has_only(struct slice text, const char *refused)
{
    for (size_t i = 0; i < text.n; i++)
        if (text.p[i] <= ' ' || text.p[i] >= 0x7f || strchr(refused, text.p[i]))
            return false;
    return true;
}

/* libcurl reads a last label such as 0x7f as an IPv4 address, and drops a dot at the end. */
static bool is_read_otherwise(struct slice host)
{
    const char *dot = memrchr(host.p, '.', host.n);
    struct slice last = host;

    if (dot)
        last = (struct slice){dot + 1, (size_t)(host.p + host.n - dot - 1)};
    return last.n == 0 || slice_starts_with_nocase(last, SLICE("0x"));
}

/* Reads HOST or HOST:PORT. */
static bool read_authority(struct slice authority, struct key_url *url)
{
    char bytes[HOST_NAME_BYTES_MAX + PORT_TEXT_MAX + 4];
    struct text text = text_over(bytes, sizeof bytes);
    const char *bracket = authority.n ? memrchr(authority.p, ']', authority.n) : NULL, *why;
    size_t after = bracket ? (size_t)(bracket - authority.p) : 0;
    bool has_port = authority.n && memchr(authority.p + after, ':', authority.n - after);
    struct address address;
    struct slice host;

    text_put(&text, authority);
    if (!has_port)
        text_put(&text, url->tls ? SLICE(":443") : SLICE(":80"));
    if (text.failed || !address_split(text_slice(&text), &address, &host, &url->port, &why) ||
        host.n == 0 || url->port == 0)
        return false;
    url->host = (struct slice){authority.p + (authority.p[0] == '['), host.n};
    url->is_ip = address.length != 0;
    if (!url->is_ip && is_read_otherwise(url->host))
        return false;
    return !url->is_ip || ip_of_address(&address, &url->ip);
}

bool key_url_parse(struct slice text, struct key_url *url, const char **why)
{
    bool tls = slice_starts_with_nocase(text, https);
    struct slice rest = {text.p + (tls ? https.n : http.n), 0};

    *url = (struct key_url){.tls = tls};
    if (!tls && !slice_starts_with_nocase(text, http)) {
        *why = "expected a URL that starts with https://";
        return false;
    }
    rest.n = text.n - (size_t)(rest.p - text.p);
    size_t end = 0;
    while (end < rest.n && !strchr("/?#", rest.p[end]))
        end++;
    struct slice authority = {rest.p, end};
    if (memchr(rest.p, '@', end))
        *why = "contains a user or a password; an issuer publishes its keys to everyone";
    else if (text.n > KEY_URL_MAX || !has_only(rest, "#\\\"<>^`{|}"))
        *why = "is too long, has a fragment, or a byte that must be percent-encoded";
    else if (!read_authority(authority, url))
        *why = "has no valid host and port; expected https://HOST/PATH or https://HOST:PORT/PATH";
    else if (!tls && !is_loopback(url))
        *why = "is not encrypted, so anyone on the way could replace the keys; write https:// "
               "(http:// is for loopback addresses)";
    else
        return true;
    return false;
}
