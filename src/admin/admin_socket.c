#include "admin/admin_socket.h"

#include <event2/listener.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "admin/answer.h"
#include "admin/connections.h"
#include "base/descriptors.h"
#include "base/event_timer.h"
#include "base/log_throttle.h"
#include "net/listener.h"
#include "net/tls_bufferevent.h"

enum {
    ADMIN_HEAD_MAX = 8192,
    ADMIN_BODY_MAX = 4096,
    ADMIN_TIMEOUT_S = 10,
    PAUSE_US = 100000,
    FEW_CONNECTIONS = 8
};

enum {
    METHODS = EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
              EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE |
              EVHTTP_REQ_PATCH /* each resource checks its methods */
};

struct admin_socket {
    struct evhttp *http;
    struct evconnlistener *listener; /* owned by evhttp */
    struct event *pause;
    void (*handle)(void *context, unsigned index, struct evhttp_request *request);
    void *context;
    const struct admin_view *view;
    unsigned index;
    uint64_t failures[TLS_FAILURE_COUNT];
    struct log_throttle throttles[TLS_FAILURE_COUNT];
    struct admin_socket *next;
};

/* All of the process. A global, because evhttp owns the argument of a listener's callbacks. Main
 * thread only. */
static struct admin_socket *all;

/* --- TLS -------------------------------------------------------------------------------------- */

static const struct admin_listener *listener_of(const struct admin_socket *socket)
{
    return &socket->view->policy->admin[socket->index]; /* reloads keep listeners in order */
}

static void handshake_failed(void *context, evutil_socket_t fd, enum tls_failure failure)
{
    struct admin_socket *socket = all;
    struct address peer = {.length = sizeof peer.local};

    while (socket && socket != context)
        socket = socket->next;
    if (!socket) /* the listener is closed */
        return;
    socket->failures[failure]++;
    if (getpeername(fd, &peer.any, &peer.length) == 0)
        tls_failure_log(socket->throttles, failure, &peer, &listener_of(socket)->address, NULL);
}

/* NULL: no memory. evhttp then makes a connection without TLS; is_secure() refuses its requests if
 * the listener has TLS. */
static struct bufferevent *accept_connection(struct event_base *base, void *arg)
{
    struct admin_socket *socket = arg;
    struct tls_server *server = listen_tls_server(listener_of(socket)->tls);
    struct bufferevent *connection =
        server ? tls_bufferevent_new(base, server, handshake_failed, socket)
               : bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);

    if (connection)
        connections_add(connection);
    return connection;
}

/* Returns whether the request may be answered: without TLS, or verified as the listener does now.
 * Otherwise it is refused. */
static bool is_secure(const struct admin_socket *socket, struct evhttp_request *request)
{
    const struct tls_server *server = listen_tls_server(listener_of(socket)->tls);
    struct evhttp_connection *connection = evhttp_request_get_connection(request);

    if (!server ||
        tls_bufferevent_is_verified(evhttp_connection_get_bufferevent(connection), server))
        return true;
    evhttp_add_header(evhttp_request_get_output_headers(request), "Connection", "close");
    answer_problem(
        request, 421,
        "the client's certificate has expired, or the TLS settings of this listener have "
        "changed; open a new connection");
    return false;
}

uint64_t admin_socket_failures(unsigned index, enum tls_failure failure)
{
    for (const struct admin_socket *socket = all; socket; socket = socket->next)
        if (socket->index == index)
            return socket->failures[failure];
    return 0;
}

/* --- Requests --------------------------------------------------------------------------------- */

static void on_request(struct evhttp_request *request, void *arg)
{
    struct admin_socket *socket = arg;

    connections_begin_request(request);
    if (is_secure(socket, request))
        socket->handle(socket->context, socket->index, request);
}

/* --- Out of file descriptors ------------------------------------------------------------------ */

/* With a reserve descriptor the listener retries at once. Without one it pauses, to avoid a busy
 * loop. The reserve is for operators: with many connections, the oldest is closed instead. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    int error = EVUTIL_SOCKET_ERROR();
    (void)arg;

    if (descriptors_lack(error) && connections_count() >= FEW_CONNECTIONS) {
        descriptors_note_lack(error);
        connections_displace();
    } else if (descriptors_lack(error) && descriptors_give(DESCRIPTOR_FOR_MAIN, error))
        return;
    evconnlistener_disable(listener);
    for (const struct admin_socket *socket = all; socket; socket = socket->next)
        if (socket->listener == listener)
            event_timer_arm(socket->pause, PAUSE_US);
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
    const struct admin_socket *socket = arg;
    (void)fd, (void)what;

    evconnlistener_enable(socket->listener);
}

/* --- Creation and destruction ----------------------------------------------------------------- */

static bool start_to_accept(struct admin_socket *socket, int fd)
{
    struct evhttp_bound_socket *accepting = evhttp_accept_socket_with_handle(socket->http, fd);

    if (!accepting)
        return false;
    socket->listener = evhttp_bound_socket_get_listener(accepting);
    evconnlistener_set_error_cb(socket->listener, on_accept_error);
    socket->next = all;
    all = socket;
    return true;
}

struct admin_socket *
admin_socket_new(struct event_base *base, int fd, const struct admin_view *view, unsigned index,
                 void (*handle)(void *context, unsigned index, struct evhttp_request *request),
                 void *context)
{
    struct admin_socket *socket = calloc(1, sizeof *socket);

    if (!socket)
        return NULL;
    socket->handle = handle;
    socket->context = context;
    socket->view = view;
    socket->index = index;
    socket->http = evhttp_new(base);
    socket->pause = evtimer_new(base, on_pause_over, socket);
    if (!socket->http || !socket->pause || !start_to_accept(socket, fd)) {
        admin_socket_free(socket);
        return NULL;
    }
    /* Accepted sockets get the options too: evhttp writes a response in several pieces. */
    socket_set_options(fd, &listener_of(socket)->address);
    evhttp_set_allowed_methods(socket->http, METHODS);
    evhttp_set_max_headers_size(socket->http, ADMIN_HEAD_MAX);
    evhttp_set_max_body_size(socket->http, ADMIN_BODY_MAX);
    evhttp_set_timeout(socket->http, ADMIN_TIMEOUT_S);
    evhttp_set_gencb(socket->http, on_request, socket);
    evhttp_set_bevcb(socket->http, accept_connection, socket);
    return socket;
}

void admin_socket_free(struct admin_socket *socket)
{
    for (struct admin_socket **at = &all; *at; at = &(*at)->next)
        if (*at == socket) {
            *at = socket->next;
            break;
        }
    event_drop(socket->pause);
    if (socket->http)
        evhttp_free(socket->http);
    free(socket);
}
