#include "admin/events.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdlib.h>

#include "admin/answer.h"
#include "admin/snapshot.h"
#include "base/event_timer.h"
#include "net/tls_bufferevent.h"

enum {
    INPUT_MAX = 4096,      /* bytes that a listener may send, which nobody reads */
    SEND_BUFFER = 32 << 10 /* in the kernel */
};

static const struct timeval a_second = {1, 0}, write_timeout = {10, 0};

struct event_listener {
    struct events *events;
    struct evhttp_connection *connection; /* NULL: the slot is free */
    struct evhttp_request *request;
    unsigned late; /* events in a row that found the one before still unsent */
};

struct events {
    const struct admin_view *view;
    struct snapshot_history *history;
    struct event *timer; /* pending while someone listens */
    unsigned count;
    struct event_listener listeners[EVENT_LISTENERS_MAX];
};

/* The connection closes. It frees its request if weir closes it. If the client does, evhttp has cut
 * the request off before, which was not answered completely, and leaves it to its handler. */
static void on_close(struct evhttp_connection *connection, void *arg)
{
    struct event_listener *listener = arg;
    (void)connection;

    if (!evhttp_request_get_connection(listener->request))
        evhttp_request_free(listener->request);
    listener->connection = NULL;
    listener->events->count--;
}

/* Sends the bytes, or disconnects a client that does not read or whose certificate has expired. */
static void send_to(struct event_listener *listener, struct evbuffer *bytes)
{
    struct bufferevent *stream = evhttp_connection_get_bufferevent(listener->connection);
    struct evbuffer *copy;

    listener->late = evbuffer_get_length(bufferevent_get_output(stream)) ? listener->late + 1 : 0;
    if (listener->late > EVENT_LATE_MAX || tls_bufferevent_has_expired(stream) ||
        !(copy = evbuffer_new())) {
        evhttp_connection_free(listener->connection); /* calls on_close() */
        return;
    }
    if (evbuffer_add_buffer_reference(copy, bytes) == 0)
        evhttp_send_reply_chunk(listener->request, copy);
    evbuffer_free(copy);
    /* evhttp has set its own timeouts; a listener need not send anything. */
    bufferevent_set_timeouts(stream, NULL, &write_timeout);
}

static struct evbuffer *make_event(struct events *events)
{
    static const char before[] = "event: snapshot\ndata: ";
    struct evbuffer *event;
    struct text text;

    snapshot_write(&text, events->view, events->history);
    if (!(event = buffer_of_json(&text)))
        return NULL;
    evbuffer_prepend(event, before, sizeof before - 1);
    evbuffer_add(event, "\n", 1);
    return event;
}

static void on_snapshot(evutil_socket_t fd, short what, void *arg)
{
    struct events *events = arg;
    struct evbuffer *event;
    (void)fd, (void)what;

    if (!events->count) {
        evtimer_del(events->timer);
        snapshot_history_clear(events->history);
        return;
    }
    if (!(event = make_event(events)))
        return;
    for (unsigned i = 0; i < EVENT_LISTENERS_MAX; i++)
        if (events->listeners[i].connection)
            send_to(&events->listeners[i], event);
    evbuffer_free(event);
}

struct events *events_new(struct event_base *base, const struct admin_view *view)
{
    struct events *events = calloc(1, sizeof *events);

    if (!events)
        return NULL;
    events->view = view;
    events->history = snapshot_history_new();
    events->timer = event_new(base, -1, EV_PERSIST, on_snapshot, events);
    if (!events->history || !events->timer) {
        events_free(events);
        return NULL;
    }
    return events;
}

void events_reload(struct events *events)
{
    for (unsigned i = 0; i < EVENT_LISTENERS_MAX; i++)
        if (events->listeners[i].connection)
            evhttp_connection_free(events->listeners[i].connection);
    snapshot_history_clear(events->history);
}

void events_free(struct events *events)
{
    if (!events)
        return;
    if (events->history)
        events_reload(events);
    snapshot_history_free(events->history);
    event_drop(events->timer);
    free(events);
}

/* --- Requests --------------------------------------------------------------------------------- */

static void listen_with(struct events *events, struct event_listener *listener,
                        struct evhttp_request *request)
{
    static const int send_buffer = SEND_BUFFER;
    static const char greeting[] =
        "retry: 2000\n\n"; /* milliseconds until a client connects again */
    struct evkeyvalq *fields = evhttp_request_get_output_headers(request);
    struct evhttp_connection *connection = evhttp_request_get_connection(request);
    struct evbuffer *bytes = evbuffer_new();

    *listener = (struct event_listener){events, connection, request, 0};
    events->count++;
    setsockopt(bufferevent_getfd(evhttp_connection_get_bufferevent(connection)), SOL_SOCKET,
               SO_SNDBUF, &send_buffer, sizeof send_buffer);
    evhttp_connection_set_closecb(connection, on_close, listener);
    bufferevent_setwatermark(evhttp_connection_get_bufferevent(connection), EV_READ, 0, INPUT_MAX);
    evhttp_add_header(fields, "Content-Type", "text/event-stream");
    evhttp_add_header(fields, "Cache-Control", "no-store");
    evhttp_add_header(fields, "X-Content-Type-Options", "nosniff");
    evhttp_send_reply_start(request, 200, NULL);
    if (bytes) {
        evbuffer_add(bytes, greeting, sizeof greeting - 1);
        send_to(listener, bytes);
        evbuffer_free(bytes);
    }
    if (!evtimer_pending(events->timer, NULL)) {
        event_add(events->timer, &a_second);
        on_snapshot(-1, 0, events); /* the first snapshot, without rates */
    }
}

void events_answer(const struct admin_view *view, struct evhttp_request *request)
{
    struct events *events = view->events;

    if (evhttp_request_get_command(request) == EVHTTP_REQ_HEAD) {
        answer(request, 200, "text/event-stream", NULL);
        return;
    }
    for (unsigned i = 0; i < EVENT_LISTENERS_MAX; i++)
        if (!events->listeners[i].connection) {
            listen_with(events, &events->listeners[i], request);
            return;
        }
    answer_problem(request, 503, "the maximum number of clients that receive events is reached");
}
