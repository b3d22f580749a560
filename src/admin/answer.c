#include "admin/answer.h"

#include <stdio.h>

#include "base/text.h"

void answer(struct evhttp_request *request, int status, const char *type, struct evbuffer *body)
{
    struct evkeyvalq *fields = evhttp_request_get_output_headers(request);

    evhttp_add_header(fields, "Content-Type", type);
    evhttp_add_header(fields, "Cache-Control", "no-store");
    evhttp_add_header(fields, "X-Content-Type-Options", "nosniff");
    if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
        char length[24]; /* evhttp would send the content as well */
        snprintf(length, sizeof length, "%zu", body ? evbuffer_get_length(body) : 0);
        evhttp_add_header(fields, "Content-Length", length);
        body = NULL;
    }
    evhttp_send_reply(request, status, NULL, body);
}

void answer_line(struct evhttp_request *request, int status, const char *line)
{
    struct evbuffer *body = evbuffer_new();

    if (body)
        evbuffer_add_printf(body, "%s\n", line);
    answer(request, status, "text/plain; charset=utf-8", body);
    if (body)
        evbuffer_free(body);
}

void answer_problem(struct evhttp_request *request, int status, const char *title, const char *detail)
{
    struct evbuffer *body = evbuffer_new();

    if (status == 503)
        evhttp_add_header(evhttp_request_get_output_headers(request), "Retry-After", "1");
    if (body) {
        evbuffer_add_printf(body, "{\"type\":\"about:blank\",\"title\":");
        json_string(body, slice_of(title));
        evbuffer_add_printf(body, ",\"status\":%d,\"detail\":", status);
        json_string(body, slice_of(detail));
        evbuffer_add_printf(body, "}\n");
    }
    answer(request, status, "application/problem+json", body);
    if (body)
        evbuffer_free(body);
}

bool answer_methods(struct evhttp_request *request, unsigned methods, const char *allow)
{
    if (evhttp_request_get_command(request) & methods)
        return true;
    evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", allow);
    answer_problem(request, 405, "Method Not Allowed", "the Allow field names the methods of this resource");
    return false;
}

void json_string(struct evbuffer *out, struct slice text)
{
    struct evbuffer_iovec room;
    size_t most = 6 * text.n + 2; /* every byte as \u00XX */

    if (evbuffer_reserve_space(out, (ev_ssize_t)most, &room, 1) != 1)
        return;
    struct text t = text_over(room.iov_base, most);
    text_char(&t, '"');
    text_json(&t, text);
    text_char(&t, '"');
    room.iov_len = t.n;
    evbuffer_commit_space(out, &room, 1);
}
