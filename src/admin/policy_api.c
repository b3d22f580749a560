#include "admin/policy_api.h"

#include <stdlib.h>

#include "admin/answer.h"
#include "base/json_writer.h"
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

static void write_scalar(struct json_writer *json, const char *key, const struct node *node)
{
    bool is_word =
        slice_equal(node->text, SLICE("true")) || slice_equal(node->text, SLICE("false"));

    if (node->null)
        json_put_null(json, key);
    else if (!node->quoted && (is_word || is_json_integer(node->text)))
        json_put_verbatim(json, key, node->text);
    else
        json_put_slice(json, key, node->text);
}

/* The tree's depth is bounded by TREE_DEPTH_MAX. */
static void write_node(struct json_writer *json, const char *key, const struct node *node)
{
    if (node->kind == NODE_SCALAR) {
        write_scalar(json, key, node);
        return;
    }
    bool map = node->kind == NODE_MAP;
    json_begin(json, key, map ? '{' : '[');
    for (const struct node *child = node->first; child; child = child->next)
        write_node(json, map ? child->key.p : NULL, child);
    json_end(json, map ? '}' : ']');
}

static void write_json(struct evbuffer *out, struct slice yaml)
{
    struct arena arena = {NULL};
    struct report report = {.file = "policy"};
    struct json_writer json = json_writer_over(out);

    write_node(&json, NULL, tree_read(&arena, yaml, &report));
    evbuffer_add(out, "\n", 1);
    report_forget(&report);
    arena_free(&arena);
}

/* --- The answer ------------------------------------------------------------------------------- */

static bool wants_json(struct evhttp_request *request)
{
    const char *accept = evhttp_find_header(evhttp_request_get_input_headers(request), "Accept");
    return accept && strstr(accept, "application/json");
}

void policy_answer(const struct admin_view *view, struct evhttp_request *request)
{
    struct evbuffer *body = evbuffer_new();
    char *text = NULL;
    size_t size = 0;
    FILE *out = body ? open_memstream(&text, &size) : NULL;
    bool json = wants_json(request);

    if (out) {
        policy_print(view->policy, out);
        fclose(out);
    }
    if (text && json)
        write_json(body, (struct slice){text, size});
    else if (text)
        evbuffer_add(body, text, size);
    evhttp_add_header(evhttp_request_get_output_headers(request), "Vary", "Accept");
    if (body && evbuffer_get_length(body))
        answer(request, 200, json ? "application/json" : "application/yaml", body);
    else
        answer_problem(request, 500, "Internal Server Error", "no memory");
    free(text);
    if (body)
        evbuffer_free(body);
}
