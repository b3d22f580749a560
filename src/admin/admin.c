#include "admin/admin.h"

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <stdlib.h>
#include <unistd.h>

#include "admin/answer.h"
#include "admin/api.h"
#include "admin/origin.h"
#include "base/descriptors.h"

enum { ADMIN_HEAD_MAX = 8192, ADMIN_BODY_MAX = 4096, ADMIN_TIMEOUT_S = 10 };

struct admin {
    struct evhttp *http;
    const struct admin_view *view;
    struct clients_api *clients;
    bool stopping;
    struct evconnlistener *listener; /* owned by evhttp */
    struct event *pause;
};

enum {
    METHODS = EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE |
              EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE | EVHTTP_REQ_PATCH /* each resource checks its methods */
};

/* Every resource calls this first. False: a response was sent. */
static bool may_ask(const struct admin *admin, struct evhttp_request *request)
{
    return origin_is_ours(&admin->view->policy->admin, request);
}

static void healthz(struct evhttp_request *request, void *arg)
{
    if (may_ask(arg, request) && answer_reads(request))
        answer_line(request, 200, "ok");
}

static unsigned count_of(const struct admin *admin, bool (*ready)(const struct worker *))
{
    unsigned n = 0;
    for (unsigned i = 0; i < admin->view->worker_count; i++)
        n += ready(admin->view->workers[i]);
    return n;
}

/* Returns true if a limit in use rejects requests when Redis is down. */
static bool denies_without_redis(const struct policy *policy)
{
    for (unsigned r = 0; r < policy->rule_count; r++)
        for (unsigned l = 0; l < policy->rules[r].limit_count; l++)
            if (policy->rules[r].limits[l]->on_failure == ON_FAILURE_DENY)
                return true;
    return false;
}

/* Returns why weir should get no traffic now; NULL: it should. */
static const char *not_ready(const struct admin *admin)
{
    if (admin->stopping)
        return "stopping";
    if (denies_without_redis(admin->view->policy) &&
        count_of(admin, worker_redis_away) == admin->view->worker_count)
        return "Redis is away and on_failure is deny";
    if (count_of(admin, worker_upstreams_ready) == 0)
        return "no server of an upstream can be reached; /api/v1/status names it";
    return NULL;
}

static bool asks_with_care(const struct worker *worker)
{
    return worker_redis_breaker(worker) == REDIS_BREAKER_HALF_OPEN;
}

static void readyz(struct evhttp_request *request, void *arg)
{
    const struct admin *admin = arg;
    const char *reason = not_ready(admin);

    if (!may_ask(admin, request) || !answer_reads(request))
        return;
    if (reason)
        answer_line(request, 503, reason);
    else if (count_of(admin, worker_redis_ready) < admin->view->worker_count &&
             policy_needs_redis(admin->view->policy))
        answer_line(request, 200,
                    count_of(admin, worker_redis_away)
                        ? "ready; Redis is away, on_failure decides"
                        : "ready; a part of Redis is away, where on_failure decides");
    else if (count_of(admin, asks_with_care) && policy_needs_redis(admin->view->policy))
        answer_line(request, 200, "ready; Redis has just come back, and is asked with few calls at once");
    else
        answer_line(request, 200, "ready");
}

static void metrics(struct evhttp_request *request, void *arg)
{
    const struct admin *admin = arg;

    if (!may_ask(admin, request) || !answer_reads(request))
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

static void others(struct evhttp_request *request, void *arg)
{
    const struct admin *admin = arg;
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));

    if (!may_ask(admin, request))
        return;
    if (path && strncmp(path, "/api/", 5) == 0)
        api_answer(admin->view, admin->stopping, admin->clients, request);
    else
        answer_line(request, 404,
                    "not found; there are /healthz, /readyz, /metrics, /api/v1/status, /api/v1/policy and "
                    "/api/v1/clients/CLIENT");
}

/* --- Out of file descriptors ------------------------------------------------------------------ */

/* One per process. A global, because evhttp owns the argument of the listener's callbacks. */
static struct admin *accepting;

static void pause_for_a_while(struct admin *admin)
{
    static const struct timeval a_while = {0, 100000};
    evtimer_add(admin->pause, &a_while);
}

/* With a reserve descriptor the listener retries at once. Without one it pauses, to avoid a busy
 * loop. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    int error = EVUTIL_SOCKET_ERROR();
    (void)arg;

    if (descriptors_lack(error) && descriptors_give(DESCRIPTOR_FOR_MAIN, error))
        return;
    evconnlistener_disable(listener);
    pause_for_a_while(accepting);
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
    struct admin *admin = arg;
    (void)fd, (void)what;

    evconnlistener_enable(admin->listener);
}

static bool start_to_accept(struct admin *admin, struct event_base *base, int fd)
{
    struct evhttp_bound_socket *bound = evhttp_accept_socket_with_handle(admin->http, fd);

    if (!bound)
        return false;
    admin->listener = evhttp_bound_socket_get_listener(bound);
    admin->pause = evtimer_new(base, on_pause_over, admin);
    accepting = admin;
    if (admin->pause)
        evconnlistener_set_error_cb(admin->listener, on_accept_error);
    return true;
}

struct admin *admin_new(struct event_base *base, int fd, const struct admin_view *view)
{
    struct admin *admin = calloc(1, sizeof *admin);

    if (!admin || !(admin->http = evhttp_new(base)) ||
        !(admin->clients = clients_api_new(base, view->policy))) {
        admin_free(admin);
        close(fd);
        return NULL;
    }
    admin->view = view;
    evhttp_set_allowed_methods(admin->http, METHODS);
    evhttp_set_max_headers_size(admin->http, ADMIN_HEAD_MAX);
    evhttp_set_max_body_size(admin->http, ADMIN_BODY_MAX);
    evhttp_set_timeout(admin->http, ADMIN_TIMEOUT_S);
    evhttp_set_cb(admin->http, "/healthz", healthz, admin);
    evhttp_set_cb(admin->http, "/readyz", readyz, admin);
    evhttp_set_cb(admin->http, "/metrics", metrics, admin);
    evhttp_set_gencb(admin->http, others, admin);
    if (!start_to_accept(admin, base, fd)) {
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

void admin_reload(struct admin *admin)
{
    if (admin)
        clients_api_reload(admin->clients, admin->view->policy);
}

void admin_free(struct admin *admin)
{
    if (!admin)
        return;
    clients_api_free(admin->clients); /* before evhttp frees the pending requests */
    if (admin->pause)
        event_free(admin->pause);
    if (admin->http)
        evhttp_free(admin->http);
    free(admin);
}
