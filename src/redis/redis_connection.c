#include "redis/redis_connection.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/magic.h"
#include "redis/redis_reply_reader.h"
#include "redis/secure.h"
#include "redis/socket.h"

enum {
    CONNECTION_MAGIC = 0x54414c4b,
    UNREAD_MAX = 8 << 20, /* bytes of an incomplete reply: fits the map of a very large cluster */
};

struct redis_connection {
    uint32_t magic;
    struct address address;
    struct bufferevent *stream;
    struct tls_pump *tls; /* under the stream; NULL: no TLS */
    redisReader *reader;
    struct redis_reply_reader replies;
    struct redis_connection_callbacks callbacks;
    bool logging_in; /* the next reply belongs to AUTH */
    bool connected;  /* without TLS */
    bool replied;    /* a reply was received */
    bool malformed;  /* a reply had an unexpected format */
    bool mute;       /* it closed the connection without a reply, as if it required TLS */
    bool in_callback;
    bool over;     /* freed from inside a callback */
    bool starting; /* inside redis_connection_new(), which reports an immediate failure itself */
    int failed;    /* errno of that failure; 0: none */
};

/* --- Receiving -------------------------------------------------------------------------------- */

static void connection_end(struct redis_connection *connection)
{
    if (connection->stream)
        bufferevent_free(connection->stream);
    if (connection->reader)
        redisReaderFree(connection->reader);
    tls_pump_free(connection->tls);
    MAGIC_WIPE(connection);
    free(connection);
}

static void lose_connection(struct redis_connection *connection, const char *why)
{
    connection->in_callback = true;
    bufferevent_disable(connection->stream, EV_READ | EV_WRITE);
    connection->callbacks.lost(connection->callbacks.context, why);
    connection->in_callback = false;
}

static void pass_on(struct redis_connection *connection, struct redis_reply *reply)
{
    bool login = connection->logging_in;

    connection->replied = true;
    connection->logging_in = false;
    if (login && reply->type != RESP_ERROR)
        return;
    connection->in_callback = true;
    connection->callbacks.received(connection->callbacks.context, reply);
    connection->in_callback = false;
}

static bool feed(struct redis_connection *connection, struct evbuffer *in)
{
    char bytes[4096];

    for (int n; (n = evbuffer_remove(in, bytes, sizeof bytes)) > 0;)
        if (redisReaderFeed(connection->reader, bytes, (size_t)n) != REDIS_OK)
            return false;
    return true;
}

static void on_read(struct bufferevent *stream, void *arg)
{
    struct redis_connection *connection = arg;
    void *reply = NULL;
    bool good;

    MAGIC_CHECK(connection, CONNECTION_MAGIC);
    good = feed(connection, bufferevent_get_input(stream));
    while (good && !connection->over) {
        good = redisReaderGetReply(connection->reader, &reply) == REDIS_OK &&
               connection->reader->len - connection->reader->pos <= UNREAD_MAX;
        if (!reply)
            break;
        if (good)
            pass_on(connection, reply);
        redis_reply_free(reply);
    }
    connection->malformed = !good;
    if (!good && !connection->over)
        lose_connection(connection, "a reply in an unexpected format");
    if (connection->over)
        connection_end(connection);
}

static void on_event(struct bufferevent *stream, short what, void *arg)
{
    struct redis_connection *connection = arg;
    char last_words[128];

    MAGIC_CHECK(connection, CONNECTION_MAGIC);
    if (what & BEV_EVENT_CONNECTED) {
        connection->connected = true;
        redis_socket_options(bufferevent_getfd(stream), &connection->address);
        return;
    }
    if (connection->starting) {
        connection->failed = EVUTIL_SOCKET_ERROR();
        connection->failed = connection->failed ? connection->failed : ECONNREFUSED;
        return;
    }
    const char *why = what & BEV_EVENT_EOF ? "it closed the connection"
                                           : evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR());
    connection->mute =
        connection->connected && !connection->replied && !address_is_unix(&connection->address);
    if (connection->mute)
        why = "it closed the connection without a reply, as a server does that requires TLS";
    if (redis_secure_failure(connection->tls, false, &why) == REDIS_OK_ANSWER &&
        redis_socket_last_words(bufferevent_getfd(stream), last_words, sizeof last_words)) {
        why = last_words;
        connection->mute = false;
    }
    lose_connection(connection, why);
    if (connection->over)
        connection_end(connection);
}

