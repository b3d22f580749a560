/* top_events.c - reads Server-Sent Events over HTTP/1.0, which the listener does not chunk. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/top.h"

enum { CONNECT_MS = 5000, READ_BYTES = 65536, HEAD_MAX = 16384 };

struct top_events {
    struct event_base *base; /* never runs: poll(2) waits */
    struct poller poller;
    struct stream stream;
    struct iobuf_pool buffers;
    struct tls_resumption resumption;
    bool has_head; /* the answer's head was read */
    char *bytes;   /* received and not returned yet, from `used` on */
    size_t size, room, used;
};

int top_source_read(const char *text, struct top_source *source, char why[static TOP_WHY_MAX])
{
    static const char scheme[] = "http://", start_tls[] = "https://";
    const char *problem = "is not an address";
    int status = CLI_GOOD;
    struct address unresolved;
    struct slice name;
    uint16_t port;
    size_t n;

    source->secure = strncmp(text, start_tls, sizeof start_tls - 1) == 0;
    if (source->secure)
        text += sizeof start_tls - 1;
    else if (strncmp(text, scheme, sizeof scheme - 1) == 0)
        text += sizeof scheme - 1;
    n = strncmp(text, "unix:", 5) == 0 ? strlen(text) : strcspn(text, "/");
    if (n >= sizeof source->host ||
        !address_split((struct slice){text, n}, &unresolved, &name, &port, &problem))
        status = CLI_USAGE;
    else if (!address_parse((struct slice){text, n}, true, &source->address, &problem))
        status = CLI_FAILED;
    if (status != CLI_GOOD) {
        snprintf(why, TOP_WHY_MAX,
                 "%s: %s; expected http://HOST:PORT, https://HOST:PORT, HOST:PORT or unix:/PATH",
                 text, problem);
        return status;
    }
    snprintf(source->host, sizeof source->host, "%.*s", (int)n, text);
    snprintf(source->name, sizeof source->name, "%.*s", SLICE_ARG(name));
    if (address_is_unix(&source->address))
        strcpy(source->host, "localhost");
    return CLI_GOOD;
}

/* --- Connecting ------------------------------------------------------------------------------- */

static bool poll_socket(int fd, short events)
{
    struct pollfd poller = {.fd = fd, .events = events};
    int ready;

    while ((ready = poll(&poller, 1, CONNECT_MS)) < 0 && errno == EINTR)
        ;
    if (ready == 0)
        errno = ETIMEDOUT;
    return ready > 0;
}

