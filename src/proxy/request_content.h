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
    return x->request.inspection != INSPECTION_NONE ? CONTENT_VALUES : CONTENT_UNREAD;
}

/* Returns whether CONTENT has read all of the content. */
static inline bool request_content_is_whole(const struct exchange *x)
{
    return !x->request.ahead && x->request.progress == MESSAGE_END;
}

static inline struct slice request_content_kept(const struct exchange *x)
{
    return x->request.kept ? iobuf_slice(x->request.kept) : SLICE_NONE;
}

/* Returns CONTENT_READ unless the header fields of a request lead servers to another reading of its
 * content than that of weir: CONTENT_COMPRESSED, or CONTENT_INVALID by Content-Type. */
enum content_result request_content_is_plain(const struct fields *fields, struct slice content);

/* Reads the values of `paths` in whole content. If only the Content-Type makes it CONTENT_INVALID,
 * there are doubtful values, for costs and keys: else a Content-Type would spare a client the cost
 * that its content states. `paths` and `content` must outlive `values`. */
enum content_result request_content_values(const struct fields *fields, struct slice content,
                                           const struct json_paths *paths,
                                           struct json_values *values);

/* The same for the content that CONTENT has read. Counts the first result of a request. */
enum content_result request_content_read(struct exchange *x, const struct json_paths *paths,
                                         struct json_values *values);

/* Returns why a request is rejected whose rule depends on content that was read with `result`, and
 * sets the detail `*why`. */
enum cause request_content_refusal(enum content_result result, const char **why);

#endif
