#include "net/tls_pump.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/event_timer.h"
#include "base/macros.h"

enum { PIECE = 16 * 1024 }; /* a TLS record */

struct tls_pump {
    struct poller poller;
    struct stream stream; /* to the server */
    struct iobuf_pool buffers;
    struct tls_client *client;
    struct tls_resumption resumption;
    char host[256];
    int plain;                         /* the pump's end of the pair */
    struct event *readable, *writable; /* of `plain` */
    enum tls_pump_state state;
    enum tls_problem problem;
    char why[TLS_WHY_MAX];
    size_t held_from, held; /* decrypted bytes that `plain` has not accepted */
    char bytes[PIECE];
};

/* The owner reads the end of input after the held bytes. */
static void pump_end(struct tls_pump *pump, enum tls_pump_state state)
{
    pump->state = state;
    event_del(pump->readable);
    stream_close(&pump->stream, &pump->buffers);
    if (pump->held == 0)
        shutdown(pump->plain, SHUT_WR);
}

static void pump_fail(struct tls_pump *pump, enum tls_pump_state state, const char *why)
{
    snprintf(pump->why, sizeof pump->why, "%s", why);
    pump_end(pump, state);
}

/* --- From the server to the owner ------------------------------------------------------------- */

/* Returns false if bytes are left over. */
static bool pump_to_owner(struct tls_pump *pump)
{
    while (pump->held) {
        ssize_t n = send(pump->plain, pump->bytes + pump->held_from, pump->held, MSG_NOSIGNAL);
        if (n <= 0) { /* EAGAIN; or the owner has closed its end and will free the pump */
            event_add(pump->writable, NULL);
            return false;
        }
        pump->held_from += (size_t)n;
        pump->held -= (size_t)n;
    }
    return true;
}

/* After the handshake, a failure with a reason is one of TLS: the server refuses the client's
 * certificate, for example. */
static void lost(struct tls_pump *pump)
{
    const char *why = tls_fault_of(&pump->stream);

    if (why)
        pump_fail(pump, TLS_PUMP_FAILED, why);
    else
        pump_end(pump, TLS_PUMP_ENDED);
}

void tls_pump_receive(struct tls_pump *pump)
{
    while (pump->state == TLS_PUMP_OPEN && pump_to_owner(pump)) {
        ssize_t n = stream_read(&pump->stream, pump->bytes, sizeof pump->bytes);
        if (n == STREAM_AGAIN)
            break;
        if (n <= 0) {
            lost(pump);
            break;
        }
        pump->held_from = 0;
        pump->held = (size_t)n;
    }
    if (pump->state == TLS_PUMP_OPEN)
        stream_want_read(&pump->stream, pump->held == 0);
}

static void on_plain_writable(evutil_socket_t fd, short what, void *arg)
{
    struct tls_pump *pump = arg;
    (void)fd, (void)what;

    if (pump->state == TLS_PUMP_OPEN)
        tls_pump_receive(pump);
    else if (pump_to_owner(pump))
        shutdown(pump->plain, SHUT_WR);
}

/* --- From the owner to the server ------------------------------------------------------------- */

static void took(struct tls_pump *pump, enum sent sent)
{
    if (sent == SENT_FAILED) {
        tls_pump_receive(pump); /* the server's last words */
        if (pump->state == TLS_PUMP_OPEN)
            lost(pump);
    } else if (sent == SENT_PART)
        event_del(pump->readable);
    else
        event_add(pump->readable, NULL);
}

void tls_pump_send(struct tls_pump *pump)
{
    static _Thread_local char bytes[4 * PIECE];
    ssize_t n = sizeof bytes;

    while (n == (ssize_t)sizeof bytes && pump->state == TLS_PUMP_OPEN &&
           !stream_holds_output(&pump->stream)) {
        n = recv(pump->plain, bytes, sizeof bytes, 0);
        if (n > 0) {
            struct iovec piece = {bytes, (size_t)n};
            took(pump, stream_send(&pump->stream, &pump->buffers, &piece, 1));
        } else if (n == 0)
            event_del(pump->readable);
    }
}

static void on_plain_readable(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    tls_pump_send(arg);
}

/* --- Connecting and handshake ----------------------------------------------------------------- */

