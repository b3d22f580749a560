#include "admin/top_api.h"

#include <event2/keyvalq_struct.h>
#include <stdlib.h>

#include "admin/answer.h"
#include "base/text.h"
#include "policy/identity.h"

unsigned top_read(const struct admin_view *view, enum top_by by, struct top_entry *entries,
                  unsigned n, double *seconds)
{
    const struct top_clients **tops = calloc(view->worker_count, sizeof *tops);
    unsigned count = 0;

    *seconds = 0;
    for (unsigned w = 0; tops && w < view->worker_count; w++)
        tops[w] = worker_top_clients(view->workers[w]);
    if (tops)
        count = top_clients_read(tops, view->worker_count, by, entries, n, seconds);
    free(tops);
    return count;
}

void top_write(struct json_writer *json, const char *key, const struct admin_view *view,
               enum top_by by, unsigned n, double *seconds)
{
    struct top_entry *entries = calloc(n, sizeof *entries);
    unsigned count = entries ? top_read(view, by, entries, n, seconds) : 0;

    json_begin(json, key, '[');
    for (unsigned i = 0; i < count; i++) {
        char bytes[IDENTITY_TEXT_MAX + 8];
        struct text name = text_over(bytes, sizeof bytes);
        identity_write_full_name(&name, (struct slice){entries[i].key, entries[i].size});
        json_begin(json, NULL, '{');
        json_put_slice(json, "client", text_slice(&name));
        json_put_u64(json, "at_least", entries[i].at_least);
        json_put_u64(json, "at_most", entries[i].at_most);
        json_end(json, '}');
    }
    json_end(json, ']');
    free(entries);
}

/* False: none of the words. */
static bool read_by(const char *text, enum top_by *by)
{
    for (unsigned i = 0; i < TOP_BY_COUNT; i++)
        if (strcmp(text, top_by_label[i]) == 0) {
            *by = i;
            return true;
        }
    return false;
}

static bool read_n(const char *text, unsigned *n)
{
    char *end;
    unsigned long value = text[0] >= '0' && text[0] <= '9' ? strtoul(text, &end, 10) : 0;

    *n = (unsigned)value;
    return value >= 1 && value <= TOP_CLIENTS_MAX && !*end;
}

/* False: a response was sent. */
static bool read_top_query(struct evhttp_request *request, enum top_by *by, unsigned *n)
{
    const char *query = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
    struct evkeyvalq fields = {0};
    const char *wrong = NULL;

    if (evhttp_parse_query_str(query ? query : "", &fields) != 0)
        wrong = "the query is malformed";
    else {
        const char *by_text = evhttp_find_header(&fields, "by"),
                   *n_text = evhttp_find_header(&fields, "n");
        if (by_text && !read_by(by_text, by))
            wrong = "by: expected allowed, limited or cost";
        else if (n_text && !read_n(n_text, n))
            wrong = "n: expected 1 to 100";
        evhttp_clear_headers(&fields);
    }
    if (wrong)
        answer_problem(request, 400, wrong);
    return !wrong;
}

void top_answer(const struct admin_view *view, struct evhttp_request *request)
{
    enum top_by by = TOP_BY_ALLOWED;
    unsigned n = TOP_CLIENTS_DEFAULT;
    double seconds = 0;

    if (!read_top_query(request, &by, &n))
        return;
    struct text body;
    struct json_writer json = json_writer_growing(&body);
    json_begin(&json, NULL, '{');
    json_put_text(&json, "by", top_by_label[by]);
    top_write(&json, "clients", view, by, n, &seconds);
    json_put_number(&json, "seconds", seconds);
    json_end(&json, '}');
    answer_json(request, &body);
}
