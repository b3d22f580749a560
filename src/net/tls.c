#include "net/tls.h"

#include "config.h"

#ifdef HAVE_OPENSSL

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { RECORD_MAX = 16 * 1024 }; /* RFC 8446 section 5.1 */

bool tls_is_there(void)
{
    return true;
}

/* ---- certificates ------------------------------------------------------------------------------------ */

struct tls_server {
    atomic_uint references;
    unsigned count;
    SSL_CTX **contexts; /* one for each certificate */
};

struct tls_server *tls_server_new(void)
{
    struct tls_server *server = calloc(1, sizeof *server);
    if (server)
        atomic_init(&server->references, 1);
    return server;
}

struct tls_server *tls_server_hold(struct tls_server *server)
{
    if (server)
        atomic_fetch_add_explicit(&server->references, 1, memory_order_relaxed);
    return server;
}

void tls_server_drop(struct tls_server *server)
{
    if (!server || atomic_fetch_sub_explicit(&server->references, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < server->count; i++)
        SSL_CTX_free(server->contexts[i]);
    free(server->contexts);
    free(server);
}

/* RFC 6066 section 3: the first certificate that is for the host. */
static int choose_certificate(SSL *ssl, int *alert, void *arg)
{
    const struct tls_server *server = arg;
    const char *name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;

    for (unsigned i = 0; name && i < server->count; i++) {
        X509 *certificate = SSL_CTX_get0_certificate(server->contexts[i]);
        if (X509_check_host(certificate, name, 0, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS, NULL) == 1) {
            SSL_set_SSL_CTX(ssl, server->contexts[i]);
            return SSL_TLSEXT_ERR_OK;
        }
    }
    return SSL_TLSEXT_ERR_NOACK;
}

/* RFC 7301 section 3.2: a client that speaks other protocols only is told so. */
static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *size,
                           const unsigned char *offered, unsigned offered_size, void *arg)
{
    static const unsigned char spoken[] = "\x08http/1.1";
    unsigned char *chosen;
    (void)ssl, (void)arg;

    if (SSL_select_next_proto(&chosen, size, spoken, sizeof spoken - 1, offered, offered_size) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *context_new(struct tls_server *server)
{
    static const unsigned char session_context[] = "weir";
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    if (!ctx)
        return NULL;
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
        !SSL_CTX_set_cipher_list(ctx, "ECDHE+AESGCM:ECDHE+CHACHA20") ||
        !SSL_CTX_set_session_id_context(ctx, session_context, sizeof session_context - 1)) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    /* An answer that is offered again lies elsewhere by then; an idle connection keeps no buffers; a peer that
     * sends nothing but handshake messages does not keep the worker in SSL_read. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF); /* tickets: workers share no table of sessions */
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    SSL_CTX_set_tlsext_servername_callback(ctx, choose_certificate);
    SSL_CTX_set_tlsext_servername_arg(ctx, server);
    return ctx;
}

/* A key that needs a passphrase is refused: nobody is there to be asked. */
static int no_passphrase(char *buffer, int size, int writing, void *arg)
{
    bool *asked = arg;
    (void)buffer, (void)size, (void)writing;
    *asked = true;
    return -1;
}

/* Says what OpenSSL holds against a file. */
static void say_why(char why[static TLS_WHY_MAX], const char *wanted)
{
    unsigned long error = ERR_peek_error();
    const char *reason = ERR_reason_error_string(error);

    if (ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE)
        snprintf(why, TLS_WHY_MAX, "holds no PEM %s", wanted);
    else if (ERR_GET_LIB(error) == ERR_LIB_X509 && ERR_GET_REASON(error) == X509_R_KEY_VALUES_MISMATCH)
        snprintf(why, TLS_WHY_MAX, "is not the key of the certificate");
    else
        snprintf(why, TLS_WHY_MAX, "is no usable %s: %s", wanted, reason ? reason : "unknown fault");
    ERR_clear_error();
}

static bool can_be_read(const char *path, char why[static TLS_WHY_MAX])
{
    FILE *file = fopen(path, "re");
    int c = file ? fgetc(file) : EOF; /* a directory opens */
    bool good = file && !ferror(file);

    (void)c;
    if (!good)
        snprintf(why, TLS_WHY_MAX, "cannot be read: %s", strerror(errno));
    if (file)
        fclose(file);
    return good;
}

static enum tls_fault load(SSL_CTX *ctx, const char *certificate, const char *key,
                           char why[static TLS_WHY_MAX])
{
    ERR_clear_error();
    if (!can_be_read(certificate, why))
        return TLS_BAD_CERTIFICATE;
    if (SSL_CTX_use_certificate_chain_file(ctx, certificate) != 1) {
        say_why(why, "certificate");
        return TLS_BAD_CERTIFICATE;
    }
    if (!can_be_read(key, why))
        return TLS_BAD_KEY;
    bool asked = false;
    SSL_CTX_set_default_passwd_cb(ctx, no_passphrase);
    SSL_CTX_set_default_passwd_cb_userdata(ctx, &asked);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 || SSL_CTX_check_private_key(ctx) != 1) {
        say_why(why, "private key");
        if (asked)
            snprintf(why, TLS_WHY_MAX, "needs a passphrase, and nobody is there to be asked");
        return TLS_BAD_KEY;
    }
    return TLS_GOOD;
}

enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                              char why[static TLS_WHY_MAX])
{
    SSL_CTX **more = realloc(server->contexts, (server->count + 1) * sizeof *more);
    SSL_CTX *ctx = more ? context_new(server) : NULL;

    if (more)
        server->contexts = more;
    snprintf(why, TLS_WHY_MAX, "cannot be used: no memory");
    enum tls_fault fault = ctx ? load(ctx, certificate, key, why) : TLS_BAD_CERTIFICATE;
    if (fault == TLS_GOOD)
        server->contexts[server->count++] = ctx;
    else
        SSL_CTX_free(ctx);
    return fault;
}

/* ---- the layer --------------------------------------------------------------------------------------- */

struct tls_session {
    SSL *ssl;
    struct tls_server *server; /* held */
    event_callback_fn on_readable, on_writable;
    void *context; /* the stream's owner and its callbacks */
    bool read_added, write_added;
    bool read_wants_write, write_wants_read; /* reading waits until the socket takes bytes, and the reverse */
    bool handshaken;
    bool ended;  /* the peer's close_notify was read */
    bool failed; /* OpenSSL must not be called again for this connection but to free it */
    bool ending; /* our close_notify waits until the socket takes it */
    bool end_sent;
};

/* Something can be read without anything more from the socket. */
static bool holds_input(const struct tls_session *t)
{
    return t->ended || t->failed || SSL_pending(t->ssl) > 0;
}

static void set_event(struct event *event, bool *added, bool wanted)
{
    if (*added == wanted)
        return;
    *added = wanted;
    if (wanted)
        event_add(event, NULL);
    else
        event_del(event);
}

/* Waits for what the owner wants, or for what OpenSSL wants first. What OpenSSL holds is as good as readable: no
 * event of the socket would tell of it. */
static void wait_for(struct stream *s)
{
    struct tls_session *t = s->session;
    bool read = (s->reading && !t->read_wants_write) || (s->writing && t->write_wants_read);
    bool write = (s->writing && !t->write_wants_read) || (s->reading && t->read_wants_write) || t->ending;

    set_event(&s->readable, &t->read_added, read);
    set_event(&s->writable, &t->write_added, write);
    if (s->reading && holds_input(t))
        event_active(&s->readable, EV_READ, 0);
}

/* What a call of OpenSSL that gave nothing waits for, if anything. */
static int result_of(struct tls_session *t, int result)
{
    int error = SSL_get_error(t->ssl, result);

    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return error;
    if (error == SSL_ERROR_ZERO_RETURN)
        t->ended = true;
    else
        t->failed = true;
    return error;
}

static ssize_t failed(void)
{
    errno = ECONNRESET;
    return STREAM_FAILED;
}

/* Nothing was read. */
static ssize_t read_nothing(struct stream *s, struct tls_session *t, int result)
{
    int error = result_of(t, result);

    if (t->failed)
        return failed();
    if (t->ended) {
        s->eof = true;
        return 0;
    }
    t->read_wants_write = error == SSL_ERROR_WANT_WRITE;
    wait_for(s);
    return STREAM_AGAIN;
}

/* Records one after the other, as long as they were full or are here already. */
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
            t->read_wants_write = result_of(t, n) == SSL_ERROR_WANT_WRITE;
            break;
        }
        got += (size_t)n;
    } while (got < size && (n == RECORD_MAX || SSL_pending(t->ssl) > 0));
    wait_for(s);
    return (ssize_t)got;
}

