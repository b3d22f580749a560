#include "admin/admin.h"

#include <stdlib.h>

#include "admin/answer.h"
#include "base/json_writer.h"
#include "base/memory.h"
#include "base/memory_stream.h"
#include "config/policy_file.h"
#include "config/printer.h"

struct conversion {
    struct slice yaml;
    struct arena arena;
    struct report report;
    struct text out;
};

static void convert(void *conversion)
{
    struct conversion *c = conversion;
    struct json_writer json = json_writer_growing(&c->out);

    print_json(&json, tree_read(&c->arena, c->yaml, &c->report));
}

static struct evbuffer *json_of(struct slice yaml)
{
    struct conversion c = {.yaml = yaml, .report.file = "policy"};

    if (!memory_try(convert, &c))
        c.out.failed = true;
    report_forget(&c.report);
    arena_free(&c.arena);
    return buffer_of_json(&c.out);
}

static bool wants_json(struct evhttp_request *request)
{
    const char *accept = evhttp_find_header(evhttp_request_get_input_headers(request), "Accept");
    return accept && strstr(accept, "application/json");
}

void policy_answer(const struct admin_view *view, struct evhttp_request *request)
{
    struct memory_stream out;
    struct evbuffer *body = NULL;
    char *yaml = NULL;
    bool json = wants_json(request);

    if (memory_stream_open(&out)) {
        policy_print(view->policy, out.file);
        yaml = memory_stream_close(&out);
    }
    if (yaml && json)
        body = json_of(slice_of(yaml));
    else if (yaml && (body = evbuffer_new()))
        evbuffer_add(body, yaml, strlen(yaml));
    free(yaml);
    evhttp_add_header(evhttp_request_get_output_headers(request), "Vary", "Accept");
    if (body)
        answer(request, 200, json ? "application/json" : "application/yaml", body);
    else
        answer_problem(request, 500, "no memory");
}
