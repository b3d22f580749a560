/* tls_layer.c - the layer between a stream and its socket, for TLS client and server. */
#include <errno.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/tls_internal.h"

enum { RECORD_MAX = 16 * 1024 }; /* RFC 8446 section 5.1 */

/* Returns whether data can be read without further input from the socket. */
static bool holds_input(const struct tls_session *t)
{
    return t->ended || t->failed || SSL_pending(t->ssl) > 0;
}

/* Waits for the events that the owner wants or that OpenSSL needs first. Input held by OpenSSL
 * wakes the stream, because the socket would not report it. */
static void watch_layer(struct stream *s)
{
    struct tls_session *t = s->session;
    bool read = (s->reading && !t->read_wants_write) || (s->writing && t->write_wants_read);
    bool write =
        (s->writing && !t->write_wants_read) || (s->reading && t->read_wants_write) || t->ending;

    watch_want(&s->watch, read, write);
    if (s->reading && holds_input(t))
        watch_wake(&s->watch);
}

/* Handles an OpenSSL call without progress. Returns the SSL_ERROR_ code that it waits for or failed
 * with. */
static int ssl_result(struct tls_session *t, int result)
{
    int error = SSL_get_error(t->ssl, result);

    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return error;
    if (error == SSL_ERROR_ZERO_RETURN)
        t->ended = true;
    else {
        t->failed = true;
        t->fault = ERR_peek_error();
    }
    return error;
}

static ssize_t failed(void)
{
    errno = ECONNRESET;
    return STREAM_FAILED;
}

/* Handles an SSL_read() that returned no data. */
static ssize_t read_nothing(struct stream *s, struct tls_session *t, int result)
{
    int error = ssl_result(t, result);

    if (t->failed)
        return failed();
    if (t->ended) {
        s->eof = true;
        return 0;
    }
    t->read_wants_write = error == SSL_ERROR_WANT_WRITE;
    watch_layer(s);
    return STREAM_AGAIN;
}

/* Reads record by record, as long as records are full or already buffered. */
static ssize_t layer_read(struct stream *s, char *bytes, size_t size)
{
    struct tls_session *t = s->session;
    size_t got = 0;
    int n;

    if (t->failed)
        return failed();
    do {
        size_t room = size - got < RECORD_MAX ? size - got : RECORD_MAX;
        ERR_clear_error();
        n = SSL_read(t->ssl, bytes + got, (int)room);
        if (n <= 0 && got == 0)
            return read_nothing(s, t, n);
        if (n <= 0) {
            t->read_wants_write = ssl_result(t, n) == SSL_ERROR_WANT_WRITE;
            break;
        }
        got += (size_t)n;
    } while (got < size && (n == RECORD_MAX || SSL_pending(t->ssl) > 0));
    watch_layer(s);
    return (ssize_t)got;
}

/* Position in the pieces while writing. */
struct cursor {
    const struct iovec *pieces;
    int count;
    size_t offset; /* into the first piece */
};

static void cursor_skip(struct cursor *c, size_t n)
{
    while (c->count && n >= c->pieces->iov_len - c->offset) {
        n -= c->pieces->iov_len - c->offset;
        c->pieces++;
        c->count--;
        c->offset = 0;
    }
    c->offset += n;
}

/* Returns the content of the next record. Large pieces are used in place; small ones are gathered,
 * so that a head, a chunk line and a first piece share a record. */
static struct slice next_record(struct cursor c, char *gathered)
{
    cursor_skip(&c, 0);
    if (c.count == 0)
        return SLICE_NONE;
    const char *first = (const char *)c.pieces->iov_base + c.offset;
    size_t n = c.pieces->iov_len - c.offset;
    if (n >= RECORD_MAX || c.count == 1)
        return (struct slice){first, n < RECORD_MAX ? n : RECORD_MAX};
    size_t filled = 0;
    for (; c.count && filled < RECORD_MAX; c.pieces++, c.count--, c.offset = 0) {
        n = c.pieces->iov_len - c.offset;
        n = n < RECORD_MAX - filled ? n : RECORD_MAX - filled;
        memcpy(gathered + filled, (const char *)c.pieces->iov_base + c.offset, n);
        filled += n;
    }
    return (struct slice){gathered, filled};
}

/* Handles a write that made no progress or failed. After a failed write, OpenSSL can still read the
 * received records: a server may respond early and then close with a reset. */
static void wrote_nothing(struct tls_session *t, int result)
{
    int error = SSL_get_error(t->ssl, result);

    t->write_wants_read = error == SSL_ERROR_WANT_READ;
    if (error == SSL_ERROR_SYSCALL || error == SSL_ERROR_ZERO_RETURN)
        t->write_failed = true;
    else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE)
        (void)ssl_result(t, result);
}

/* A record that OpenSSL has started must be offered again. Its bytes are then the first in the
 * stream's `out`. */
static ssize_t layer_write(struct stream *s, const struct iovec *pieces, int count)
{
    static _Thread_local char gathered[RECORD_MAX];
    struct tls_session *t = s->session;
    struct cursor c = {pieces, count, 0};
    size_t taken = 0;

    for (struct slice record;
         !t->failed && !t->write_failed && (record = next_record(c, gathered)).n;) {
        ERR_clear_error();
        int n = SSL_write(t->ssl, record.p, (int)record.n);
        if (n <= 0) {
            wrote_nothing(t, n);
            break;
        }
        taken += (size_t)n;
        cursor_skip(&c, (size_t)n);
    }
    if (t->failed || t->write_failed)
        return -1;
    watch_layer(s);
    return (ssize_t)taken;
}

static bool layer_holds(const struct stream *s)
{
    return holds_input(s->session);
}

