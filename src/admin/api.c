#include "admin/api.h"

#include "admin/answer.h"
#include "admin/policy_api.h"
#include "admin/status_api.h"
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

#define CLIENTS_PATH "/api/v1/clients/"

static struct slice path_of(struct evhttp_request *request)
{
    const char *path = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    return slice_of(path ? path : "");
}

static void client(struct api *api, struct evhttp_request *request)
{
    struct slice path = path_of(request);
    size_t n = strlen(CLIENTS_PATH);

    clients_answer(api->clients, request, (struct slice){path.p + n, path.n - n});
}

static const struct resource {
    const char *path;
    void (*answer)(struct api *api, struct evhttp_request *request);
    const char *below; /* what follows the path; NULL: nothing */
    bool writes;       /* `answer` checks the method; otherwise only GET and HEAD are allowed */
} resources[] = {{.path = "/api/v1/status", .answer = status},
                 {.path = "/api/v1/policy", .answer = policy},
                 {.path = "/api/v1/top", .answer = top},
                 {.path = "/api/v1/events", .answer = events},
                 {.path = "/api/v1/history", .answer = history},
                 {.path = CLIENTS_PATH, .answer = client, .below = "CLIENT", .writes = true}};

void api_list(struct text *out)
{
    for (size_t i = 0; i < COUNT_OF(resources); i++)
        text_printf(out, "%s%s%s", i ? ", " : "", resources[i].path,
                    resources[i].below ? resources[i].below : "");
}

void api_answer(struct api *api, struct evhttp_request *request)
{
    struct slice path = path_of(request);
    char bytes[ADMIN_PATHS_MAX];
    struct text why = text_over(bytes, sizeof bytes - 1);

    for (size_t i = 0; i < COUNT_OF(resources); i++) {
        struct slice name = slice_of(resources[i].path);
        if (resources[i].below ? !slice_starts_with(path, name) : !slice_equal(path, name))
            continue;
        if (resources[i].writes || answer_reads(request))
            resources[i].answer(api, request);
        return;
    }
    text_literal(&why, "the paths are ");
    api_list(&why);
    bytes[why.n] = 0;
    answer_problem(request, 404, "Not Found", bytes);
}