/* Where writing is among the pieces. */
struct cursor {
    const struct iovec *pieces;
    int count;
    size_t offset; /* into the first */
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

/* The next record's content: a large piece where it lies, small ones gathered, so that a head, a chunk line and
 * a first piece are not a record each. */
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

/* A record that OpenSSL has begun must be offered again: its bytes are then the first of the stream's `out`. */
static ssize_t layer_write(struct stream *s, const struct iovec *pieces, int count)
{
    static _Thread_local char gathered[RECORD_MAX];
    struct tls_session *t = s->session;
    struct cursor c = {pieces, count, 0};
    size_t taken = 0;

    for (struct slice record; !t->failed && (record = next_record(c, gathered)).n;) {
        ERR_clear_error();
        int n = SSL_write(t->ssl, record.p, (int)record.n);
        if (n <= 0) {
            t->write_wants_read = result_of(t, n) == SSL_ERROR_WANT_READ;
            t->failed |= t->ended;
            break;
        }
        taken += (size_t)n;
        cursor_skip(&c, (size_t)n);
    }
    if (t->failed)
        return -1;
    wait_for(s);
    return (ssize_t)taken;
}

static bool layer_holds(const struct stream *s)
{
    return holds_input(s->session);
}

/* RFC 8446 section 6.1: close_notify, then the socket's own end. */
static bool layer_end(struct stream *s)
{
    struct tls_session *t = s->session;

    if (t->end_sent || t->ending)
        return true;
    if (t->failed)
        return false;
    ERR_clear_error();
    int sent = SSL_shutdown(t->ssl);
    t->ending = sent < 0 && SSL_get_error(t->ssl, sent) == SSL_ERROR_WANT_WRITE;
    t->end_sent = sent >= 0;
    t->failed = !t->ending && !t->end_sent;
    wait_for(s);
    return t->ending || (t->end_sent && shutdown(s->fd, SHUT_WR) == 0);
}

static void layer_close(struct stream *s, bool politely)
{
    struct tls_session *t = s->session;

    ERR_clear_error();
    if (politely && t->handshaken && !t->failed && !t->end_sent && !s->out)
        (void)SSL_shutdown(t->ssl);
    SSL_free(t->ssl);
    ERR_clear_error();
    tls_server_drop(t->server);
    free(t);
    s->session = NULL;
}

static const struct stream_layer layer = {layer_read,  layer_write, wait_for,
                                          layer_holds, layer_end,   layer_close};

/* ---- events ------------------------------------------------------------------------------------------ */

/* The owner may close the stream in any of its callbacks; its memory lasts until the loop turn ends. */
static bool tell(struct stream *s, struct tls_session *t, event_callback_fn callback, short what)
{
    callback(s->fd, what, t->context);
    return s->session == t;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct stream *s = arg;
    struct tls_session *t = s->session;
    (void)fd, (void)what;

    if (t->write_wants_read) {
        t->write_wants_read = false;
        if (s->writing && !tell(s, t, t->on_writable, EV_WRITE))
            return;
    }
    if (tell(s, t, t->on_readable, EV_READ))
        wait_for(s);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
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
        if (!tell(s, t, t->on_readable, EV_READ))
            return;
    }
    if (s->writing && !t->write_wants_read && !tell(s, t, t->on_writable, EV_WRITE))
        return;
    wait_for(s);
}

bool tls_accept(struct stream *s, struct tls_server *server)
{
    struct event_base *base = event_get_base(&s->readable);
    struct tls_session *t = calloc(1, sizeof *t);

    stream_want_read(s, false);
    stream_want_write(s, false);
    if (!t)
        return false;
    if (!(t->ssl = SSL_new(server->contexts[0])) || SSL_set_fd(t->ssl, s->fd) != 1) {
        SSL_free(t->ssl);
        free(t);
        return false;
    }
    t->server = tls_server_hold(server);
    t->on_readable = event_get_callback(&s->readable);
    t->on_writable = event_get_callback(&s->writable);
    t->context = event_get_callback_arg(&s->readable);
    event_assign(&s->readable, base, s->fd, EV_READ | EV_PERSIST, on_readable, s);
    event_assign(&s->writable, base, s->fd, EV_WRITE | EV_PERSIST, on_writable, s);
    s->layer = &layer;
    s->session = t;
    return true;
}

enum tls_handshake tls_handshake(struct stream *s)
{
    struct tls_session *t = s->session;

    ERR_clear_error();
    int result = SSL_accept(t->ssl);
    t->handshaken = result == 1;
    int error = t->handshaken ? SSL_ERROR_NONE : result_of(t, result);
    if (t->failed || t->ended)
        return TLS_FAILED;
    t->read_wants_write = error == SSL_ERROR_WANT_WRITE;
    wait_for(s);
    return t->handshaken ? TLS_DONE : TLS_AGAIN;
}

#else

bool tls_is_there(void)
{
    return false;
}

struct tls_server *tls_server_new(void)
{
    return NULL;
}

struct tls_server *tls_server_hold(struct tls_server *server)
{
    return server;
}

void tls_server_drop(struct tls_server *server)
{
    (void)server;
}

enum tls_fault tls_server_add(struct tls_server *server, const char *certificate, const char *key,
                              char why[static TLS_WHY_MAX])
{
    (void)server, (void)certificate, (void)key;
    why[0] = 0;
    return TLS_BAD_CERTIFICATE;
}

bool tls_accept(struct stream *stream, struct tls_server *server)
{
    (void)stream, (void)server;
    return false;
}

enum tls_handshake tls_handshake(struct stream *stream)
{
    (void)stream;
    return TLS_FAILED;
}

#endif