/* RFC 8446 section 6.1: sends close_notify, then shuts down the sending side of the socket. */
static bool layer_end(struct stream *s)
{
    struct tls_session *t = s->session;

    if (t->end_sent || t->ending)
        return true;
    if (t->failed || t->write_failed)
        return false;
    ERR_clear_error();
    int sent = SSL_shutdown(t->ssl);
    t->ending = sent < 0 && SSL_get_error(t->ssl, sent) == SSL_ERROR_WANT_WRITE;
    t->end_sent = sent >= 0;
    t->failed = !t->ending && !t->end_sent;
    watch_layer(s);
    return t->ending || (t->end_sent && shutdown(s->fd, SHUT_WR) == 0);
}

static void layer_close(struct stream *s, bool politely)
{
    struct tls_session *t = s->session;

    ERR_clear_error();
    if (politely && t->handshaken && !t->failed && !t->write_failed && !t->end_sent && !s->out)
        (void)SSL_shutdown(t->ssl);
    SSL_free(t->ssl);
    ERR_clear_error();
    tls_server_drop(t->server);
    free(t->verdict);
    free(t);
    s->session = NULL;
}

static const struct stream_layer layer = {layer_read,  layer_write, watch_layer,
                                          layer_holds, layer_end,   layer_close};

/* ---- events ---------------------------------------------------------------------------------- */

/* Calls one of the owner's callbacks, which may close the stream. The stream's memory is valid
 * until the loop iteration ends. Returns false if the stream was closed. */
static bool call_owner(struct stream *s, struct tls_session *t, event_callback_fn callback,
                       short what)
{
    callback(s->fd, what, t->context);
    return s->session == t;
}

static void on_socket_readable(evutil_socket_t fd, short what, void *arg)
{
    struct stream *s = arg;
    struct tls_session *t = s->session;
    (void)fd;

    if (t->write_wants_read) {
        t->write_wants_read = false;
        if (s->writing && !call_owner(s, t, t->on_writable, EV_WRITE))
            return;
    }
    if (call_owner(s, t, t->on_readable, what))
        watch_layer(s);
}

static void on_socket_writable(evutil_socket_t fd, short what, void *arg)
{
    struct stream *s = arg;
    struct tls_session *t = s->session;
    (void)fd, (void)what;

    if (t->ending) {
        t->ending = false;
        (void)layer_end(s);
    }
    if (t->read_wants_write) {
        t->read_wants_write = false;
        if (!call_owner(s, t, t->on_readable, EV_READ))
            return;
    }
    if (s->writing && !t->write_wants_read && !call_owner(s, t, t->on_writable, EV_WRITE))
        return;
    watch_layer(s);
}

struct tls_session *tls_layer_begin(struct stream *s, SSL *ssl)
{
    struct tls_session *t = calloc(1, sizeof *t);

    stream_want_read(s, false);
    stream_want_write(s, false);
    if (!ssl || !t || SSL_set_fd(ssl, s->fd) != 1) {
        SSL_free(ssl);
        free(t);
        return NULL;
    }
    t->ssl = ssl;
    SSL_set_app_data(ssl, t);
    t->on_readable = s->watch.on_readable;
    t->on_writable = s->watch.on_writable;
    t->context = s->watch.context;
    s->watch.on_readable = on_socket_readable;
    s->watch.on_writable = on_socket_writable;
    s->watch.context = s;
    s->layer = &layer;
    s->session = t;
    return t;
}

const char *tls_fault_of(const struct stream *s)
{
    const struct tls_session *t = s->layer == &layer ? s->session : NULL;

    if (!t || !t->failed || ERR_GET_REASON(t->fault) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
        return NULL;
    return ERR_reason_error_string(t->fault);
}

enum tls_handshake tls_handshake(struct stream *s)
{
    struct tls_session *t = s->session;

    ERR_clear_error();
    int result = SSL_do_handshake(t->ssl);
    clock_cached_read(); /* a signature takes a millisecond */
    t->handshaken = result == 1;
    int error = t->handshaken ? SSL_ERROR_NONE : ssl_result(t, result);
    if (t->failed || t->ended)
        return TLS_FAILED;
    t->read_wants_write = error == SSL_ERROR_WANT_WRITE;
    watch_layer(s);
    return t->handshaken ? TLS_DONE : TLS_AGAIN;
}

/* Returns whether OpenSSL has read the start of an HTTP/1 request. It recognises four methods. For
 * others, the rest of the request line is still in the socket: OpenSSL reads 5 bytes first. */
static bool was_plain_http(const struct stream *s, const struct tls_session *t)
{
    static const char version[] = " HTTP/1.";
    char rest[1024];
    int reason = ERR_GET_REASON(t->fault);

    if (!t->failed || reason != SSL_R_WRONG_VERSION_NUMBER)
        return t->failed && reason == SSL_R_HTTP_REQUEST;
    ssize_t n = recv(s->fd, rest, sizeof rest, MSG_PEEK | MSG_DONTWAIT);
    const char *end = n > 0 ? memchr(rest, '\n', (size_t)n) : NULL;
    return end && memmem(rest, (size_t)(end - rest), version, sizeof version - 1);
}

void tls_end(struct stream *s)
{
    struct tls_session *t = s->session;

    s->watch.on_readable = t->on_readable;
    s->watch.on_writable = t->on_writable;
    s->watch.context = t->context;
    layer_close(s, false);
    s->layer = NULL;
    watch_want(&s->watch, s->reading, s->writing);
}

bool tls_end_for_plain_http(struct stream *s)
{
    if (!was_plain_http(s, s->session))
        return false;
    tls_end(s);
    return true;
}
