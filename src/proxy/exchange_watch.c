#include "proxy/step.h"

#include "base/clock.h"
#include "proxy/exchange.h"
#include "proxy/relay.h"
#include "proxy/send_deadline.h"
#include "proxy/waiting_request.h"

/* Runs the deadline in queue `wanted` (NULL: none). Restarts it if data moved or the queue
 * changed. */
static inline void run_deadline(struct deadline_queue *wanted, struct deadline *deadline,
                                uint64_t after_us, bool moved)
{
    if (!wanted)
        deadline_cancel(deadline);
    else if (moved || deadline->queue != wanted)
        deadline_arm(wanted, deadline, clock_cached_us(), after_us);
}

void exchange_watch(struct exchange *x, bool client_moved, bool link_moved)
{
    struct worker *w = x->worker;
    bool to_client = x->downstream->pending,
         to_server = x->upstream.link && x->upstream.link->pending;
    bool content = x->upstream.link && x->request.progress != MESSAGE_END && !x->upstream.broken &&
                   !to_server && !exchange_awaits_continue(x);

    x->request.extended &= !client_moved;
    x->upstream.extended &= !link_moved;
    if (to_client)
        send_deadline_run(x, client_moved);
    else
        run_deadline(content ? &w->queue.content : NULL, &x->client_deadline,
                     x->policy->timeouts.request_body_us, client_moved);
    if (x->upstream.link)
        run_deadline(to_server || (!to_client && !content) ? &w->upstream.queue.response : NULL,
                     &x->upstream.link->deadline, x->route.rule->upstream->response_timeout_us,
                     link_moved);
}

bool exchange_awaits_continue(const struct exchange *x)
{
    return x->request.continuation == CONTINUE_EXPECTED && x->request.progress != MESSAGE_END &&
           x->request.bytes == 0;
}

/* Deadlines other than those of sending are restarted when data moves. */
uint64_t exchange_still_us(const struct exchange *x, uint64_t now_us)
{
    const struct deadline *client = &x->client_deadline;
    uint64_t since_us = x->record.started_us;

    if (client->queue == &x->worker->queue.write || client->queue == &x->worker->queue.reply)
        since_us = x->send.kept_us;
    else if (client->queue == &x->worker->queue.content)
        since_us = client->at_us - x->policy->timeouts.request_body_us;
    else if (client->queue == &x->worker->queue.tunnel)
        since_us = client->at_us - x->policy->timeouts.tunnel_us;
    else if (x->upstream.link &&
             x->upstream.link->deadline.queue == &x->worker->upstream.queue.response)
        since_us = x->upstream.link->deadline.at_us - x->route.rule->upstream->response_timeout_us;
    return since_us < now_us ? now_us - since_us : 0;
}

size_t exchange_memory(const struct exchange *x)
{
    return iobuf_memory(x->request.kept) + iobuf_memory(x->request.ahead) +
           iobuf_memory(x->request.head) + iobuf_memory(x->record.log) + waiting_request_memory(x) +
           (x->upstream.link ? x->upstream.link->ops->memory(x->upstream.link) : 0);
}
