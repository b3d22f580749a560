/* upstream.c - a small HTTP API behind weir: the demo of ./quickstart and the origin server of the
 * integration tests.
 *
 *   upstream [--listen 127.0.0.1:0 | --listen unix:/path]      prints "listening on ADDRESS" once it accepts
 *
 *   GET /            a greeting as JSON
 *   /echo            the request as received: method, target, fields in order, length and CRC-32 of
 *                    its body
 *   /status/NNN      a response with this status
 *   /bytes/N         N bytes with Content-Length
 *   /chunked/N       the same, chunked
 *   /slow?ms=N       responds after N milliseconds
 *   /close           closes the connection after the response
 *   /stats           connections accepted and requests served so far
 *
 * It ends on SIGTERM or SIGINT, and with the process that started it. Byte i of a body is
 * "a" + i mod 26. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/queue.h>
#include <sys/un.h>
#include <unistd.h>

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <event2/util.h>

#include "base/macros.h"

enum { PATTERN_SIZE = 26 * 2520 }; /* about 64 KiB; a multiple of 26, so that pieces join up */

static char pattern[PATTERN_SIZE];
static struct event_base *base;
static unsigned long connections, requests;

static void pattern_init(void)
{
    for (int i = 0; i < PATTERN_SIZE; i++)
        pattern[i] = (char)('a' + i % 26);
}

/* CRC-32, compatible with zlib. */
static uint32_t crc32_of(const unsigned char *bytes, size_t size, uint32_t crc)
{
    static uint32_t table[256];
    if (table[1] == 0)
        for (uint32_t i = 0; i < 256; i++) {
            table[i] = i;
            for (int bit = 0; bit < 8; bit++)
                table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
        }
    crc = ~crc;
    for (size_t i = 0; i < size; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
    return ~crc;
}

static uint32_t crc32_of_buffer(struct evbuffer *buffer)
{
    struct evbuffer_ptr at;
    struct evbuffer_iovec piece;
    uint32_t crc = 0;
    evbuffer_ptr_set(buffer, &at, 0, EVBUFFER_PTR_SET);
    while (evbuffer_peek(buffer, -1, &at, &piece, 1) > 0) {
        crc = crc32_of(piece.iov_base, piece.iov_len, crc);
        if (evbuffer_ptr_set(buffer, &at, piece.iov_len, EVBUFFER_PTR_ADD) != 0)
            break;
    }
    return crc;
}

/* Writes `text` as a JSON string. Bytes from 128 up are encoded as Latin-1 characters, so that no
 * byte is lost. */
static void json_string(struct evbuffer *out, const char *text)
{
    evbuffer_add(out, "\"", 1);
    for (const unsigned char *p = (const unsigned char *)text; *p; p++)
        if (*p == '"' || *p == '\\')
            evbuffer_add_printf(out, "\\%c", *p);
        else if (*p < 0x20 || *p >= 0x7f)
            evbuffer_add_printf(out, "\\u%04x", *p);
        else
            evbuffer_add(out, p, 1);
    evbuffer_add(out, "\"", 1);
}

static const char *method_name(enum evhttp_cmd_type method)
{
    switch (method) {
    case EVHTTP_REQ_GET: return "GET";
    case EVHTTP_REQ_POST: return "POST";
    case EVHTTP_REQ_HEAD: return "HEAD";
    case EVHTTP_REQ_PUT: return "PUT";
    case EVHTTP_REQ_DELETE: return "DELETE";
    case EVHTTP_REQ_OPTIONS: return "OPTIONS";
    case EVHTTP_REQ_TRACE: return "TRACE";
    case EVHTTP_REQ_CONNECT: return "CONNECT";
    case EVHTTP_REQ_PATCH: return "PATCH";
    }
    return "?";
}

static void set_field(struct evhttp_request *request, const char *name, const char *value)
{
    struct evkeyvalq *fields = evhttp_request_get_output_headers(request);
    evhttp_remove_header(fields, name);
    evhttp_add_header(fields, name, value);
}

static void set_content_length(struct evhttp_request *request, unsigned long long length)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", length);
    set_field(request, "Content-Length", text);
}

static bool has_content(struct evhttp_request *request, int status)
{
    return evhttp_request_get_command(request) != EVHTTP_REQ_HEAD && status >= 200 &&
           status != 204 && status != 304;
}

/* Responds with `body` and frees it. For HEAD and 304, sends only the length;
 * for 204, neither. */
static void respond(struct evhttp_request *request, int status, struct evbuffer *body)
{
    set_field(request, "Content-Type", "application/json");
    if (status >= 200 && status != 204)
        set_content_length(request, evbuffer_get_length(body));
    evhttp_send_reply(request, status, NULL, has_content(request, status) ? body : NULL);
    evbuffer_free(body);
}

static void respond_text(struct evhttp_request *request, int status, const char *json)
{
    struct evbuffer *body = evbuffer_new();
    evbuffer_add(body, json, strlen(json));
    respond(request, status, body);
}

