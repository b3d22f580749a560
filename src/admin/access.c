#include "admin/access.h"

#include <arpa/inet.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <sys/queue.h>

#include "admin/answer.h"

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

bool access_host_is_ours(const struct admin_listener *settings, struct slice host)
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
    bool ours = slice_equal_nocase(host, SLICE("localhost"));
    for (unsigned i = 0; i < settings->host_count && !ours; i++)
        ours = slice_equal_nocase(host, slice_of(settings->hosts[i]));
    return ours;
}

static bool refuse(struct evhttp_request *request, const char *detail)
{
    answer_problem(request, 403, "Forbidden", detail);
    return false;
}

static bool refuse_host(struct evhttp_request *request, const char *host)
{
    char detail[512];

    snprintf(detail, sizeof detail,
             "the host %.255s is neither an IP address nor localhost nor one of admin.hosts of the "
             "policy",
             host);
    return refuse(request, detail);
}

static bool is_version_1_0(const struct evhttp_request *request)
{
    return request->major == 1 && request->minor == 0;
}

/* RFC 9112 section 3.2: exactly one Host field; HTTP/1.0, which no browser sends, may omit it.
 * The host of a target in absolute form is checked as well. False: a response was sent. */
static bool host_is_ours(const struct admin_listener *settings, struct evhttp_request *request,
                         const char **host)
{
    const char *target = evhttp_uri_get_host(evhttp_request_get_evhttp_uri(request));
    const struct evkeyval *field;
    unsigned count = 0;

    *host = NULL;
    TAILQ_FOREACH (field, evhttp_request_get_input_headers(request), next)
        if (evutil_ascii_strcasecmp(field->key, "Host") == 0) {
            *host = field->value;
            count++;
        }
    if (count > 1 || (count == 0 && !is_version_1_0(request))) {
        answer_problem(request, 400, "Bad Request", "expected one Host field");
        return false;
    }
    if (target && !access_host_is_ours(settings, slice_of(target)))
        return refuse_host(request, target);
    if (*host && !access_host_is_ours(settings, slice_of(*host)))
        return refuse_host(request, *host);
    return true;
}

/* Fetch Metadata: "none" is a user action such as an address typed in. */
static bool is_same_site(const char *site)
{
    return strcmp(site, "same-origin") == 0 || strcmp(site, "none") == 0;
}

/* RFC 6454 section 7: SCHEME "://" HOST [ ":" PORT ], or "null". */
static bool is_same_origin(const char *origin, const char *host)
{
    const char *authority = strstr(origin, "://");
    return authority && host && slice_equal_nocase(slice_of(authority + 3), slice_of(host));
}

static bool is_of_our_pages(const struct admin_listener *settings, struct evhttp_request *request)
{
    const struct evkeyval *field;
    const char *host;

    if (!host_is_ours(settings, request, &host))
        return false;
    TAILQ_FOREACH (field, evhttp_request_get_input_headers(request), next)
        if ((evutil_ascii_strcasecmp(field->key, "Sec-Fetch-Site") == 0 &&
             !is_same_site(field->value)) ||
            (evutil_ascii_strcasecmp(field->key, "Origin") == 0 &&
             !is_same_origin(field->value, host)))
            return refuse(request, "cross-site requests are refused");
    return true;
}

/* --- The token -------------------------------------------------------------------------------- */

/* Takes the same time for every `given` of the same length, wherever it differs. */
static bool tokens_equal(const char *token, struct slice given)
{
    size_t n = strlen(token);
    volatile unsigned char differ = n != given.n;

    for (size_t i = 0; i < given.n; i++)
        differ |= (unsigned char)(token[i % n] ^ given.p[i]);
    return !differ;
}

/* RFC 6750 section 2.1: "Authorization: Bearer TOKEN", exactly once. */
static bool has_token(const char *token, struct evhttp_request *request)
{
    static const char scheme[] = "Bearer ";
    const struct evkeyval *field;
    struct slice given = SLICE_NONE;
    unsigned count = 0;

    TAILQ_FOREACH (field, evhttp_request_get_input_headers(request), next)
        if (evutil_ascii_strcasecmp(field->key, "Authorization") == 0) {
            given = slice_of(field->value);
            count++;
        }
    if (count != 1 || given.n < sizeof scheme - 1 ||
        !slice_equal_nocase((struct slice){given.p, sizeof scheme - 1}, SLICE("Bearer ")))
        return false;
    for (given.p += sizeof scheme - 1, given.n -= sizeof scheme - 1; given.n && *given.p == ' ';)
        given.p++, given.n--;
    return tokens_equal(token, given);
}

static bool refuse_unauthorized(struct evhttp_request *request)
{
    evhttp_add_header(evhttp_request_get_output_headers(request), "WWW-Authenticate",
                      "Bearer realm=\"weir admin\"");
    answer_problem(request, 401, "Unauthorized",
                   "expected \"Authorization: Bearer TOKEN\" with the token of admin.token_file");
    return false;
}

bool access_is_allowed(const struct admin_listener *settings, unsigned resource,
                       struct evhttp_request *request)
{
    if (!is_of_our_pages(settings, request))
        return false;
    if (settings->read_only && !(resource & ACCESS_READ_ONLY))
        return refuse(request,
                      "this listener is read_only: it serves /healthz, /readyz and /metrics");
    if (settings->token && !(resource & ACCESS_PUBLIC) && !has_token(settings->token, request))
        return refuse_unauthorized(request);
    return true;
}
