#include "proxy/request_content.h"

static enum content_result read_values(const struct exchange *x, const struct json_paths *paths,
                                       struct json_values *values)
{
    if (x->request.ahead || x->request.progress != MESSAGE_END)
        return CONTENT_TOO_LARGE;
    if (fields_name_coding(&x->worker->incoming.head->fields))
        return CONTENT_COMPRESSED;
    if (!x->request.kept || !json_values_read(values, paths, iobuf_slice(x->request.kept)))
        return CONTENT_INVALID;
    return CONTENT_READ;
}

enum content_result request_content_read(struct exchange *x, const struct json_paths *paths,
                                         struct json_values *values)
{
    json_values_clear(values);
    enum content_result result = read_values(x, paths, values);
    if (!x->request.inspection_counted)
        counter_add(&x->worker->stats.content_inspected[CONTENT_OF_REQUEST][result], 1);
    x->request.inspection_counted = true;
    return result;
}