static bool connect_within(int fd, const struct address *address)
{
    int error = 0;
    socklen_t size = sizeof error;

    if (connect(fd, &address->any, address->length) == 0)
        return true;
    if (errno != EINPROGRESS || !poll_socket(fd, POLLOUT) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return false;
    errno = error;
    return error == 0;
}

/* Writes why the handshake has failed. */
static void explain_failure(const struct stream *stream, const struct top_source *source,
                            char why[static TOP_WHY_MAX])
{
    char address[ADDRESS_TEXT_MAX], reason[TLS_WHY_MAX];
    struct text t = text_over(why, TOP_WHY_MAX - 1);

    text_printf(&t, "cannot connect to %s: ", address_format(&source->address, address));
    switch (tls_connect_problem(stream)) {
    case TLS_PROBLEM_UNTRUSTED:
        text_literal(&t, "its certificate is not trusted; name its authority with --ca");
        break;
    case TLS_PROBLEM_NAME:
        text_printf(&t, "its certificate is not valid for %s", source->name);
        break;
    case TLS_PROBLEM_DATES:
        text_literal(&t, "its certificate has expired or is not valid yet");
        break;
    case TLS_PROBLEM_NOT_TLS: text_literal(&t, "it does not use TLS; use http://"); break;
    case TLS_PROBLEM_OTHER:
        tls_connect_failure(stream, reason);
        text_put(&t, slice_of(reason));
        break;
    }
    why[t.n] = 0;
}

/* Runs the TLS handshake. */
static bool start_tls(struct top_events *events, const struct top_source *source,
                      char why[static TOP_WHY_MAX])
{
    enum tls_handshake state = TLS_FAILED;

    if (!tls_connect(&events->stream, source->tls, source->name, &events->resumption)) {
        snprintf(why, TOP_WHY_MAX, "no memory");
        return false;
    }
    while ((state = tls_handshake(&events->stream)) == TLS_AGAIN)
        if (!poll_socket(events->stream.fd, POLLIN)) {
            snprintf(why, TOP_WHY_MAX, "no TLS handshake: %s", strerror(errno));
            return false;
        }
    if (state == TLS_FAILED)
        explain_failure(&events->stream, source, why);
    return state == TLS_DONE;
}

/* A request fits into the socket's buffer. With TLS 1.3, a listener that refuses the client's
 * certificate has closed the connection perhaps: then reading tells why. */
static bool send_request(struct top_events *events, const struct top_source *source)
{
    char bytes[2048];
    struct text t = text_over(bytes, sizeof bytes);

    text_printf(&t, "GET /api/v1/events HTTP/1.0\r\nHost: %s\r\nAccept: text/event-stream\r\n",
                source->host);
    if (source->token)
        text_printf(&t, "Authorization: Bearer %s\r\n", source->token);
    text_literal(&t, "\r\n");
    struct iovec piece = iovec_of(text_slice(&t));
    return !t.failed && (stream_send(&events->stream, &events->buffers, &piece, 1) == SENT_ALL ||
                         source->secure);
}

/* The events of the stream are not waited for. */
static void on_event(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

struct top_events *top_events_open(const struct top_source *source, char why[static TOP_WHY_MAX])
{
    struct top_events *events = calloc(1, sizeof *events);
    int fd = socket(source->address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    char text[ADDRESS_TEXT_MAX];

    if (events)
        events->stream.fd = events->poller.fd = -1;
    if (!events || fd < 0 || !(events->base = event_base_new()) ||
        poller_init(&events->poller, events->base, 1) != 0) {
        snprintf(why, TOP_WHY_MAX, "no memory or no descriptors");
        if (fd >= 0)
            close(fd);
        top_events_close(events);
        return NULL;
    }
    stream_open(&events->stream, &events->poller, fd, on_event, on_event, NULL);
    why[0] = 0;
    if (connect_within(fd, &source->address) &&
        (!source->secure || start_tls(events, source, why)) && send_request(events, source))
        return events;
    if (!why[0])
        snprintf(why, TOP_WHY_MAX, "cannot connect to %s: %s",
                 address_format(&source->address, text), strerror(errno));
    top_events_close(events);
    return NULL;
}

void top_events_close(struct top_events *events)
{
    if (!events)
        return;
    if (events->stream.fd >= 0)
        stream_close(&events->stream, &events->buffers);
    poller_clear(&events->poller);
    iobuf_pool_clear(&events->buffers);
    tls_resumption_clear(&events->resumption);
    if (events->base)
        event_base_free(events->base);
    free(events->bytes);
    free(events);
}

int top_events_fd(const struct top_events *events)
{
    return events->stream.fd;
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* False: no memory, or an event is too large. */
static bool grow_input(struct top_events *events)
{
    if (events->used) {
        memmove(events->bytes, events->bytes + events->used, events->size - events->used);
        events->size -= events->used;
        events->used = 0;
    }
    if (events->room - events->size >= READ_BYTES)
        return true;
    size_t room = 2 * events->room + READ_BYTES;
    char *bytes = room > 2 * (size_t)TOP_EVENT_MAX ? NULL : realloc(events->bytes, room);
    if (!bytes)
        return false;
    events->bytes = bytes;
    events->room = room;
    return true;
}

static struct slice unread(const struct top_events *events)
{
    return events->bytes ? (struct slice){events->bytes + events->used, events->size - events->used}
                         : SLICE("");
}

/* The detail of a problem document, with its control bytes left out. */
static void quote_answer(struct slice answer, struct slice body, char *why)
{
    json_t *document = json_loadb(body.p, body.n, 0, NULL);
    struct slice detail = json_text(json_object_get(document, "detail"));
    struct slice status = {answer.p, 0};

    while (status.n < answer.n && answer.p[status.n] != '\r' && answer.p[status.n] != '\n')
        status.n++;
    struct text t = text_over(why, TOP_WHY_MAX - 1);
    text_literal(&t, "the listener answers ");
    for (size_t i = 9; i < status.n; i++)
        text_char(&t, status.p[i] >= ' ' && status.p[i] <= '~' ? status.p[i] : '?');
    if (detail.n)
        text_literal(&t, ": ");
    for (size_t i = 0; i < detail.n; i++)
        text_char(&t, detail.p[i] >= ' ' && detail.p[i] <= '~' ? detail.p[i] : '?');
    why[t.n] = 0;
    json_decref(document);
}

/* Takes the answer's head. `ended`: no more bytes follow. */
static enum top_read take_answer_head(struct top_events *events, bool ended, char *why)
{
    struct slice bytes = unread(events);
    const char *end = bytes.n ? memmem(bytes.p, bytes.n, "\r\n\r\n", 4) : NULL;

    if (!end && !ended && bytes.n <= HEAD_MAX)
        return TOP_READ_MORE;
    if (!end) {
        snprintf(why, TOP_WHY_MAX, "the answer is no HTTP");
        return TOP_READ_END;
    }
    size_t head = (size_t)(end - bytes.p) + 4;
    if (bytes.n > 12 && memcmp(bytes.p, "HTTP/1.", 7) == 0 && memcmp(bytes.p + 8, " 200", 4) == 0) {
        if (!memmem(bytes.p, head, "text/event-stream", 17)) {
            snprintf(why, TOP_WHY_MAX,
                     "the answer has no events; expected the address of an admin listener");
            return TOP_READ_END;
        }
        events->used += head;
        events->has_head = true;
        return TOP_READ_EVENT;
    }
    if (!ended && bytes.n < HEAD_MAX)
        return TOP_READ_MORE; /* the rest says why */
    quote_answer(bytes, (struct slice){bytes.p + head, bytes.n - head}, why);
    return TOP_READ_END;
}

/* Takes the next event with data. */
static bool take_event(struct top_events *events, struct slice *data)
{
    static const char field[] = "data: ";

    for (;;) {
        struct slice bytes = unread(events);
        const char *end = bytes.n ? memmem(bytes.p, bytes.n, "\n\n", 2) : NULL;
        if (!end)
            return false;
        struct slice event = {bytes.p, (size_t)(end - bytes.p)};
        events->used += event.n + 2;
        const char *start = memmem(event.p, event.n, field, sizeof field - 1);
        if (start) { /* weir sends the data as one line, the last of the event */
            start += sizeof field - 1;
            *data = (struct slice){start, (size_t)(end - start)};
            return true;
        }
    }
}

enum top_read top_events_read(struct top_events *events, struct slice *data,
                              char why[static TOP_WHY_MAX])
{
    for (bool ended = false;;) {
        enum top_read head =
            events->has_head ? TOP_READ_EVENT : take_answer_head(events, ended, why);
        if (head == TOP_READ_END || (head == TOP_READ_EVENT && take_event(events, data)))
            return head;
        if (ended || !grow_input(events)) {
            snprintf(why, TOP_WHY_MAX,
                     ended ? "the connection has ended" : "an event is too large");
            return TOP_READ_END;
        }
        ssize_t n =
            stream_read(&events->stream, events->bytes + events->size, events->room - events->size);
        const char *fault = tls_fault_of(&events->stream);
        if (n == STREAM_AGAIN)
            return TOP_READ_MORE;
        if (fault) {
            snprintf(why, TOP_WHY_MAX, "the listener refuses the connection: %s", fault);
            return TOP_READ_END;
        }
        if (n > 0)
            events->size += (size_t)n;
        ended = n <= 0;
    }
}
