/* server_end.c - when a server that has left its pool is freed. */
#include <stdlib.h>

#include "upstream/upstream_internal.h"

void server_free(struct server *server)
{
    server_forget_ejection(server);
    deadline_cancel(&server->probe);
    tls_resumption_clear(&server->resumption);
    endpoint_drop(server->endpoint);
    free(server);
}

void server_free_if_unused(struct server *server)
{
    if (!server->gone || server->outstanding || server->pooled_count || server->http2.count)
        return;
    TAILQ_REMOVE(&server->pool->leaving, server, link);
    TAILQ_INSERT_TAIL(&server->pool->pools->worker->unused_servers, server, link);
}

void servers_free_unused(struct upstream_worker *w)
{
    for (struct server *server; (server = TAILQ_FIRST(&w->unused_servers));) {
        TAILQ_REMOVE(&w->unused_servers, server, link);
        server_free(server);
    }
}