static void respond_echo(struct evhttp_request *request)
{
    struct evbuffer *body = evbuffer_new(), *content = evhttp_request_get_input_buffer(request);
    const char *separator = "";
    struct evkeyval *field;

    evbuffer_add_printf(
        body, "{\"method\":\"%s\",\"target\":", method_name(evhttp_request_get_command(request)));
    json_string(body, evhttp_request_get_uri(request));
    evbuffer_add_printf(body, ",\"version\":\"HTTP/%d.%d\",\"fields\":[", request->major,
                        request->minor);
    TAILQ_FOREACH (field, evhttp_request_get_input_headers(request), next) {
        evbuffer_add_printf(body, "%s[", separator);
        json_string(body, field->key);
        evbuffer_add(body, ",", 1);
        json_string(body, field->value);
        evbuffer_add(body, "]", 1);
        separator = ",";
    }
    evbuffer_add_printf(body, "],\"content_length\":%zu,\"content_crc32\":%u}\n",
                        evbuffer_get_length(content), crc32_of_buffer(content));
    respond(request, HTTP_OK, body);
}

static void respond_stats(struct evhttp_request *request)
{
    struct evbuffer *body = evbuffer_new();
    evbuffer_add_printf(body, "{\"connections\":%lu,\"requests\":%lu}\n", connections, requests);
    respond(request, HTTP_OK, body);
}

/* A long body, sent in pieces as the client reads it. Freed at its end or with the connection. */
struct stream {
    struct evhttp_request *request;
    unsigned long long left;
};

static void end_abandoned(evutil_socket_t fd, short what, void *request)
{
    (void)fd;
    (void)what;
    evhttp_send_reply_end(request);
}

/* The client has disconnected. evhttp passes ownership of the unfinished request, but only after
 * this callback has returned. */
static void stream_abandon(struct evhttp_connection *connection, void *context)
{
    struct stream *stream = context;
    (void)connection;
    event_base_once(base, -1, EV_TIMEOUT, end_abandoned, stream->request, NULL);
    free(stream);
}

static void stream_next(struct evhttp_connection *connection, void *context)
{
    struct stream *stream = context;
    struct evhttp_request *request = stream->request;

    if (stream->left == 0) {
        evhttp_connection_set_closecb(connection, NULL, NULL);
        free(stream);
        evhttp_send_reply_end(request);
        return;
    }
    size_t size = stream->left < PATTERN_SIZE ? (size_t)stream->left : PATTERN_SIZE;
    struct evbuffer *piece = evbuffer_new();
    evbuffer_add_reference(piece, pattern, size, NULL, NULL);
    stream->left -= size;
    evhttp_send_reply_chunk_with_cb(request, piece, stream_next, stream);
    evbuffer_free(piece);
}

static void respond_bytes(struct evhttp_request *request, unsigned long long size, bool chunked)
{
    struct stream *stream = calloc(1, sizeof *stream);

    set_field(request, "Content-Type", "text/plain");
    if (!chunked)
        set_content_length(request, size);
    evhttp_send_reply_start(request, HTTP_OK, NULL);
    if (!has_content(request, HTTP_OK))
        size = 0;
    *stream = (struct stream){request, size};
    evhttp_connection_set_closecb(evhttp_request_get_connection(request), stream_abandon, stream);
    stream_next(evhttp_request_get_connection(request), stream);
}

/* A delayed response. */
struct pause {
    struct evhttp_request *request;
    struct event *timer;
};

static void pause_over(evutil_socket_t fd, short what, void *context)
{
    struct pause *pause = context;
    struct evhttp_request *request = pause->request;
    (void)fd;
    (void)what;
    event_free(pause->timer);
    free(pause);
    respond_text(request, HTTP_OK,
                 "{\"message\":\"after the delay\"}\n"); /* if the client is gone, only frees it */
}

static void respond_slowly(struct evhttp_request *request, long ms)
{
    struct pause *pause = calloc(1, sizeof *pause);
    struct timeval after = {ms / 1000, ms % 1000 * 1000};
    pause->request = request;
    pause->timer = evtimer_new(base, pause_over, pause);
    evtimer_add(pause->timer, &after);
}

/* Reads the number after `prefix` in `path`. Returns false if there is none. */
static bool number_after(const char *path, const char *prefix, unsigned long long *number)
{
    size_t size = strlen(prefix);
    char *end;
    if (strncmp(path, prefix, size) != 0 || path[size] < '0' || path[size] > '9')
        return false;
    *number = strtoull(path + size, &end, 10);
    return *end == '\0' || *end == '?';
}

