#include "admin/dashboard.h"

#include <event2/buffer.h>

#include "admin/answer.h"

/* The build writes these from the files (see sources.am). */
static const unsigned char page[] = {
#include "admin/dashboard_html.inc"
};
static const unsigned char script[] = {
#include "admin/dashboard_js.inc"
};
static const unsigned char style[] = {
#include "admin/dashboard_css.inc"
};

/* Scripts, styles and connections only to this listener; nothing inline, no frames, no forms. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

static void send_file(struct evhttp_request *request, const char *type, const void *bytes,
                      size_t size)
{
    struct evkeyvalq *fields = evhttp_request_get_output_headers(request);
    struct evbuffer *body;

    if (!answer_reads(request))
        return;
    if ((body = evbuffer_new()))
        evbuffer_add_reference(body, bytes, size, NULL, NULL);
    evhttp_add_header(fields, "Content-Security-Policy", policy);
    evhttp_add_header(fields, "Referrer-Policy", "no-referrer");
    evhttp_add_header(fields, "Cross-Origin-Resource-Policy", "same-origin");
    answer(request, body ? 200 : 500, type, body);
    if (body)
        evbuffer_free(body);
}

void dashboard_page(struct evhttp_request *request)
{
    send_file(request, "text/html; charset=utf-8", page, sizeof page);
}

void dashboard_script(struct evhttp_request *request)
{
    send_file(request, "text/javascript; charset=utf-8", script, sizeof script);
}

void dashboard_style(struct evhttp_request *request)
{
    send_file(request, "text/css; charset=utf-8", style, sizeof style);
}
