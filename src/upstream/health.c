/* health.c - active health checks. If an upstream has `health`, the main thread checks every
 * endpoint periodically.
 *
 *   wait -> connect -> (TLS) -> GET -> response head -> finish -> wait
 *
 * Each check uses a connection of its own, closed after the response head. A check that takes
 * longer than health.timeout has failed. With protocol http2, checks use HTTP/2; with auto,
 * HTTP/1.1. health.grpc calls grpc.health.v1.Health/Check instead of GET. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/descriptors.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "config.h"
#include "http/framing.h"
#include "http/head.h"
#include "http/parse.h"
#include "net/listener.h"
#include "net/stream.h"
#include "net/tls.h"
#include "upstream/endpoint_set_internal.h"
#include "upstream/health_http2.h"
#include "upstream/link.h"

enum {
    ANSWER_MAX = 16 * 1024, /* size of a response head, interim responses included */
    REQUEST_MAX = 2048,
    APART_US = 20000 /* interval between the starts of the first checks */
};

struct check {
    struct endpoint_set *endpoint_set;
    const struct upstream *upstream;
    struct endpoint *endpoint; /* held */
    struct event timer;        /* waiting: start of the check; else: its timeout */
    uint64_t began_us;
    enum { CHECK_WAITS, CHECK_CONNECTS, CHECK_SHAKES_HANDS, CHECK_READS } state;
    struct stream stream;
    struct tls_resumption resumption;
    char *answer;               /* ANSWER_MAX bytes while a check runs */
    size_t size, interim;       /* received bytes; of these, interim responses */
    size_t scanned;             /* of the rest */
    struct health_http2 *http2; /* NULL: HTTP/1.1 */
    TAILQ_ENTRY(check) link;
};

/* ---- result ---------------------------------------------------------------------------------- */

static void close_socket(struct check *check)
{
    if (check->state != CHECK_WAITS)
        stream_close(&check->stream, &check->endpoint_set->buffers);
    check->state = CHECK_WAITS;
    free(check->answer);
    check->answer = NULL;
    health_http2_free(check->http2);
    check->http2 = NULL;
}

static void change(struct check *check, bool failing, const char *why)
{
    const struct upstream *upstream = check->upstream;
    struct endpoint *endpoint = check->endpoint;

    endpoint->streak = 0;
    atomic_store_explicit(&endpoint->failing, failing, memory_order_relaxed);
    if (failing)
        log_warn(
            "upstream %s: server %s: health check: %s; it receives no requests until it passes %u",
            upstream->name, endpoint->text, why, upstream->health.healthy);
    else
        log_info("upstream %s: server %s passes its health checks again", upstream->name,
                 endpoint->text);
    check->endpoint_set->listener.changed(
        check->endpoint_set->listener.context); /* updates /readyz, through the workers */
}

/* Ends a check. `why`: the failure, or NULL on success. */
static void finish_check(struct check *check, const char *why)
{
    struct endpoint *endpoint = check->endpoint;
    const struct upstream_health *health = &check->upstream->health;
    bool failing = !endpoint_is_healthy(endpoint);
    uint64_t took = clock_us() - check->began_us;

    if (why)
        log_debug("upstream %s: server %s: health check: %s", check->upstream->name, endpoint->text,
                  why);
    atomic_store_explicit(&endpoint->check_failed, why != NULL, memory_order_relaxed);
    endpoint->streak = failing == !why ? endpoint->streak + 1 : 0;
    if (endpoint->streak >= (failing ? health->healthy : health->unhealthy))
        change(check, !failing, why);
    close_socket(check);
    event_timer_arm(&check->timer, took < health->interval_us ? health->interval_us - took : 0);
}

/* Ends a check that failed for a lack of this process, which says nothing about the server. */
static void skip_check(struct check *check, const char *lack)
{
    log_debug("upstream %s: server %s: health check: no %s", check->upstream->name,
              check->endpoint->text, lack);
    close_socket(check);
    event_timer_arm(&check->timer, check->upstream->health.interval_us);
}

/* ---- response -------------------------------------------------------------------------------- */

static void check_status(struct check *check, unsigned status)
{
    char why[64];

    snprintf(why, sizeof why, "status %u", status);
    finish_check(check,
                 statuses_hold(check->upstream->health.statuses, (uint16_t)status) ? NULL : why);
}

static void check_health_head(struct check *check, const struct response_head *head)
{
    struct framing framing;
    struct refusal refusal;

    if (!response_framing(head, METHOD_GET, &framing, &refusal))
        finish_check(check, refusal.why);
    else
        check_status(check, head->status);
}