static void on_request(struct evhttp_request *request, void *context)
{
    const char *target = evhttp_request_get_uri(request);
    unsigned long long n;

    (void)context;
    requests++;
    if (strncmp(target, "/echo", 5) == 0) {
        respond_echo(request);
    } else if (number_after(target, "/status/", &n) && n >= 200 && n <= 599) {
        respond_text(request, (int)n, "{\"message\":\"as requested\"}\n");
    } else if (number_after(target, "/bytes/", &n)) {
        respond_bytes(request, n, false);
    } else if (number_after(target, "/chunked/", &n)) {
        respond_bytes(request, n, true);
    } else if (number_after(target, "/slow?ms=", &n)) {
        respond_slowly(request, (long)n);
    } else if (strcmp(target, "/stats") == 0) {
        respond_stats(request);
    } else {
        if (strcmp(target, "/close") == 0)
            set_field(request, "Connection", "close");
        respond_text(request, HTTP_OK, "{\"message\":\"hello from the API\"}\n");
    }
}

/* Called by evhttp for each accepted connection. */
static struct bufferevent *on_connection(struct event_base *event_base, void *context)
{
    (void)context;
    connections++;
    return bufferevent_socket_new(event_base, -1, BEV_OPT_CLOSE_ON_FREE);
}

/* Parses "127.0.0.1:80", "[::1]:0" or "unix:/path". (evutil_parse_sockaddr_port rejects port 0.) */
static bool parse_address(const char *text, struct sockaddr_storage *at, int *size)
{
    const char *colon = strrchr(text, ':');
    char host[64];

    memset(at, 0, sizeof *at);
    if (strncmp(text, "unix:", 5) == 0) {
        struct sockaddr_un *local = (struct sockaddr_un *)at;
        local->sun_family = AF_UNIX;
        snprintf(local->sun_path, sizeof local->sun_path, "%s", text + 5);
        *size = sizeof *local;
        return true;
    }
    if (!colon)
        return false;
    *size = sizeof *at;
    snprintf(host, sizeof host, "%.*s", (int)(colon - text), text);
    if (evutil_parse_sockaddr_port(host, (struct sockaddr *)at, size) != 0)
        return false;
    in_port_t port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
    if (at->ss_family == AF_INET)
        ((struct sockaddr_in *)at)->sin_port = port;
    else
        ((struct sockaddr_in6 *)at)->sin6_port = port;
    return true;
}

/* Thousands of connections at once: the kernel repeats the first packet of those beyond the backlog
 * after 1 s only, which is weir's connect_timeout. */
enum { BACKLOG = 4096 };

static struct evconnlistener *listener_new(const char *address)
{
    struct sockaddr_storage at;
    int size;
    int on = 1;

    if (!parse_address(address, &at, &size)) {
        errno = EINVAL;
        return NULL;
    }
    struct evconnlistener *listener =
        evconnlistener_new_bind(base, NULL, NULL, LEV_OPT_CLOSE_ON_FREE | LEV_OPT_REUSEABLE,
                                BACKLOG, (struct sockaddr *)&at, size);
    if (listener && at.ss_family != AF_UNIX) /* accepted sockets inherit the option */
        setsockopt(evconnlistener_get_fd(listener), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return listener;
}

static void print_address(struct evconnlistener *listener, const char *address)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&at, &size);
    if (at.ss_family == AF_INET)
        printf("listening on 127.0.0.1:%u\n",
               (unsigned)ntohs(((struct sockaddr_in *)&at)->sin_port));
    else if (at.ss_family == AF_INET6)
        printf("listening on [::1]:%u\n", (unsigned)ntohs(((struct sockaddr_in6 *)&at)->sin6_port));
    else
        printf("listening on %s\n", address);
    fflush(stdout);
}

static void on_signal(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
    event_base_loopbreak(base);
}

static int serve(const char *address)
{
    base = event_base_new();
    struct evhttp *http = evhttp_new(base);
    struct evconnlistener *listener = listener_new(address);

    if (!listener) {
        fprintf(stderr, "upstream: cannot listen on %s: %s\n", address, strerror(errno));
        evhttp_free(http);
        event_base_free(base);
        return 1;
    }
    evhttp_set_allowed_methods(http, 0xffff);
    evhttp_set_gencb(http, on_request, NULL);
    evhttp_set_bevcb(http, on_connection, NULL);
    evhttp_bind_listener(http, listener);

    int signals[] = {SIGTERM, SIGINT};
    struct event *events[COUNT_OF(signals)];
    for (size_t i = 0; i < COUNT_OF(signals); i++) {
        events[i] = evsignal_new(base, signals[i], on_signal, NULL);
        event_add(events[i], NULL);
    }
    print_address(listener, address);
    event_base_dispatch(base);

    evhttp_free(http);
    for (size_t i = 0; i < COUNT_OF(signals); i++)
        event_free(events[i]);
    event_base_free(base);
    return 0;
}

int main(int argc, char **argv)
{
    const char *address = "127.0.0.1:0";

    if (argc == 3 && strcmp(argv[1], "--listen") == 0) {
        address = argv[2];
    } else if (argc != 1) {
        fprintf(stderr, "usage: upstream [--listen HOST:PORT | --listen unix:/path]\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_IGN);
    pattern_init();
    return serve(address);
}
