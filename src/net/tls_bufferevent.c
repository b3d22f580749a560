#include "net/tls_bufferevent.h"

#include <event2/bufferevent_ssl.h>
#include <openssl/err.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "net/buffer_memory.h"
#include "net/tls_internal.h"

/* What belongs to an SSL of a bufferevent, and is released with it. */
struct accepted {
    struct tls_server *server;
    void (*failed)(void *context, evutil_socket_t fd, enum tls_failure failure);
    void *context;
    int64_t until_s;    /* see struct tls_certificate */
    evutil_socket_t fd; /* -1: the handshake has not begun */
    bool closed;        /* the client has closed the connection, which is no error of OpenSSL */
    bool over;          /* the handshake is done, or `failed` was called */
    bool counted;       /* in `under_way`, `count` and `memory` */
    TAILQ_ENTRY(accepted) entry;
};
TAILQ_HEAD(accepted_list, accepted);

/* Handshakes under way, the oldest first, and their memory. Main thread only. */
static struct accepted_list under_way = TAILQ_HEAD_INITIALIZER(under_way);
static unsigned count;
static struct buffer_memory memory;

static void end_handshake(struct accepted *accepted)
{
    accepted->over = true;
    if (!accepted->counted)
        return;
    memory_give(&memory, TLS_HANDSHAKE_BYTES);
    TAILQ_REMOVE(&under_way, accepted, entry);
    count--;
    accepted->counted = false;
}

static void fail_handshake(struct accepted *accepted, enum tls_failure failure)
{
    end_handshake(accepted);
    accepted->failed(accepted->context, accepted->fd, failure);
}

/* Returns whether the process has no memory left for another handshake, or these use an eighth of
 * size_limits.memory: a flood of them must not reset requests. */
static bool handshakes_full(void)
{
    memory_report(&memory); /* the level may have changed long ago */
    return count >= TLS_BUFFEREVENTS_ADMITTED &&
           (count >= memory_limit() / 8 / TLS_HANDSHAKE_BYTES || !memory_has_room(&memory));
}

/* Counts a handshake that begins. It takes the place of the oldest if there is no other: an
 * operator's takes milliseconds, and one that waits for its client would lock operators out. */
static void begin_handshake(struct accepted *accepted)
{
    struct accepted *oldest = handshakes_full() ? TAILQ_FIRST(&under_way) : NULL;

    if (oldest) {
        fail_handshake(oldest, TLS_FAILURE_DISPLACED);
        shutdown(oldest->fd, SHUT_RDWR); /* its bufferevent finds the end */
    }
    memory_take(&memory, TLS_HANDSHAKE_BYTES);
    TAILQ_INSERT_TAIL(&under_way, accepted, entry);
    count++;
    accepted->counted = true;
}

/* The bufferevent is freed, and `parent` with it: OpenSSL 3.2 and later have freed
 * its parts. */
static void on_bufferevent_freed(void *parent, void *data, CRYPTO_EX_DATA *all, int index,
                                 long number, void *pointer)
{
    struct accepted *accepted = data;
    (void)parent, (void)all, (void)index, (void)number, (void)pointer;

    if (!accepted)
        return;
    if (!accepted->over)
        fail_handshake(accepted, accepted->closed ? TLS_FAILURE_CLOSED : TLS_FAILURE_TIMEOUT);
    tls_server_drop(accepted->server);
    free(accepted);
}

static int index_of_accepted(void)
{
    static int index = -1;

    if (index < 0)
        index = SSL_get_ex_new_index(0, NULL, NULL, NULL, on_bufferevent_freed);
    return index;
}

static void on_state(const SSL *ssl, int where, int value)
{
    struct accepted *accepted = SSL_get_ex_data(ssl, index_of_accepted());
    unsigned long fault = (where & SSL_CB_EXIT) && value <= 0 ? ERR_peek_error() : 0;

    accepted->fd = SSL_get_fd(ssl);
    accepted->closed = !BIO_should_retry(SSL_get_rbio(ssl)); /* the BIO that also writes */
    if ((where & SSL_CB_HANDSHAKE_START) && !accepted->over && !accepted->counted)
        begin_handshake(accepted);
    else if ((where & SSL_CB_HANDSHAKE_DONE) && !accepted->over) {
        accepted->until_s = tls_verified_until(ssl, tls_server_clients(accepted->server));
        end_handshake(accepted);
    } else if (fault && !accepted->over)
        fail_handshake(accepted, tls_failure_of((int)SSL_get_verify_result(ssl), fault));
}

struct bufferevent *tls_bufferevent_new(struct event_base *base, struct tls_server *server,
                                        void (*failed)(void *context, evutil_socket_t fd,
                                                       enum tls_failure failure),
                                        void *context)
{
    struct accepted *accepted = calloc(1, sizeof *accepted);
    SSL *ssl = accepted ? tls_server_ssl(server) : NULL;

    if (!ssl || SSL_set_ex_data(ssl, index_of_accepted(), accepted) != 1) {
        SSL_free(ssl);
        free(accepted);
        return NULL;
    }
    accepted->server = tls_server_hold(server);
    accepted->failed = failed;
    accepted->context = context;
    accepted->fd = -1;
    accepted->until_s = INT64_MAX;
    SSL_set_info_callback(ssl, on_state);
    /* On failure, libevent frees the SSL, or nothing if it has no memory at all. */
    return bufferevent_openssl_socket_new(base, -1, ssl, BUFFEREVENT_SSL_ACCEPTING,
                                          BEV_OPT_CLOSE_ON_FREE);
}

static const struct accepted *accepted_of(struct bufferevent *bufferevent)
{
    const SSL *ssl = bufferevent_openssl_get_ssl(bufferevent);

    return ssl ? SSL_get_ex_data(ssl, index_of_accepted()) : NULL;
}

bool tls_bufferevent_has_expired(struct bufferevent *bufferevent)
{
    const struct accepted *accepted = accepted_of(bufferevent);

    return accepted && (int64_t)(clock_wall_us() / 1000000) >= accepted->until_s;
}

bool tls_bufferevent_is_verified(struct bufferevent *bufferevent, const struct tls_server *server)
{
    const struct accepted *accepted = accepted_of(bufferevent);

    return accepted && tls_server_same_clients(accepted->server, server) &&
           !tls_bufferevent_has_expired(bufferevent);
}
