/* service_reply.c - the responses to gRPC calls. */
#include "http/rewrite.h"
#include "proxy/service_internal.h"

struct fields *service_trailers(struct exchange *x, enum grpc_code status)
{
    struct fields *trailers = &x->worker->trailers;

    trailers->count = 1;
    trailers->present = trailers->repeated = 0;
    trailers->at[0] = (struct field){.name = SLICE("grpc-status"),
                                     .value = status == GRPC_OK ? SLICE("0") : SLICE("14")};
    x->record.grpc_status = (int)status;
    return trailers;
}

enum downstream_sent service_send_message(struct exchange *x, struct slice frame, bool last)
{
    struct downstream *d = x->downstream;
    char bytes[128];
    struct text lines = text_over(bytes, sizeof bytes);
    struct iovec content = iovec_of(frame);

    text_literal(&lines, "Content-Type: application/grpc\r\nDate: ");
    text_put(&lines, worker_date(x->worker));
    text_literal(&lines, "\r\n");
    struct response response = {.status = 200,
                                .lines = text_slice(&lines),
                                .body = BODY_UNKNOWN,
                                .own = true,
                                .trailers = last ? service_trailers(x, GRPC_OK) : NULL};
    x->record.reply_bytes = frame.n;
    return d->ops->send_head(d, &response, &content, 1, last);
}
