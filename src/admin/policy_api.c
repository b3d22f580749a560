#include "admin/policy_api.h"

#include <stdlib.h>

#include "admin/answer.h"
#include "base/json_writer.h"
#include "base/memory_stream.h"
#include "config/policy_file.h"
#include "config/yaml_tree.h"

/* --- YAML to JSON ----------------------------------------------------------------------------- */

/* RFC 8259 section 6, integers only: other numbers in a policy have units. */
static bool is_json_integer(struct slice text)
{
    size_t sign = text.n && text.p[0] == '-';

    if (text.n == sign || text.n > sign + 18 || (text.p[sign] == '0' && text.n > sign + 1))
        return false;
    for (size_t i = sign; i < text.n; i++)
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
    return true;
}

static void write_scalar(struct json_writer *json, const struct node *node)
{
    bool is_word =
        slice_equal(node->text, SLICE("true")) || slice_equal(node->text, SLICE("false"));

    if (node->null)
        json_put_null(json, NULL);
    else if (!node->quoted && (is_word || is_json_integer(node->text)))
        json_put_verbatim(json, NULL, node->text);
    else
        json_put_slice(json, NULL, node->text);
}

/* The tree's depth is bounded by TREE_DEPTH_MAX. */
static void write_node(struct json_writer *json, const struct node *node)
{
    if (node->kind == NODE_SCALAR) {
        write_scalar(json, node);
        return;
    }
    bool map = node->kind == NODE_MAP;
    json_begin(json, NULL, map ? '{' : '[');
    for (const struct node *child = node->first; child; child = child->next) {
        if (map)
            json_put_key(json, child->key);
        write_node(json, child);
    }
    json_end(json, map ? '}' : ']');
}

static struct evbuffer *json_of(struct slice yaml)
{
    struct arena arena = {NULL};
    struct report report = {.file = "policy"};
    struct text out;
    struct json_writer json = json_writer_growing(&out);

    write_node(&json, tree_read(&arena, yaml, &report));
    report_forget(&report);
    arena_free(&arena);
    return buffer_of_json(&out);
}

/* --- The answer ------------------------------------------------------------------------------- */

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
    if (!body) {
        answer_problem(request, 500, "Internal Server Error", "no memory");
        return;
    }
    answer(request, 200, json ? "application/json" : "application/yaml", body);
    evbuffer_free(body);
}