const char *redis_connection_timeout(const struct redis_connection *connection)
{
    const char *detail;

    return redis_secure_failure(connection->tls, true, &detail) == REDIS_FAILURE_TLS_TIMEOUT
               ? "no TLS handshake in time; a server without TLS does not answer it"
               : "no reply in time";
}

enum redis_failure redis_connection_failure(const struct redis_connection *connection,
                                            bool timed_out)
{
    const char *detail;
    enum redis_failure failure = redis_secure_failure(connection->tls, timed_out, &detail);

    return failure != REDIS_OK_ANSWER             ? failure
           : connection->malformed                ? REDIS_FAILURE_REPLY
           : connection->mute && !connection->tls ? REDIS_FAILURE_TLS_REQUIRED
                                                  : REDIS_FAILURE_CONNECT;
}

/* --- Sending ---------------------------------------------------------------------------------- */

bool redis_connection_send(struct redis_connection *connection, int argc, const char *const *argv,
                           const size_t *sizes)
{
    char *command;
    long long size = redisFormatCommandArgv(&command, argc, (const char **)(uintptr_t)argv, sizes);

    if (size < 0)
        return false;
    bool good = bufferevent_write(connection->stream, command, (size_t)size) == 0;
    redisFreeCommand(command);
    return good;
}

static bool log_in(struct redis_connection *connection, const char *username, const char *password)
{
    if (!password)
        return true;
    connection->logging_in = true;
    return username
               ? redis_connection_send(connection, 3, (const char *[]){"AUTH", username, password},
                                       NULL)
               : redis_connection_send(connection, 2, (const char *[]){"AUTH", password}, NULL);
}

/* --- Create and free -------------------------------------------------------------------------- */

/* Returns the socket for the stream: -1 if the stream connects itself. False: errno is set. */
static bool connect_tls(struct redis_connection *connection, struct event_base *base,
                        const struct redis_settings *settings, int *fd)
{
    *fd = -1;
    if (!settings->tls.on)
        return true;
    int connecting = redis_socket_open(&connection->address);
    if (connecting >= 0)
        connection->tls = redis_secure(base, settings, &connection->address, connecting, fd);
    connection->failed = connection->tls ? 0 : errno;
    return connection->tls != NULL;
}

static bool open_stream(struct redis_connection *connection, struct event_base *base,
                        const struct redis_settings *settings)
{
    static const unsigned always = 1; /* nonzero: pushed messages are unsolicited */
    struct address *to = &connection->address;
    int fd;

    if (to->length == 0 || !connect_tls(connection, base, settings, &fd))
        return false;
    if (!(connection->stream = bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE))) {
        if (fd >= 0)
            close(fd);
        return false;
    }
    if (!(connection->reader = redisReaderCreate()))
        return false;
    redis_reply_reader_install(&connection->replies, connection->reader, &always);
    bufferevent_setcb(connection->stream, on_read, NULL, on_event, connection);
    if (bufferevent_enable(connection->stream, EV_READ | EV_WRITE) != 0)
        return false;
    if (fd >= 0 || bufferevent_socket_connect(connection->stream, &to->any, (int)to->length) == 0)
        return true;
    connection->failed = errno; /* at once, as for the path of a socket that does not exist */
    return false;
}

struct redis_connection *redis_connection_new(struct event_base *base,
                                              const struct redis_settings *settings,
                                              const struct address *address, const char *username,
                                              const char *password,
                                              const struct redis_connection_callbacks *callbacks)
{
    struct redis_connection *connection = calloc(1, sizeof *connection);

    if (!connection)
        return NULL;
    MAGIC_SET(connection, CONNECTION_MAGIC);
    connection->address = *address;
    connection->callbacks = *callbacks;
    connection->starting = true;
    bool good = open_stream(connection, base, settings) && log_in(connection, username, password) &&
                !connection->failed;
    connection->starting = false;
    if (good)
        return connection;
    int failed = connection->failed;
    connection_end(connection);
    errno = failed;
    return NULL;
}

void redis_connection_free(struct redis_connection *connection)
{
    if (!connection)
        return;
    if (connection->in_callback)
        connection->over = true;
    else
        connection_end(connection);
}
