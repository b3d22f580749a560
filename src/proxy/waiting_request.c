#include "proxy/waiting_request.h"

#include <stdlib.h>

#include "http/head_copy.h"

struct waiting_request {
    struct head_copy *head;
    struct framing framing;
    struct identity identity;
    struct client_limits found; /* from the database */
    bool has_found;
    size_t path_size; /* of exchange.path */
    char path[];
};

bool waiting_request_keep(struct exchange *x)
{
    const struct incoming *in = &x->worker->incoming;
    struct waiting_request *waiting = malloc(sizeof *waiting + x->route.path.n);

    if (!waiting)
        return false;
    if (!(waiting->head = head_copy_new(in->head))) {
        free(waiting);
        return false;
    }
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

void waiting_request_free(struct exchange *x)
{
    head_copy_free(x->waiting->head);
    free(x->waiting);
    x->waiting = NULL;
}