/* Looks for the head of the final response in the received bytes. */
static void look_at_answer(struct check *check)
{
    static struct response_head head; /* used by the main thread only */
    struct refusal refusal;
    size_t size;

    for (;;) {
        struct slice answer = {check->answer + check->interim, check->size - check->interim};
        switch (response_head_read(answer, &check->scanned, &size, &head, &refusal)) {
        case SCAN_REFUSED: finish_check(check, refusal.why); return;
        case SCAN_PARTIAL:
            if (check->size == ANSWER_MAX)
                finish_check(check, "the response header is too large");
            return;
        case SCAN_WHOLE: break;
        }
        if (head.status >= 200 || head.status == 101) {
            check_health_head(check, &head);
            return;
        }
        check->interim += size;
        check->scanned = 0;
    }
}

/* Returns whether the check was judged. */
static bool judge_http2(struct check *check)
{
    const char *why;
    unsigned status;

    if (check->upstream->health.grpc) {
        if (!health_http2_serving(check->http2, &why))
            return false;
        finish_check(check, why);
        return true;
    }
    if ((status = health_http2_status(check->http2, &why)))
        check_status(check, status);
    else if (why)
        finish_check(check, why);
    return status || why;
}

static void receive_http2(struct check *check, size_t size)
{
    health_http2_receive(check->http2, (struct slice){check->answer, size});
    if (!judge_http2(check) &&
        stream_flush(&check->stream, &check->endpoint_set->buffers) == SENT_FAILED)
        finish_check(check, "it reset the connection");
}

static void read_answer(struct check *check)
{
    ssize_t n = stream_read(&check->stream, check->answer + check->size, ANSWER_MAX - check->size);

    if (n == STREAM_AGAIN)
        return;
    if (n <= 0) {
        finish_check(check, n == 0 ? "it closed the connection without a response"
                                   : "it reset the connection");
        return;
    }
    if (check->http2) {
        receive_http2(check, (size_t)n);
        return;
    }
    check->size += (size_t)n;
    look_at_answer(check);
}

/* ---- request --------------------------------------------------------------------------------- */

/* Writes the head of the request to `request` of REQUEST_MAX bytes. */
static struct slice write_request(const struct check *check, char *request)
{
    const struct upstream_health *health = &check->upstream->health;
    const struct upstream_server *server = check->endpoint->settings;
    const char *host = health->host ? health->host : server->host ? server->text : "localhost";
    int size =
        snprintf(request, REQUEST_MAX,
                 "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: weir/%s (health check)\r\n%s\r\n",
                 health->grpc ? "POST" : "GET", health->grpc ? HEALTH_GRPC_PATH : health->path,
                 host, PACKAGE_VERSION,
                 health->grpc ? "Content-Type: application/grpc\r\nTE: trailers\r\n"
                              : "Accept: */*\r\nConnection: close\r\n");

    return (struct slice){request, (size_t)size};
}

static void send_request(struct check *check)
{
    struct iobuf_pool *buffers = &check->endpoint_set->buffers;
    char bytes[REQUEST_MAX];
    struct slice request = write_request(check, bytes);
    enum sent sent;

    check->state = CHECK_READS;
    check->size = check->interim = check->scanned = 0;
    stream_want_write(&check->stream, false);
    stream_want_read(&check->stream, true);
    if (check->upstream->protocol != UPSTREAM_HTTP2) {
        struct iovec piece = iovec_of(request);
        sent = stream_send(&check->stream, buffers, &piece, 1);
    } else if ((check->http2 =
                    health_http2_begin(buffers, &check->stream.out, request,
                                       check->upstream->health.grpc, check->upstream->tls.on)))
        sent = stream_flush(&check->stream, buffers);
    else {
        skip_check(check, "memory");
        return;
    }
    if (sent == SENT_FAILED)
        finish_check(check, "it reset the connection");
    else if (sent == SENT_PART)
        stream_want_write(&check->stream, true);
}

static void shake_hands(struct check *check)
{
    char why[TLS_WHY_MAX];

    switch (tls_handshake(&check->stream)) {
    case TLS_AGAIN: break;
    case TLS_DONE:
        if (check->upstream->protocol == UPSTREAM_HTTP2 && !tls_chose_http2(&check->stream))
            finish_check(check, "it does not offer HTTP/2 (ALPN h2)");
        else
            send_request(check);
        break;
    case TLS_FAILED:
        tls_connect_failure(&check->stream, why);
        tls_resumption_clear(&check->resumption);
        finish_check(check, why);
    }
}

static void health_connected(struct check *check)
{
    const struct client_tls *tls = &check->upstream->tls;
    const char *own = check->endpoint->settings->host,
               *host = tls->server_name ? tls->server_name : own;

    if (!tls->on) {
        send_request(check);
        return;
    }
    check->state = CHECK_SHAKES_HANDS;
    stream_want_write(&check->stream, false);
    if (tls_connect(&check->stream, tls->client, host ? host : "localhost", &check->resumption) &&
        (check->upstream->protocol != UPSTREAM_HTTP2 ||
         tls_client_offer_http2(&check->stream, false)))
        shake_hands(check);
    else
        skip_check(check, "memory");
}

