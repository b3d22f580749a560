#include "admin/access.h"

#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <sys/queue.h>

#include "admin/answer.h"

static bool refuse_access(struct evhttp_request *request, const char *detail)
{
    answer_problem(request, 403, detail);
    return false;
}

static bool refuse_host(struct evhttp_request *request, const char *host)
{
    char detail[512];

    snprintf(detail, sizeof detail,
             "the host %.255s is neither an IP address nor localhost nor one of admin.hosts of the "
             "policy",
             host);
    return refuse_access(request, detail);
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
        answer_problem(request, 400, "expected one Host field");
        return false;
    }
    if (target && !host_is_own(&settings->hosts, slice_of(target)))
        return refuse_host(request, target);
    if (*host && !host_is_own(&settings->hosts, slice_of(*host)))
        return refuse_host(request, *host);
    return true;
}

static bool is_of_our_pages(const struct admin_listener *settings, struct evhttp_request *request)
{
    const struct evkeyval *field;
    const char *host;

    if (!host_is_ours(settings, request, &host))
        return false;
    TAILQ_FOREACH (field, evhttp_request_get_input_headers(request), next)
        if ((evutil_ascii_strcasecmp(field->key, "Sec-Fetch-Site") == 0 &&
             !fetch_site_is_own(slice_of(field->value))) ||
            (evutil_ascii_strcasecmp(field->key, "Origin") == 0 &&
             !origin_is_own(slice_of(field->value), slice_of(host))))
            return refuse_access(request, "cross-site requests are refused");
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
    if (count != 1 || !slice_starts_with_nocase(given, SLICE("Bearer ")))
        return false;
    for (given.p += sizeof scheme - 1, given.n -= sizeof scheme - 1; given.n && *given.p == ' ';)
        given.p++, given.n--;
    return tokens_equal(token, given);
}

static bool refuse_unauthorized(struct evhttp_request *request)
{
    evhttp_add_header(evhttp_request_get_output_headers(request), "WWW-Authenticate",
                      "Bearer realm=\"weir admin\"");
    answer_problem(request, 401,
                   "expected \"Authorization: Bearer TOKEN\" with the token of admin.token_file");
    return false;
}

bool access_is_allowed(const struct admin_listener *settings, unsigned resource,
                       struct evhttp_request *request)
{
    if (!is_of_our_pages(settings, request))
        return false;
    if (settings->read_only && !(resource & ACCESS_READ_ONLY))
        return refuse_access(
            request, "this listener is read_only: it serves /healthz, /readyz and /metrics");
    if (settings->token && !(resource & ACCESS_PUBLIC) && !has_token(settings->token, request))
        return refuse_unauthorized(request);
    return true;
}
