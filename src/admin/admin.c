#include "admin/admin.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <stdlib.h>

#include "admin/access.h"
#include "admin/admin_socket.h"
#include "admin/answer.h"
#include "admin/chart_history.h"
#include "admin/clients_api.h"
#include "admin/connections.h"
#include "admin/events.h"
#include "admin/problems.h"
#include "admin/status_api.h"
#include "admin/top_api.h"

enum { PATHS_MAX = 1024 }; /* bytes of the paths that a 404 lists, and its other words */

struct admin {
    struct event_base *base;
    struct admin_view *view;
    unsigned socket_count;
    struct admin_socket *sockets[]; /* by admin listener */
};

/* --- Answers ---------------------------------------------------------------------------------- */

static void healthz(const struct admin_view *view, struct evhttp_request *request)
{
    (void)view;
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
static void readyz(const struct admin_view *view, struct evhttp_request *request)
{
    char bytes[PROBLEM_TEXT_MAX + 16];
    struct text line = text_over(bytes, sizeof bytes - 1);
    unsigned i = 0;

    text_literal(&line, "ready; ");
    while (i < PROBLEM_COUNT && !problem_exists(view, i, &line))
        i++;
    if (i == PROBLEM_COUNT && is_in_slow_start(view))
        text_literal(&line, "Redis is available again, in slow start");
    bytes[line.n] = 0;
    if (i < PROBLEM_COUNT && problem_is_unready(i))
        answer_line(request, 503, bytes + strlen("ready; "));
    else
        answer_line(request, 200, line.n > strlen("ready; ") ? bytes : "ready");
}

static void metrics(const struct admin_view *view, struct evhttp_request *request)
{
    struct evbuffer *body = evbuffer_new();

    if (!body) {
        answer_line(request, 500, "no memory");
        return;
    }
    metrics_write(body, view);
    answer(request, 200, "text/plain; version=0.0.4; charset=utf-8", body);
}

/* --- Paths ------------------------------------------------------------------------------------ */

#define API_PATH "/api/"

static const struct resource {
    const char *path;
    void (*answer)(const struct admin_view *view, struct evhttp_request *request);
    const char *below; /* what follows the path; NULL: nothing */
    unsigned access;   /* ACCESS_* */
    bool writes;       /* `answer` checks the method; otherwise only GET and HEAD are allowed */
} resources[] = {
    {"/healthz", healthz, .access = ACCESS_PUBLIC | ACCESS_READ_ONLY},
    {"/readyz", readyz, .access = ACCESS_PUBLIC | ACCESS_READ_ONLY},
    {"/metrics", metrics, .access = ACCESS_READ_ONLY},
    {API_PATH "v1/status", status_answer, .access = 0},
    {API_PATH "v1/policy", policy_answer, .access = 0},
    {API_PATH "v1/top", top_answer, .access = 0},
    {API_PATH "v1/events", events_answer, .access = 0},
    {API_PATH "v1/history", chart_history_answer, .access = 0},
    {CLIENTS_PATH, clients_answer, .below = "CLIENT", .writes = true},
    {"/", dashboard_answer, .access = ACCESS_PUBLIC},
    {"/dashboard.js", dashboard_answer, .access = ACCESS_PUBLIC},
    {"/dashboard.css", dashboard_answer, .access = ACCESS_PUBLIC},
};

/* Lists the paths that begin with `start`. */
static void list_paths(struct text *out, struct slice start)
{
    const char *separator = "";

    for (size_t i = 0; i < COUNT_OF(resources); i++)
        if (slice_starts_with(slice_of(resources[i].path), start)) {
            text_printf(out, "%s%s%s", separator, resources[i].path,
                        resources[i].below ? resources[i].below : "");
            separator = ", ";
        }
}

static void not_found(struct evhttp_request *request, bool is_api)
{
    char bytes[PATHS_MAX];
    struct text line = text_over(bytes, sizeof bytes - 1);

    text_put(&line, is_api ? SLICE("the paths are ") : SLICE("not found; the paths are "));
    list_paths(&line, is_api ? SLICE(API_PATH) : SLICE("/"));
    bytes[line.n] = 0;
    if (is_api)
        answer_problem(request, 404, bytes);
    else
        answer_line(request, 404, bytes);
}

static const struct resource *resource_at(struct slice path)
{
    for (size_t i = 0; i < COUNT_OF(resources); i++) {
        struct slice name = slice_of(resources[i].path);
        if (resources[i].below ? slice_starts_with(path, name) : slice_equal(path, name))
            return &resources[i];
    }
    return NULL;
}

static void on_request(void *context, unsigned index, struct evhttp_request *request)
{
    const struct admin_view *view = ((const struct admin *)context)->view;
    struct slice path = request_path(request);
    const struct resource *resource = resource_at(path);

    if (!access_is_allowed(&view->policy->admin[index], resource ? resource->access : 0, request))
        return;
    if (!resource)
        not_found(request, slice_starts_with(path, SLICE(API_PATH)));
    else if (resource->writes || answer_reads(request))
        resource->answer(view, request);
}

/* --- Creation and destruction ----------------------------------------------------------------- */

struct admin *admin_new(struct event_base *base, int *fds, struct admin_view *view)
{
    unsigned count = view->policy->admin_count;
    struct admin *admin = calloc(1, sizeof *admin + count * sizeof *admin->sockets);

    if (!admin)
        return NULL;
    admin->base = base;
    admin->view = view;
    if (!connections_start(base) || !(view->clients = clients_api_new(base, view->policy)) ||
        !(view->events = events_new(base, view)) ||
        !(view->history = chart_history_new(base, view))) {
        admin_free(admin);
        return NULL;
    }
    for (; admin->socket_count < count; admin->socket_count++) {
        unsigned i = admin->socket_count;
        if (!(admin->sockets[i] = admin_socket_new(base, fds[i], view, i, on_request, admin))) {
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
    clients_api_reload(admin->view->clients, admin->view->policy);
    events_reload(admin->view->events);
}

void admin_free(struct admin *admin)
{
    if (!admin)
        return;
    if (admin->socket_count) {
        events_reload(admin->view->events); /* these responses have no end */
        connections_finish(admin->base);
    }
    clients_api_free(admin->view->clients); /* before evhttp frees the pending requests */
    events_free(admin->view->events);
    chart_history_free(admin->view->history);
    for (unsigned i = 0; i < admin->socket_count; i++)
        admin_socket_free(admin->sockets[i]);
    connections_stop();
    free(admin);
}
