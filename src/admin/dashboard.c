#include "admin/admin.h"

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

static const struct {
    const char *path, *type;
    const void *bytes;
    size_t size;
} files[] = {{"/", "text/html; charset=utf-8", page, sizeof page},
             {"/dashboard.js", "text/javascript; charset=utf-8", script, sizeof script},
             {"/dashboard.css", "text/css; charset=utf-8", style, sizeof style}};

void dashboard_answer(const struct admin_view *view, struct evhttp_request *request)
{
    struct evkeyvalq *fields = evhttp_request_get_output_headers(request);
    struct evbuffer *body = evbuffer_new();
    size_t i = COUNT_OF(files) - 1;

    (void)view;
    while (i && !slice_equal(request_path(request), slice_of(files[i].path)))
        i--;
    if (body)
        evbuffer_add_reference(body, files[i].bytes, files[i].size, NULL, NULL);
    evhttp_add_header(fields, "Content-Security-Policy", policy);
    evhttp_add_header(fields, "Referrer-Policy", "no-referrer");
    evhttp_add_header(fields, "Cross-Origin-Resource-Policy", "same-origin");
    answer(request, body ? 200 : 500, files[i].type, body);
}
