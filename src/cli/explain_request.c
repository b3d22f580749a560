#include "cli/explain_request.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/memory.h"
#include "net/tls_certificate.h"

static bool complain(const char *format, ...) PRINTF_LIKE(1, 2);
static bool complain(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fputs("weir: explain: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return false;
}

/* ---- content --------------------------------------------------------------------------------- */

/* Without CR, LF and NUL if it is from a file, as curl does. */
static bool append_content(struct explain_order *order, struct slice bytes, bool from_file)
{
    if (bytes.n > EXPLAIN_CONTENT_MAX - 1 - order->content.n)
        return complain("the content of -d is larger than 64 MiB");
    char *all = xrealloc((char *)order->content.p, order->content.n + bytes.n + 1);
    for (size_t i = 0; i < bytes.n; i++)
        if (!from_file || !(bytes.p[i] == '\r' || bytes.p[i] == '\n' || bytes.p[i] == 0))
            all[order->content.n++] = bytes.p[i];
    order->content.p = all;
    return true;
}

static bool append_file(struct explain_order *order, const char *name)
{
    FILE *file = strcmp(name, "-") == 0 ? stdin : fopen(name, "re");
    char piece[65536];
    bool good = true;

    if (!file)
        return complain("-d @%s: %s", name, strerror(errno));
    for (size_t n; good && (n = fread(piece, 1, sizeof piece, file)) > 0;)
        good = append_content(order, (struct slice){piece, n}, true);
    if (good && ferror(file))
        good = complain("-d @%s: %s", name, strerror(errno));
    if (file != stdin)
        fclose(file);
    return good;
}

bool explain_add_content(struct explain_order *order, const char *argument)
{
    if (order->has_content && !append_content(order, SLICE("&"), false))
        return false;
    order->has_content = true;
    return argument[0] == '@' ? append_file(order, argument + 1)
                              : append_content(order, slice_of(argument), false);
}

/* ---- the URL --------------------------------------------------------------------------------- */

struct url {
    bool https;
    struct slice host, target;
    bool adds_slash; /* the target is a query alone */
};

static bool take_scheme(const char *text, struct url *url, const char **rest)
{
    const char *end = strstr(text, "://");
    size_t before = strcspn(text, "/?#");

    *rest = text;
    url->https = false;
    if (!end || (size_t)(end - text) > before)
        return true;
    struct slice scheme = {text, (size_t)(end - text)};
    url->https = slice_equal_nocase(scheme, SLICE("https"));
    *rest = end + 3;
    return url->https || slice_equal_nocase(scheme, SLICE("http")) ||
           complain("%s: the scheme must be http or https", text);
}

static struct slice without_default_port(struct slice host, bool https)
{
    struct slice port = https ? SLICE(":443") : SLICE(":80");

    if (host.n > port.n && memcmp(host.p + host.n - port.n, port.p, port.n) == 0)
        host.n -= port.n;
    return host;
}

static bool split_url(const char *text, struct url *url)
{
    const char *rest;

    for (const char *c = text; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f)
            return complain("%s: a URL contains no blanks and no control characters; write %%20 "
                            "for a space",
                            text);
    if (!take_scheme(text, url, &rest))
        return false;
    struct slice host = {rest, strcspn(rest, "/?#")};
    if (memchr(host.p, '@', host.n))
        return complain("%s: weir explain sends no user name of a URL; use -H 'Authorization: "
                        "...'",
                        text);
    if (host.n == 0 && rest != text)
        return complain("%s: the URL has no host", text);
    url->host = host.n ? without_default_port(host, url->https) : SLICE("localhost");
    rest += host.n;
    url->target = (struct slice){rest, strcspn(rest, "#")};
    url->adds_slash = *rest != '/';
    return text[0] ? true : complain("the URL is empty");
}

/* ---- the header ------------------------------------------------------------------------------ */

/* Splits "NAME: VALUE" or, for an empty value, "NAME;". With a NULL value, "NAME:" removes what
 * weir explain would send. */
static bool split_header(const char *text, struct slice *name, struct slice *value)
{
    const char *colon = strchr(text, ':');
    size_t n = strlen(text);

    if (strpbrk(text, "\r\n"))
        return complain("-H: a header field has one line: %.*s", (int)strcspn(text, "\r\n"), text);
    if (!colon && n > 1 && text[n - 1] == ';') {
        *name = (struct slice){text, n - 1};
        *value = SLICE("");
        return true;
    }
    if (!colon || colon == text)
        return complain("-H '%s': expected 'NAME: VALUE'", text);
    *name = (struct slice){text, (size_t)(colon - text)};
    *value = slice_trim_ows(slice_of(colon + 1));
    if (value->n == 0)
        *value = SLICE_NONE;
    return true;
}

/* Returns the number of -H options for this field. `value`: of the last one. */
static unsigned given(const struct explain_order *order, const char *wanted, struct slice *value)
{
    unsigned count = 0;
    struct slice name, its_value;

    for (unsigned i = 0; i < order->header_count; i++)
        if (split_header(order->headers[i], &name, &its_value) &&
            slice_equal_nocase(name, slice_of(wanted))) {
            *value = its_value;
            count++;
        }
    return count;
}

static void put_field(struct text *out, struct slice name, struct slice value)
{
    text_put(out, name);
    text_literal(out, ": ");
    text_put(out, value);
    text_literal(out, "\r\n");
}

/* Content-Length must be that of the content; what is no number is left to weir. */
static bool check_length(const struct explain_order *order)
{
    struct slice value;
    uint64_t length;

    if (given(order, "Content-Length", &value) != 1 || !slice_to_u64(value, UINT64_MAX, &length) ||
        length == order->content.n)
        return true;
    return complain("Content-Length is %llu, and the content (-d) has %zu bytes",
                    (unsigned long long)length, order->content.n);
}

static void put_content_fields(const struct explain_order *order, struct text *head)
{
    char digits[24];
    struct text length = text_over(digits, sizeof digits);
    struct slice value;

    if (!order->has_content)
        return;
    text_u64(&length, order->content.n);
    if (!given(order, "Content-Length", &value) && !given(order, "Transfer-Encoding", &value))
        put_field(head, SLICE("Content-Length"), text_slice(&length));
    if (!given(order, "Content-Type", &value))
        put_field(head, SLICE("Content-Type"), SLICE("application/x-www-form-urlencoded"));
}

static bool put_head(const struct explain_order *order, const struct url *url, struct text *head)
{
    struct slice method = slice_of(order->method), name, value;

    if (!order->method)
        method = order->has_content ? SLICE("POST") : SLICE("GET");
    if (method.n == 0 || strpbrk(method.p, " \t\r\n"))
        return complain("-X: a method has no blanks and is not empty");
    text_put(head, method);
    text_literal(head, " ");
    text_put(head, url->adds_slash ? SLICE("/") : SLICE(""));
    text_put(head, url->target);
    text_literal(head, " HTTP/1.1\r\n");
    if (!given(order, "Host", &value))
        put_field(head, SLICE("Host"), url->host);
    for (unsigned i = 0; i < order->header_count; i++)
        if (split_header(order->headers[i], &name, &value) && value.p)
            put_field(head, name, value);
    put_content_fields(order, head);
    text_literal(head, "\r\n");
    return !head->failed || complain("the header is larger than 1 MiB");
}

static bool read_client_address(const char *text, struct address *address)
{
    struct slice ip_text = slice_of(text ? text : "127.0.0.1");
    struct ip ip;

    *address = (struct address){.length = 0};
    if (slice_equal(ip_text, SLICE("unix")) || slice_equal(ip_text, SLICE("unix:"))) {
        address->local.sun_family = AF_UNIX;
        address->length = sizeof address->local.sun_family;
        return true;
    }
    if (ip_text.n > 2 && ip_text.p[0] == '[' && ip_text.p[ip_text.n - 1] == ']')
        ip_text = (struct slice){ip_text.p + 1, ip_text.n - 2};
    if (!ip_parse(ip_text, &ip))
        return complain("--from %s: expected an address without a port, such as 203.0.113.7 or "
                        "2001:db8::7, or unix",
                        text);
    address_of_ip(&ip, 0, address);
    return true;
}

static bool read_certificate(const char *file, const struct url *url,
                             struct tls_certificate **certificate)
{
    const char *why;

    *certificate = NULL;
    if (!file)
        return true;
    if (!url->https)
        return complain("--certificate: only an https connection has a certificate");
    *certificate = tls_certificate_read(file, &why);
    return *certificate || complain("--certificate %s: %s", file, why);
}

bool explain_make_request(const struct explain_order *order, struct text *head,
                          struct explain_request *request)
{
    struct slice name, value;
    struct url url = {.https = false};

    for (unsigned i = 0; i < order->header_count; i++)
        if (!split_header(order->headers[i], &name, &value))
            return false;
    if (!split_url(order->url, &url) || !check_length(order) || !put_head(order, &url, head) ||
        !read_client_address(order->from, &request->from) ||
        !read_certificate(order->certificate, &url, &request->certificate))
        return false;
    request->head = text_slice(head);
    request->content = order->content;
    request->https = url.https;
    return true;
}
