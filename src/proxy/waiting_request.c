#include "proxy/waiting_request.h"

#include <stdlib.h>

#include "http/head_copy.h"

struct waiting_request {
    struct head_copy *head;
    struct framing framing;
    struct identity identity;
    struct client_limits found; /* from the database */
    bool has_found;
    size_t memory;    /* bytes of this and of `head` */
    size_t path_size; /* of exchange.path */
    char path[];
};

bool waiting_request_keep(struct exchange *x)
{
    const struct incoming *in = &x->worker->incoming;
    struct buffer_memory *memory = &x->worker->buffers.memory;
    size_t size = sizeof(struct waiting_request) + x->route.path.n;
    struct waiting_request *waiting = memory_has_room(memory) ? malloc(size) : NULL;

    if (!waiting)
        return false;
    if (!(waiting->head = head_copy_new(in->head))) {
        free(waiting);
        return false;
    }
    waiting->memory = size + head_copy_memory(waiting->head);
    memory_take(memory, waiting->memory);
    waiting->framing = in->framing;
    waiting->identity = in->identity;
    if ((waiting->has_found = in->client_limits != NULL))
        waiting->found = in->found;
    waiting->path_size = x->route.path.n;
    if (x->route.path.n)
        memcpy(waiting->path, x->route.path.p, x->route.path.n);
    if (x->waiting)
        waiting_request_free(x);
    x->waiting = waiting;
    waiting_request_restore(x);
    return true;
}

void waiting_request_restore(struct exchange *x)
{
    struct incoming *in = &x->worker->incoming;
    struct waiting_request *waiting = x->waiting;

    in->head = &x->worker->request;
    head_copy_restore(waiting->head, in->head);
    in->framing = waiting->framing;
    in->identity = waiting->identity;
    in->found = waiting->found;
    in->client_limits = waiting->has_found ? &in->found : NULL;
    x->route.path = (struct slice){waiting->path, waiting->path_size};
}

size_t waiting_request_memory(const struct exchange *x)
{
    return x->waiting ? x->waiting->memory : 0;
}

void waiting_request_free(struct exchange *x)
{
    memory_give(&x->worker->buffers.memory, x->waiting->memory);
    head_copy_free(x->waiting->head);
    free(x->waiting);
    x->waiting = NULL;
}
