#include "admin/answer.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/json_writer.h"
#include "http/rewrite.h"

struct slice request_path(const struct evhttp_request *request)
{
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    return slice_of(path ? path : "");
}

void answer(struct evhttp_request *request, int status, const char *type, struct evbuffer *body)
{
    struct evkeyvalq *fields = evhttp_request_get_output_headers(request);
    bool is_head = evhttp_request_get_command(request) == EVHTTP_REQ_HEAD;

    evhttp_add_header(fields, "Content-Type", type);
    evhttp_add_header(fields, "Cache-Control", "no-store");
    evhttp_add_header(fields, "X-Content-Type-Options", "nosniff");
    if (is_head) {
        char length[24]; /* evhttp would send the content as well */
        snprintf(length, sizeof length, "%zu", body ? evbuffer_get_length(body) : 0);
        evhttp_add_header(fields, "Content-Length", length);
    }
    evhttp_send_reply(request, status, NULL, is_head ? NULL : body);
    if (body)
        evbuffer_free(body);
}

struct evbuffer *buffer_of_json(struct text *json)
{
    struct evbuffer *buffer = json->failed ? NULL : evbuffer_new();

    if (buffer) {
        evbuffer_add(buffer, json->p, json->n);
        evbuffer_add(buffer, "\n", 1);
    }
    free(json->p);
    return buffer;
}

void answer_line(struct evhttp_request *request, int status, const char *line)
{
    struct evbuffer *body = evbuffer_new();

    if (body)
        evbuffer_add_printf(body, "%s\n", line);
    answer(request, status, "text/plain; charset=utf-8", body);
}

void answer_problem(struct evhttp_request *request, int status, const char *detail)
{
    struct text text;
    struct json_writer json = json_writer_growing(&text);

    if (status == 503)
        evhttp_add_header(evhttp_request_get_output_headers(request), "Retry-After", "1");
    json_begin(&json, NULL, '{');
    json_put_text(&json, "type", "about:blank");
    json_put_text(&json, "title", reason_phrase((unsigned)status));
    json_put_i64(&json, "status", status);
    json_put_text(&json, "detail", detail);
    json_end(&json, '}');
    answer(request, status, "application/problem+json", buffer_of_json(&text));
}

void answer_json(struct evhttp_request *request, struct text *json)
{
    struct evbuffer *body = buffer_of_json(json);

    if (body)
        answer(request, 200, "application/json", body);
    else
        answer_problem(request, 500, "no memory");
}

bool answer_methods(struct evhttp_request *request, unsigned methods, const char *allow)
{
    if (evhttp_request_get_command(request) & methods)
        return true;
    evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", allow);
    answer_problem(request, 405, "the Allow field lists the methods of this resource");
    return false;
}