static void on_check_writable(evutil_socket_t fd, short what, void *arg)
{
    struct check *check = arg;
    int error = 0;
    socklen_t size = sizeof error;
    (void)what;

    if (check->state == CHECK_READS) {
        if (stream_flush(&check->stream, &check->endpoint_set->buffers) == SENT_FAILED)
            finish_check(check, "it reset the connection");
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    if (error)
        finish_check(check, strerror(error));
    else
        health_connected(check);
}

static void on_check_readable(evutil_socket_t fd, short what, void *arg)
{
    struct check *check = arg;
    (void)fd, (void)what;

    if (check->state == CHECK_SHAKES_HANDS)
        shake_hands(check);
    else if (check->state == CHECK_READS)
        read_answer(check);
}

static int open_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), error = errno;

    if (fd < 0 && descriptors_lack(error)) {
        if (descriptors_give(DESCRIPTOR_FOR_SERVER, error))
            fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        else
            errno = error;
    }
    return fd;
}

/* Starts a check. Connecting to a unix socket completes at once; the write event follows as
 * well. */
static void begin_check(struct check *check)
{
    static const char *const lacks[LINK_FAILURES] = {[LINK_FAILED_NO_MEMORY] = "memory",
                                                     [LINK_FAILED_NO_DESCRIPTORS] = "descriptor",
                                                     [LINK_FAILED_NO_PORTS] = "local port"};
    const struct address *to = &check->endpoint->address;
    int fd = open_socket(to->any.sa_family);

    check->began_us = clock_us();
    check->answer = fd < 0 ? NULL : malloc(ANSWER_MAX);
    if (check->answer && (connect(fd, &to->any, to->length) == 0 || errno == EINPROGRESS)) {
        socket_set_options(fd, to);
        check->state = CHECK_CONNECTS;
        stream_open(&check->stream, &check->endpoint_set->poller, fd, on_check_readable,
                    on_check_writable, check);
        stream_want_write(&check->stream, true);
        event_timer_arm(&check->timer, check->upstream->health.timeout_us);
        return;
    }
    int error = errno;
    const char *lack = lacks[link_failure_of(error, to)];
    if (fd >= 0)
        close(fd);
    if (lack)
        skip_check(check, lack);
    else
        finish_check(check, strerror(error));
}

static void on_check_timer(evutil_socket_t fd, short what, void *arg)
{
    struct check *check = arg;
    (void)fd, (void)what;

    if (check->state == CHECK_WAITS)
        begin_check(check);
    else
        finish_check(check, "no response within health.timeout");
}

/* ---- list of checks -------------------------------------------------------------------------- */

static void check_free(struct check *check)
{
    close_socket(check);
    event_del(&check->timer);
    TAILQ_REMOVE(&check->endpoint_set->checks, check, link);
    tls_resumption_clear(&check->resumption);
    endpoint_drop(check->endpoint);
    free(check);
}

static bool is_checked(const struct endpoint_set *endpoint_set, const struct endpoint *endpoint)
{
    const struct check *check;
    TAILQ_FOREACH (check, &endpoint_set->checks, link)
        if (check->endpoint == endpoint)
            return true;
    return false;
}

static bool check_new(struct endpoint_set *endpoint_set, const struct upstream *upstream,
                      struct endpoint *endpoint, unsigned number)
{
    struct check *check = calloc(1, sizeof *check);

    if (!check) {
        log_error("upstream %s: server %s: out of memory: its health is not checked until the next "
                  "reload",
                  upstream->name, endpoint->text);
        return false;
    }
    atomic_fetch_add_explicit(&endpoint->references, 1, memory_order_relaxed);
    check->endpoint_set = endpoint_set;
    check->upstream = upstream;
    check->endpoint = endpoint;
    evtimer_assign(&check->timer, endpoint_set->base, on_check_timer, check);
    TAILQ_INSERT_TAIL(&endpoint_set->checks, check, link);
    event_timer_arm(&check->timer, (uint64_t)number * APART_US);
    return true;
}

bool health_follow(struct endpoint_set *endpoint_set, const struct upstream *upstream)
{
    const struct upstream_endpoints *row = &endpoint_set->table[upstream->index];
    struct check *check, *next;
    bool good = true;

    if (!health_is_on(&upstream->health))
        return true;
    for (check = TAILQ_FIRST(&endpoint_set->checks); check; check = next) {
        bool stays = check->upstream != upstream;
        next = TAILQ_NEXT(check, link);
        for (unsigned i = 0; i < row->count && !stays; i++)
            stays = row->endpoints[i] == check->endpoint;
        if (!stays)
            check_free(check);
    }
    for (unsigned i = 0; i < row->count; i++)
        if (!is_checked(endpoint_set, row->endpoints[i]))
            good &= check_new(endpoint_set, upstream, row->endpoints[i], i);
    return good;
}

void health_end(struct endpoint_set *endpoint_set)
{
    for (struct check *check = TAILQ_FIRST(&endpoint_set->checks), *next; check; check = next) {
        next = TAILQ_NEXT(check, link);
        check_free(check);
    }
}
