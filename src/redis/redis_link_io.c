/* redis_link_io.c - a link's connection in the event loop.
 *
 * hiredis' own adapter for libevent would abort if out of memory, and would write a command as soon
 * as the socket is writable. Here, calls are held until redis_link_flush(), so that all calls of a
 * loop iteration leave in one write. */
#include <errno.h>
#include <event2/event_struct.h>
#include <hiredis/sds.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "redis/redis_link_internal.h"
#include "redis/socket.h"

enum { REPLY_BYTES_MAX = 1 << 20, OUTPUT_KEPT_MAX = 64 << 10 };

/* Puts TLS under link->ac, by giving it another socket. */
static bool insert_tls(struct redis_link *link, char why[static REDIS_LINK_WHY_MAX])
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
    return link->ac && !link->ac->err && (!link->settings->tls.on || insert_tls(link, why));
}

/* The events of a connection, which hiredis ends with the connection. */
struct link_events {
    redisAsyncContext *ac;
    struct event readable, writable;
    bool in_use; /* by on_redis_writable(), which frees them if they end meanwhile */
    bool ended;
};

/* hiredis ends a connection whose context has an error. Then `ac` is freed. */
static void read_replies(redisAsyncContext *ac)
{
    redisContext *c = &ac->c;

    if (c->reader->len - c->reader->pos > REPLY_BYTES_MAX && !c->err) {
        c->err = REDIS_ERR_PROTOCOL;
        snprintf(c->errstr, sizeof c->errstr, "a reply of more than 1 MiB");
    }
    redisAsyncHandleRead(ac);
}

static void on_redis_readable(evutil_socket_t fd, short what, void *arg)
{
    struct link_events *events = arg;
    (void)fd, (void)what;
    read_replies(events->ac); /* may free `events` */
}

#if HIREDIS_MAJOR >= 1

/* May free `events`. */
static void write_output(struct link_events *events)
{
    redisAsyncHandleWrite(events->ac);
}

#else

/* Ensures that a large buffer is not kept. */
static void shrink_output(redisContext *c)
{
    sds empty = sdsavail(c->obuf) > OUTPUT_KEPT_MAX ? sdsempty() : NULL;

    if (!empty)
        return;
    sdsfree(c->obuf);
    c->obuf = empty;
}

/* Writes what the socket takes. hiredis 0.14 would replace the buffer after that, and crash if out
 * of memory. So it is called only to handle errors, and to stop waiting. May free `events`. */
static void write_output(struct link_events *events)
{
    redisContext *c = &events->ac->c;

    while (sdslen(c->obuf)) {
        ssize_t n = write((int)c->fd, c->obuf, sdslen(c->obuf));
        if (n < 0 && errno == EAGAIN) {
            event_add(&events->writable, NULL);
            return;
        }
        if (n < 0 && errno != EINTR)
            break;
        if (n == (ssize_t)sdslen(c->obuf))
            sdsclear(c->obuf);
        else if (n > 0)
            sdsrange(c->obuf, (int)n, -1);
    }
    shrink_output(c);
    redisAsyncHandleWrite(events->ac);
}

#endif

/* Completes the connection too: redisAsyncHandleRead() does it, and writes nothing. */
static void on_redis_writable(evutil_socket_t fd, short what, void *arg)
{
    struct link_events *events = arg;
    const redisContext *c = &events->ac->c;
    (void)fd, (void)what;

    events->in_use = true;
    if (!(c->flags & REDIS_CONNECTED))
        redisAsyncHandleRead(events->ac);
    events->in_use = false;
    if (events->ended) {
        free(events);
        return;
    }
    if (c->flags & REDIS_CONNECTED)
        write_output(events);
    else
        event_add(&events->writable, NULL);
}

static void want_read(void *arg)
{
    event_add(&((struct link_events *)arg)->readable, NULL);
}

static void stop_reading(void *arg)
{
    event_del(&((struct link_events *)arg)->readable);
}

/* hiredis has bytes to write. */
static void hold_or_write(void *arg)
{
    struct link_events *events = arg;
    struct redis_link *link = redis_link_of(events->ac->data);

    if (link->holds_writes)
        link->has_held = true;
    else
        event_add(&events->writable, NULL);
}

static void stop_writing(void *arg)
{
    event_del(&((struct link_events *)arg)->writable);
}

static void end_events(void *arg)
{
    struct link_events *events = arg;

    stop_reading(events);
    stop_writing(events);
    events->ended = true;
    if (!events->in_use)
        free(events);
}

/* Connects hiredis to the event loop. Returns false if out of memory. */
static bool add_events(redisAsyncContext *ac, struct event_base *base)
{
    struct link_events *events = calloc(1, sizeof *events);

    if (!events)
        return false;
    events->ac = ac;
    event_assign(&events->readable, base, (int)ac->c.fd, EV_READ, on_redis_readable, events);
    event_assign(&events->writable, base, (int)ac->c.fd, EV_WRITE, on_redis_writable, events);
    ac->ev.data = events;
    ac->ev.addRead = want_read;
    ac->ev.delRead = stop_reading;
    ac->ev.addWrite = hold_or_write;
    ac->ev.delWrite = stop_writing;
    ac->ev.cleanup = end_events;
    /* An event that is not there would leave the connection without a sign of life. */
    return event_add(&events->readable, NULL) == 0 && event_add(&events->writable, NULL) == 0;
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
    return add_events(ac, link->base);
}

/* If memory runs out, hiredis may take a command without its callback, or the reverse, and reports
 * neither. The replies that follow would then be taken for those of other commands. So the
 * connection is shut down before anything is written, and the event loop closes the link. Returns
 * whether hiredis has the callback, which will run; `last` is the one before it. */
static bool callback_accepted(struct redis_link *link, const redisCallback *last, int result)
{
    redisAsyncContext *ac = link->ac;
    bool has_callback = result == REDIS_OK && ac->replies.tail != last;

    link->unanswered += has_callback;
    if (result == REDIS_OK && (!has_callback || ac->c.err))
        shutdown((int)ac->c.fd, SHUT_RDWR);
    return has_callback;
}

bool redis_link_command(struct redis_link *link, redisCallbackFn *callback, void *arg, int argc,
                        const char **argv, const size_t *sizes)
{
    const redisCallback *last = link->ac->replies.tail;

    return callback_accepted(link, last,
                             redisAsyncCommandArgv(link->ac, callback, arg, argc, argv, sizes));
}

bool redis_link_formatted(struct redis_link *link, redisCallbackFn *callback, void *arg,
                          const char *command, size_t size)
{
    const redisCallback *last = link->ac->replies.tail;

    return callback_accepted(link, last,
                             redisAsyncFormattedCommand(link->ac, callback, arg, command, size));
}

void redis_link_write_held(struct redis_link *link)
{
    if (!link->has_held)
        return;
    link->has_held = false;
    write_output(link->ac->ev.data);
    if (link->tls)
        tls_pump_send(link->tls);
}

void redis_link_read(struct redis_link *link)
{
    if (!link->pending || link->state != LINK_READY)
        return;
    if (link->tls)
        tls_pump_receive(link->tls);
    read_replies(link->ac);
}
