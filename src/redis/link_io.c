/* link_io.c - a link's connection in the event loop: hiredis' libevent adapter, except for the
 * moment at which calls are written.
 *
 * The adapter would write a command as soon as the socket is writable. Calls are held instead until
 * redis_link_flush(), so that all calls of a loop iteration leave in one write. */
#include <hiredis/adapters/libevent.h>

#include <errno.h>

#include "redis/link_internal.h"
#include "redis/socket.h"

enum { REPLY_BYTES_MAX = 1 << 20 };

/* Puts TLS under link->ac, by giving it another socket. */
static bool secure(struct redis_link *link, char why[static REDIS_LINK_WHY_MAX])
{
    int fd = redis_socket_duplicate(link->ac), plain = -1;

    if (fd >= 0)
        link->tls = redis_secure(link->base, link->settings, &link->address, fd, &plain);
    if (link->tls && (link->ac = redis_socket_replace(link->ac, plain)) && !link->ac->err)
        return true;
    snprintf(why, REDIS_LINK_WHY_MAX, "%s", strerror(errno));
    return false;
}

bool redis_link_open(struct redis_link *link, char why[static REDIS_LINK_WHY_MAX])
{
    link->ac = redis_socket_dial(&link->address);
    snprintf(why, REDIS_LINK_WHY_MAX, "%s", link->ac ? link->ac->errstr : "no memory");
    return link->ac && !link->ac->err && (!link->settings->tls.on || secure(link, why));
}

/* hiredis has bytes to write. */
static void hold_or_write(void *adapter)
{
    struct redis_link *link = redis_link_of(((redisLibeventEvents *)adapter)->context->data);

    if (link->holds_writes)
        link->has_held = true;
    else
        link->write_when_possible(adapter);
}

bool redis_link_attach(struct redis_link *link)
{
    redisAsyncContext *ac = link->ac;

    ac->data = link;
    link->has_held = false;
    redis_reply_reader_install(&link->reader, ac->c.reader, &link->unanswered);
    redis_reply_reader_keep(&link->reader);
    if (!link->tls)
        redis_socket_options(ac->c.fd, &link->address);
    if (redisLibeventAttach(ac, link->base) != REDIS_OK)
        return false;
    link->write_when_possible = ac->ev.addWrite;
    ac->ev.addWrite = hold_or_write;
    return true;
}

bool redis_link_reply_fits(const struct redis_link *link)
{
    return link->ac->c.reader->len - link->ac->c.reader->pos <= REPLY_BYTES_MAX;
}

void redis_link_write_held(struct redis_link *link)
{
    if (!link->has_held)
        return;
    link->has_held = false;
    redisAsyncHandleWrite(link->ac); /* the adapter writes what the socket does not take */
    if (link->tls)
        tls_pump_send(link->tls);
}

void redis_link_read(struct redis_link *link)
{
    if (!link->pending || link->state != LINK_READY)
        return;
    if (link->tls)
        tls_pump_receive(link->tls);
    redisAsyncHandleRead(link->ac);
}
