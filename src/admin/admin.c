#include "admin/admin.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <stdlib.h>
#include <unistd.h>

#include "admin/metrics.h"

enum { ADMIN_HEAD_MAX = 8192, ADMIN_BODY_MAX = 4096, ADMIN_TIMEOUT_S = 10 };

struct admin {
    struct evhttp *http;
    const struct admin_view *view;
    bool stopping;
};

static void answer(struct evhttp_request *request, int status, const char *type, struct evbuffer *body)
{
    struct evkeyvalq *fields = evhttp_request_get_output_headers(request);
    evhttp_add_header(fields, "Content-Type", type);
    evhttp_add_header(fields, "Cache-Control", "no-store");
    evhttp_add_header(fields, "X-Content-Type-Options", "nosniff");
    evhttp_send_reply(request, status, NULL, body);
}

static void answer_line(struct evhttp_request *request, int status, const char *line)
{
    struct evbuffer *body = evbuffer_new();
    if (body)
        evbuffer_add_printf(body, "%s\n", line);
    answer(request, status, "text/plain; charset=utf-8", body);
    if (body)
        evbuffer_free(body);
}

static void healthz(struct evhttp_request *request, void *arg)
{
    (void)arg;
    answer_line(request, 200, "ok");
}

static unsigned count_of(const struct admin *admin, bool (*ready)(const struct worker *))
{
    unsigned n = 0;
    for (unsigned i = 0; i < admin->view->worker_count; i++)
        n += ready(admin->view->workers[i]);
    return n;
}

/* Some limit in use needs Redis: without it requests would be refused. */
static bool denies_without_redis(const struct policy *policy)
{
    for (unsigned r = 0; r < policy->rule_count; r++)
        for (unsigned l = 0; l < policy->rules[r].limit_count; l++)
            if (policy->rules[r].limits[l]->on_failure == ON_FAILURE_DENY)
                return true;
    return false;
}

/* Why no traffic should come here now; NULL: it should. */
static const char *not_ready(const struct admin *admin)
{
    if (admin->stopping)
        return "stopping";
    if (denies_without_redis(admin->view->policy) && count_of(admin, worker_redis_ready) == 0)
        return "Redis is away and on_failure is deny";
    if (count_of(admin, worker_upstreams_ready) == 0)
        return "no server of an upstream can be reached";
    return NULL;
}

static void readyz(struct evhttp_request *request, void *arg)
{
    const struct admin *admin = arg;
    const char *reason = not_ready(admin);

    if (reason)
        answer_line(request, 503, reason);
    else if (count_of(admin, worker_redis_ready) < admin->view->worker_count &&
             admin->view->policy->limit_count)
        answer_line(request, 200, "ready; Redis is away, on_failure decides");
    else
        answer_line(request, 200, "ready");
}

static void metrics(struct evhttp_request *request, void *arg)
{
    const struct admin *admin = arg;
    struct evbuffer *body = evbuffer_new();

    if (!body) {
        answer_line(request, 500, "no memory");
        return;
    }
    metrics_write(body, admin->view);
    answer(request, 200, "text/plain; version=0.0.4; charset=utf-8", body);
    evbuffer_free(body);
}

static void not_found(struct evhttp_request *request, void *arg)
{
    (void)arg;
    answer_line(request, 404, "not found; there are /healthz, /readyz and /metrics");
}

struct admin *admin_new(struct event_base *base, int fd, const struct admin_view *view)
{
    struct admin *admin = calloc(1, sizeof *admin);

    if (!admin || !(admin->http = evhttp_new(base))) {
        free(admin);
        close(fd);
        return NULL;
    }
    admin->view = view;
    evhttp_set_allowed_methods(admin->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    evhttp_set_max_headers_size(admin->http, ADMIN_HEAD_MAX);
    evhttp_set_max_body_size(admin->http, ADMIN_BODY_MAX);
    evhttp_set_timeout(admin->http, ADMIN_TIMEOUT_S);
    evhttp_set_cb(admin->http, "/healthz", healthz, admin);
    evhttp_set_cb(admin->http, "/readyz", readyz, admin);
    evhttp_set_cb(admin->http, "/metrics", metrics, admin);
    evhttp_set_gencb(admin->http, not_found, admin);
    if (evhttp_accept_socket(admin->http, fd) != 0) {
        close(fd);
        admin_free(admin);
        return NULL;
    }
    return admin;
}

void admin_stopping(struct admin *admin)
{
    if (admin)
        admin->stopping = true;
}

void admin_free(struct admin *admin)
{
    if (!admin)
        return;
    evhttp_free(admin->http);
    free(admin);
}
