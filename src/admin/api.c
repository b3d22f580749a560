#include "admin/api.h"

#include "admin/answer.h"
#include "admin/policy_api.h"
#include "admin/status.h"
#include "admin/top_api.h"

static void status(struct api *api, struct evhttp_request *request)
{
    struct text body;

    status_write(&body, api->view);
    answer_json(request, &body);
}

static void policy(struct api *api, struct evhttp_request *request)
{
    policy_answer(api->view, request);
}

static void top(struct api *api, struct evhttp_request *request)
{
    top_answer(api->view, request);
}

static void events(struct api *api, struct evhttp_request *request)
{
    events_answer(api->events, request);
}

static void history(struct api *api, struct evhttp_request *request)
{
    chart_history_answer(api->history, request);
}

/* Resources that support GET and HEAD. */
static const struct {
    const char *path;
    void (*answer)(struct api *api, struct evhttp_request *request);
} resources[] = {{"/api/v1/status", status},
                 {"/api/v1/policy", policy},
                 {"/api/v1/top", top},
                 {"/api/v1/events", events},
                 {"/api/v1/history", history}};

void api_answer(struct api *api, struct evhttp_request *request)
{
    const char *text = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    struct slice path = slice_of(text ? text : ""), clients = SLICE("/api/v1/clients/");

    if (slice_starts_with(path, clients)) {
        clients_answer(api->clients, request,
                       (struct slice){path.p + clients.n, path.n - clients.n});
        return;
    }
    for (size_t i = 0; i < COUNT_OF(resources); i++)
        if (slice_equal(path, slice_of(resources[i].path))) {
            if (answer_reads(request))
                resources[i].answer(api, request);
            return;
        }
    answer_problem(request, 404, "Not Found",
                   "there are /api/v1/status, /api/v1/policy, /api/v1/top, /api/v1/events, "
                   "/api/v1/history and /api/v1/clients/ID");
}