static void continue_handshake(struct tls_pump *pump)
{
    char why[TLS_WHY_MAX];

    switch (tls_handshake(&pump->stream)) {
    case TLS_AGAIN: break;
    case TLS_FAILED:
        tls_connect_failure(&pump->stream, why);
        pump->problem = tls_connect_problem(&pump->stream);
        pump_fail(pump, TLS_PUMP_FAILED, why);
        break;
    case TLS_DONE:
        pump->state = TLS_PUMP_OPEN;
        event_add(pump->readable, NULL);
        tls_pump_send(pump);
        tls_pump_receive(pump);
        break;
    }
}

static void on_server_readable(evutil_socket_t fd, short what, void *arg)
{
    struct tls_pump *pump = arg;
    (void)fd, (void)what;

    if (pump->state == TLS_PUMP_HANDSHAKE)
        continue_handshake(pump);
    else
        tls_pump_receive(pump);
}

static void pump_connected(struct tls_pump *pump, int error)
{
    stream_want_write(&pump->stream, false);
    if (error) {
        pump_fail(pump, TLS_PUMP_NOT_CONNECTED, strerror(error));
        return;
    }
    pump->state = TLS_PUMP_HANDSHAKE;
    if (tls_connect(&pump->stream, pump->client, pump->host, &pump->resumption))
        continue_handshake(pump);
    else
        pump_fail(pump, TLS_PUMP_FAILED, "no memory");
}

static void on_server_writable(evutil_socket_t fd, short what, void *arg)
{
    struct tls_pump *pump = arg;
    socklen_t size = sizeof(int);
    int error = 0;
    (void)what;

    if (pump->state != TLS_PUMP_CONNECTING) {
        took(pump, stream_flush(&pump->stream, &pump->buffers));
        return;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        error = errno;
    pump_connected(pump, error);
}

/* --- Create and free -------------------------------------------------------------------------- */

/* Opens the poller and the pair. Each descriptor that lacks is taken from the reserve. */
static bool open_descriptors(struct tls_pump *pump, struct event_base *base,
                             enum descriptor_use use, int pair[static 2])
{
    while (poller_init(&pump->poller, base, 1) != 0)
        if (!descriptors_lack(errno) || !descriptors_give(use, errno))
            return false;
    while (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        if (!descriptors_lack(errno) || !descriptors_give(use, errno))
            return false;
    return true;
}

static bool make_socket_pair(struct tls_pump *pump, struct event_base *base, int fd,
                             enum descriptor_use use, int *plain)
{
    int pair[2];

    if (!open_descriptors(pump, base, use, pair)) {
        close(fd);
        return false;
    }
    *plain = pair[0];
    pump->plain = pair[1];
    stream_open(&pump->stream, &pump->poller, fd, on_server_readable, on_server_writable, pump);
    pump->readable = event_new(base, pump->plain, EV_READ | EV_PERSIST, on_plain_readable, pump);
    pump->writable = event_new(base, pump->plain, EV_WRITE, on_plain_writable, pump);
    if (pump->readable && pump->writable) {
        stream_want_write(&pump->stream, true);
        return true;
    }
    close(pair[0]);
    return false;
}

struct tls_pump *tls_pump_new(struct event_base *base, int fd, enum descriptor_use use,
                              struct tls_client *client, const char *host, int *plain)
{
    struct tls_pump *pump = calloc(1, sizeof *pump);

    if (!pump) {
        close(fd);
        return NULL;
    }
    pump->client = client;
    pump->plain = -1;
    pump->poller.fd = pump->stream.fd = -1;
    snprintf(pump->host, sizeof pump->host, "%s", host);
    if (make_socket_pair(pump, base, fd, use, plain))
        return pump;
    int error = errno;
    tls_pump_free(pump);
    errno = error;
    return NULL;
}

void tls_pump_free(struct tls_pump *pump)
{
    if (!pump)
        return;
    event_drop(pump->readable);
    event_drop(pump->writable);
    if (pump->stream.fd >= 0)
        stream_close(&pump->stream, &pump->buffers);
    if (pump->plain >= 0)
        close(pump->plain);
    poller_clear(&pump->poller);
    iobuf_pool_clear(&pump->buffers);
    tls_resumption_clear(&pump->resumption);
    free(pump);
}

enum tls_pump_state tls_pump_state(const struct tls_pump *pump, enum tls_problem *problem,
                                   const char **why)
{
    *problem = pump->problem;
    *why = pump->why;
    return pump->state;
}
