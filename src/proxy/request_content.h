/* request_content.h - JSON in the content of a request, which CONTENT has read (step_content.c). */
#ifndef WEIR_PROXY_REQUEST_CONTENT_H
#define WEIR_PROXY_REQUEST_CONTENT_H

#include "content/json_values.h"
#include "policy/criteria.h"
#include "proxy/exchange_state.h"

/* CONTENT_VALUES: CONTENT has read it, and its values may be read. The content of a gRPC call is
 * not read: its client may wait for responses to its first messages. */
static inline enum content_state request_content_state(const struct exchange *x)
{
    bool empty = x->request.progress == MESSAGE_END && x->request.bytes == 0;

    if (empty || x->downstream->origin->decides)
        return CONTENT_ABSENT;
    if (x->grpc)
        return CONTENT_UNSURE;
    return x->request.inspected ? CONTENT_VALUES : CONTENT_UNREAD;
}

/* Reads the values of `paths` in the content that CONTENT has read, and counts the first result of
 * a request. There
 * are values only with CONTENT_READ. */
enum content_result request_content_read(struct exchange *x, const struct json_paths *paths,
                                         struct json_values *values);

#endif
