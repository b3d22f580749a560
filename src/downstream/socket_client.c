#include "downstream/socket_client.h"

#include "net/tls.h"

void socket_client_use(struct socket_client *c, const struct socket_protocol *protocol)
{
    c->protocol = protocol;
    c->client.protocol = &protocol->client;
}

/* An event may be queued when the connection is closed. */
static void on_client_readable(evutil_socket_t fd, short what, void *arg)
{
    struct socket_client *c = arg;
    (void)fd;

    MAGIC_CHECK(&c->client, CLIENT_MAGIC);
    if (c->client.state == CLIENT_CLOSED)
        return;
    if (c->client.silent)
        client_speaks(&c->client);
    c->protocol->readable(c, what & EV_CLOSED);
}

static void on_client_writable(evutil_socket_t fd, short what, void *arg)
{
    struct socket_client *c = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(&c->client, CLIENT_MAGIC);
    if (c->client.state != CLIENT_CLOSED && c->protocol->writable)
        c->protocol->writable(c);
}

void socket_client_watch(struct socket_client *c, int fd)
{
    stream_open(&c->stream, &c->client.worker->downstream->poller, fd, on_client_readable,
                on_client_writable, c);
    stream_want_read(&c->stream, true);
}

size_t socket_client_buffers(const struct socket_client *c)
{
    return iobuf_memory(c->stream.in) + iobuf_memory(c->stream.out);
}

/* While a head is incomplete, its first part is kept in stream.in. */
bool socket_client_has_input(const struct client *client)
{
    const struct socket_client *c = socket_client_of(client);

    return client->state == CLIENT_HEAD ? stream_has_unread(&c->stream)
                                        : stream_has_input(&c->stream);
}

void socket_client_stop(struct client *client)
{
    if (!stream_has_input(&socket_client_of(client)->stream))
        client_close(client);
}

bool socket_client_is_verified(const struct client *client)
{
    const struct socket_client *c = socket_client_of(client);
    const struct tls_server *server = tls_server_of(&c->stream);

    return !server ||
           tls_server_same_clients(server, listen_tls_server(socket_client_listener(c)->tls));
}

size_t socket_client_memory(const struct client *client, uint64_t now_us, uint64_t *still_us)
{
    (void)now_us;
    *still_us = client_since_us(client);
    return socket_client_buffers(socket_client_of(client));
}

unsigned socket_client_shed(struct client *client)
{
    client_close(client);
    return 0;
}

void socket_client_end(struct client *client)
{
    stream_close(&socket_client_of(client)->stream, &client->worker->buffers);
}

void socket_client_free(struct client *client)
{
    free_list_put(&client->worker->downstream->free_clients, socket_client_of(client));
}
