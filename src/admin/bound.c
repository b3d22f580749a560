#include "admin/bound.h"

#include <event2/listener.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "admin/answer.h"
#include "base/descriptors.h"
#include "base/event_timer.h"
#include "base/log_throttle.h"
#include "net/tls_bufferevent.h"

enum { ADMIN_HEAD_MAX = 8192, ADMIN_BODY_MAX = 4096, ADMIN_TIMEOUT_S = 10, PAUSE_US = 100000 };

enum {
    METHODS = EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_POST | EVHTTP_REQ_PUT |
              EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE |
              EVHTTP_REQ_PATCH /* each resource checks its methods */
};

struct admin_bound {
    struct evhttp *http;
    struct evconnlistener *listener; /* owned by evhttp */
    struct event *pause;
    void (*handle)(void *context, unsigned index, struct evhttp_request *request);
    void *context;
    const struct admin_view *view;
    unsigned index;
    uint64_t failures[TLS_FAILURE_COUNT];
    struct log_throttle throttles[TLS_FAILURE_COUNT];
    struct admin_bound *next;
};

/* All of the process. A global, because evhttp owns the argument of a listener's callbacks. Main
 * thread only. */
static struct admin_bound *all;

/* --- TLS -------------------------------------------------------------------------------------- */

static const struct admin_listener *listener_of(const struct admin_bound *bound)
{
    return &bound->view->policy->admin[bound->index]; /* reloads keep listeners in order */
}

static void handshake_failed(void *context, evutil_socket_t fd, enum tls_failure failure)
{
    struct admin_bound *bound = all;
    struct address peer = {.length = sizeof peer.local};

    while (bound && bound != context)
        bound = bound->next;
    if (!bound) /* the listener is closed */
        return;
    bound->failures[failure]++;
    if (getpeername(fd, &peer.any, &peer.length) == 0)
        tls_failure_log(bound->throttles, failure, &peer, &listener_of(bound)->address, NULL);
}

/* NULL: a connection without TLS, also if there is no memory; is_secure() refuses its requests. */
static struct bufferevent *accept_connection(struct event_base *base, void *arg)
{
    struct admin_bound *bound = arg;
    struct tls_server *server = listen_tls_server(listener_of(bound)->tls);

    return server ? tls_bufferevent_new(base, server, handshake_failed, bound) : NULL;
}

/* Returns whether the request may be answered: without TLS, or verified as the listener does now.
 * Otherwise it is refused. */
static bool is_secure(const struct admin_bound *bound, struct evhttp_request *request)
{
    const struct tls_server *server = listen_tls_server(listener_of(bound)->tls);
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

uint64_t admin_bound_failures(unsigned index, enum tls_failure failure)
{
    for (const struct admin_bound *bound = all; bound; bound = bound->next)
        if (bound->index == index)
            return bound->failures[failure];
    return 0;
}

/* --- Requests --------------------------------------------------------------------------------- */

static void on_request(struct evhttp_request *request, void *arg)
{
    struct admin_bound *bound = arg;

    if (is_secure(bound, request))
        bound->handle(bound->context, bound->index, request);
}

/* --- Out of file descriptors ------------------------------------------------------------------ */

/* With a reserve descriptor the listener retries at once. Without one it pauses, to avoid a busy
 * loop. */
static void on_accept_error(struct evconnlistener *listener, void *arg)
{
    int error = EVUTIL_SOCKET_ERROR();
    (void)arg;

    if (descriptors_lack(error) && descriptors_give(DESCRIPTOR_FOR_MAIN, error))
        return;
    evconnlistener_disable(listener);
    for (const struct admin_bound *bound = all; bound; bound = bound->next)
        if (bound->listener == listener)
            event_timer_arm(bound->pause, PAUSE_US);
}

static void on_pause_over(evutil_socket_t fd, short what, void *arg)
{
    const struct admin_bound *bound = arg;
    (void)fd, (void)what;

    evconnlistener_enable(bound->listener);
}

/* --- Creation and destruction ----------------------------------------------------------------- */

static bool start_to_accept(struct admin_bound *bound, int fd)
{
    struct evhttp_bound_socket *socket = evhttp_accept_socket_with_handle(bound->http, fd);

    if (!socket)
        return false;
    bound->listener = evhttp_bound_socket_get_listener(socket);
    evconnlistener_set_error_cb(bound->listener, on_accept_error);
    bound->next = all;
    all = bound;
    return true;
}

struct admin_bound *
admin_bound_new(struct event_base *base, int fd, const struct admin_view *view, unsigned index,
                void (*handle)(void *context, unsigned index, struct evhttp_request *request),
                void *context)
{
    struct admin_bound *bound = calloc(1, sizeof *bound);

    if (!bound)
        return NULL;
    bound->handle = handle;
    bound->context = context;
    bound->view = view;
    bound->index = index;
    bound->http = evhttp_new(base);
    bound->pause = evtimer_new(base, on_pause_over, bound);
    if (!bound->http || !bound->pause || !start_to_accept(bound, fd)) {
        admin_bound_free(bound);
        return NULL;
    }
    evhttp_set_allowed_methods(bound->http, METHODS);
    evhttp_set_max_headers_size(bound->http, ADMIN_HEAD_MAX);
    evhttp_set_max_body_size(bound->http, ADMIN_BODY_MAX);
    evhttp_set_timeout(bound->http, ADMIN_TIMEOUT_S);
    evhttp_set_gencb(bound->http, on_request, bound);
    evhttp_set_bevcb(bound->http, accept_connection, bound);
    return bound;
}

void admin_bound_free(struct admin_bound *bound)
{
    for (struct admin_bound **at = &all; *at; at = &(*at)->next)
        if (*at == bound) {
            *at = bound->next;
            break;
        }
    event_drop(bound->pause);
    if (bound->http)
        evhttp_free(bound->http);
    free(bound);
}
