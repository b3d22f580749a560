#include "admin/admin.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <stdlib.h>

#include "admin/access.h"
#include "admin/answer.h"
#include "admin/api.h"
#include "admin/bound.h"
#include "admin/dashboard.h"
#include "admin/problems.h"

struct admin {
    const struct admin_view *view;
    struct api api;
    unsigned bound_count;
    struct admin_bound *bound[]; /* by admin listener */
};

static void healthz(struct admin *admin, struct evhttp_request *request)
{
    (void)admin;
    if (answer_reads(request))
        answer_line(request, 200, "ok");
}

static bool is_in_slow_start(const struct admin_view *view)
{
    unsigned n = 0;

    for (unsigned i = 0; i < view->worker_count; i++)
        n += worker_redis_breaker(view->workers[i]) == REDIS_BREAKER_HALF_OPEN;
    return n && policy_needs_redis(view->policy);
}

/* Names the first problem; those that keep traffic away stand first. */
static void readyz(struct admin *admin, struct evhttp_request *request)
{
    char bytes[PROBLEM_TEXT_MAX + 16];
    struct text line = text_over(bytes, sizeof bytes - 1);
    unsigned i = 0;

    if (!answer_reads(request))
        return;
    text_literal(&line, "ready; ");
    while (i < PROBLEM_COUNT && !problem_exists(admin->view, i, &line))
        i++;
    if (i == PROBLEM_COUNT && is_in_slow_start(admin->view))
        text_literal(&line, "Redis is available again, in slow start");
    bytes[line.n] = 0;
    if (i < PROBLEM_COUNT && problem_is_unready(i))
        answer_line(request, 503, bytes + strlen("ready; "));
    else
        answer_line(request, 200, line.n > strlen("ready; ") ? bytes : "ready");
}

static void metrics(struct admin *admin, struct evhttp_request *request)
{
    if (!answer_reads(request))
        return;
    struct evbuffer *body = evbuffer_new();
    if (!body) {
        answer_line(request, 500, "no memory");
        return;
    }
    metrics_write(body, admin->view);
    answer(request, 200, "text/plain; version=0.0.4; charset=utf-8", body);
    evbuffer_free(body);
}

static void api(struct admin *admin, struct evhttp_request *request)
{
    api_answer(&admin->api, request);
}

static void page(struct admin *admin, struct evhttp_request *request)
{
    (void)admin;
    dashboard_page(request);
}

static void script(struct admin *admin, struct evhttp_request *request)
{
    (void)admin;
    dashboard_script(request);
}

static void stylesheet(struct admin *admin, struct evhttp_request *request)
{
    (void)admin;
    dashboard_style(request);
}

/* The first match is used. A path that ends with "/" matches all that start with it, except "/". */
static const struct resource {
    const char *path;
    unsigned access; /* ACCESS_* */
    void (*answer)(struct admin *admin, struct evhttp_request *request);
} resources[] = {
    {"/healthz", ACCESS_PUBLIC | ACCESS_READ_ONLY, healthz},
    {"/readyz", ACCESS_PUBLIC | ACCESS_READ_ONLY, readyz},
    {"/metrics", ACCESS_READ_ONLY, metrics},
    {"/api/", 0, api},
    {"/", ACCESS_PUBLIC, page},
    {"/dashboard.js", ACCESS_PUBLIC, script},
    {"/dashboard.css", ACCESS_PUBLIC, stylesheet},
};

static void not_found(struct admin *admin, struct evhttp_request *request)
{
    char bytes[ADMIN_PATHS_MAX];
    struct text line = text_over(bytes, sizeof bytes - 1);

    (void)admin;
    text_literal(&line, "not found; the paths are ");
    for (size_t i = 0; i < COUNT_OF(resources); i++) {
        if (i)
            text_literal(&line, ", ");
        if (resources[i].answer == api)
            api_list(&line);
        else
            text_put(&line, slice_of(resources[i].path));
    }
    bytes[line.n] = 0;
    answer_line(request, 404, bytes);
}

static const struct resource *resource_at(struct evhttp_request *request)
{
    static const struct resource none = {"", 0, not_found};
    const char *text = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    struct slice path = slice_of(text ? text : "");

    for (size_t i = 0; i < COUNT_OF(resources); i++) {
        struct slice name = slice_of(resources[i].path);
        bool all = name.n > 1 && name.p[name.n - 1] == '/';
        if (all ? slice_starts_with(path, name) : slice_equal(path, name))
            return &resources[i];
    }
    return &none;
}

static void on_request(void *context, unsigned index, struct evhttp_request *request)
{
    struct admin *admin = context;
    const struct resource *resource = resource_at(request);

    if (access_is_allowed(&admin->view->policy->admin[index], resource->access, request))
        resource->answer(admin, request);
}

struct admin *admin_new(struct event_base *base, int *fds, const struct admin_view *view)
{
    unsigned count = view->policy->admin_count;
    struct admin *admin = calloc(1, sizeof *admin + count * sizeof *admin->bound);

    if (!admin)
        return NULL;
    admin->view = admin->api.view = view;
    if (!(admin->api.clients = clients_api_new(base, view->policy)) ||
        !(admin->api.events = events_new(base, view)) ||
        !(admin->api.history = chart_history_new(base, view))) {
        admin_free(admin);
        return NULL;
    }
    for (; admin->bound_count < count; admin->bound_count++) {
        unsigned i = admin->bound_count;
        if (!(admin->bound[i] = admin_bound_new(base, fds[i], view, i, on_request, admin))) {
            admin_free(admin);
            return NULL;
        }
        fds[i] = -1;
    }
    return admin;
}

void admin_reload(struct admin *admin)
{
    if (!admin)
        return;
    clients_api_reload(admin->api.clients, admin->view->policy);
    events_reload(admin->api.events);
}

void admin_free(struct admin *admin)
{
    if (!admin)
        return;
    clients_api_free(admin->api.clients); /* before evhttp frees the pending requests */
    events_free(admin->api.events);
    chart_history_free(admin->api.history);
    for (unsigned i = 0; i < admin->bound_count; i++)
        admin_bound_free(admin->bound[i]);
    free(admin);
}
