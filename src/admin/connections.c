#include "admin/connections.h"

#include <event2/buffer.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/event_timer.h"

static struct connection {
    struct bufferevent *bufferevent; /* held, to find out whether evhttp has freed it */
    uint64_t waits_since_us;         /* for a request; BUSY: one is being answered */
} connections[ADMIN_CONNECTIONS_MAX];
static unsigned count;
static struct event *timer;

enum { CHECK_EVERY_US = 1000000 };
static const uint64_t busy = UINT64_MAX;

static void forget(struct connection *connection)
{
    bufferevent_decref(connection->bufferevent);
    *connection = connections[--count];
}

/* bufferevent_free(3) removes the callbacks that evhttp has set. */
static bool is_freed(const struct connection *connection)
{
    bufferevent_event_cb on_event;

    bufferevent_getcb(connection->bufferevent, NULL, NULL, &on_event, NULL);
    return !on_event;
}

static void forget_freed(void)
{
    for (unsigned i = count; i-- > 0;)
        if (is_freed(&connections[i]))
            forget(&connections[i]);
}

/* evhttp finds the end of the connection, and frees it. */
static void hang_up(const struct connection *connection)
{
    shutdown(bufferevent_getfd(connection->bufferevent), SHUT_RDWR);
}

static void on_check(evutil_socket_t fd, short what, void *arg)
{
    uint64_t now_us = clock_us();
    (void)fd, (void)what, (void)arg;

    forget_freed();
    for (unsigned i = 0; i < count; i++)
        if (connections[i].waits_since_us != busy &&
            now_us - connections[i].waits_since_us > ADMIN_REQUEST_US)
            hang_up(&connections[i]);
    event_timer_arm(timer, CHECK_EVERY_US);
}

bool connections_start(struct event_base *base)
{
    if (!timer && !(timer = evtimer_new(base, on_check, NULL)))
        return false;
    event_timer_arm(timer, CHECK_EVERY_US);
    return true;
}

static bool any_is_busy(void)
{
    forget_freed();
    for (unsigned i = 0; i < count; i++)
        if (connections[i].waits_since_us == busy)
            return true;
    return false;
}

void connections_finish(struct event_base *base)
{
    uint64_t now_us = clock_us(), until_us = now_us + ADMIN_FINISH_US;

    if (count)
        (void)event_base_loop(base, EVLOOP_NONBLOCK); /* reads requests that have arrived */
    for (; any_is_busy() && now_us < until_us; now_us = clock_us()) {
        event_timer_arm(timer, until_us - now_us); /* ends the wait */
        if (event_base_loop(base, EVLOOP_ONCE) != 0)
            return;
    }
}

void connections_stop(void)
{
    while (count)
        forget(&connections[0]);
    event_drop(timer);
    timer = NULL;
}

void connections_displace(void)
{
    struct connection *oldest = &connections[0];

    forget_freed();
    for (unsigned i = 1; i < count; i++)
        if (connections[i].waits_since_us < oldest->waits_since_us)
            oldest = &connections[i];
    if (count == 0)
        return;
    hang_up(oldest);
    forget(oldest);
}

static struct connection *find(const struct bufferevent *bufferevent)
{
    for (unsigned i = 0; i < count; i++)
        if (connections[i].bufferevent == bufferevent)
            return &connections[i];
    return NULL;
}

/* Considered: a high-water mark. But evhttp is then called in a loop if it waits for the rest of a
 * line, and a TLS connection that was stopped within a record does not continue. */
static void on_input(struct evbuffer *input, const struct evbuffer_cb_info *info, void *arg)
{
    const struct connection *connection =
        evbuffer_get_length(input) > ADMIN_INPUT_MAX ? find(arg) : NULL;
    (void)info;

    if (connection)
        hang_up(connection);
}

void connections_add(struct bufferevent *connection)
{
    forget_freed();
    if (count == ADMIN_CONNECTIONS_MAX) /* an operator's request takes milliseconds */
        connections_displace();
    evbuffer_add_cb(bufferevent_get_input(connection), on_input, connection);
    bufferevent_incref(connection);
    connections[count++] = (struct connection){connection, clock_us()};
}

static struct connection *connection_of(struct evhttp_request *request)
{
    struct evhttp_connection *connection = evhttp_request_get_connection(request);

    return connection ? find(evhttp_connection_get_bufferevent(connection)) : NULL;
}

static void on_answered(struct evhttp_request *request, void *arg)
{
    struct connection *connection = connection_of(request);
    (void)arg;

    if (connection)
        connection->waits_since_us = clock_us();
}

void connections_begin_request(struct evhttp_request *request)
{
    struct connection *connection = connection_of(request);

    if (connection)
        connection->waits_since_us = busy;
    evhttp_request_set_on_complete_cb(request, on_answered, NULL);
}

unsigned connections_count(void)
{
    return count;
}
