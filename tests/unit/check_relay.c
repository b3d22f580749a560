/* check_relay.c - relays a request's content from a client to a server: framing on both sides,
 * back-pressure, bytes of the next message. The client is a downstream over a stream. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "content/stream_usage.h"
#include "content/usage_reader.h"
#include "proxy/relay.h"
#include "proxy/step.h"
#include "run_suite.h"
#include "upstream/upstream_internal.h"

static struct event_base *base;
static struct poller poller;
static struct worker worker;
static struct upstream_worker upstream;
static struct connection server;
static struct policy policy;
static struct exchange x;
static struct stream from;
static struct body_reader reader;
static int source, sink; /* the far ends */
static const char *why;

#define to   (server.stream)
#define pool (worker.buffers)

static struct body_io io(void)
{
    return (struct body_io){&pool, worker.receive, &worker.trailers};
}

static enum body_status read_body(struct downstream *d, bool receive, struct content_piece *piece,
                                  const char **wrong)
{
    struct body_io m = io();
    (void)d;
    return body_read(&reader, &from, receive, &m, piece, wrong);
}

static bool consume_body(struct downstream *d, const struct content_piece *piece)
{
    struct body_io m = io();
    (void)d;
    return body_consume(&from, piece, &m);
}

static bool splice_body(struct downstream *d, struct stream *sink_stream, enum body_status *status,
                        enum sent *sent_all, struct content_piece *moved)
{
    uint64_t before = reader.bytes;
    (void)d;
    if (!body_splice(&reader, &from, sink_stream, &pool, status, sent_all))
        return false;
    *moved = (struct content_piece){.size = (size_t)(reader.bytes - before), .last = reader.ended};
    return true;
}

static const struct downstream_ops ops = {
    .read_body = read_body, .consume_body = consume_body, .splice_body = splice_body};
static struct downstream client = {.ops = &ops};

static void nothing(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

static void open_pair(struct stream *s, int *far)
{
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    stream_open(s, &poller, fds[0], nothing, nothing, NULL);
    *far = fds[1];
}

static void set_up(void)
{
    signal(SIGPIPE, SIG_IGN);
    base = event_base_new();
    ck_assert_int_eq(poller_init(&poller, base, 16), 0);
    open_pair(&from, &source);
    open_pair(&to, &sink);
    why = NULL;
}

static void tear_down(void)
{
    stream_close(&from, &pool);
    stream_close(&to, &pool);
    close(source);
    close(sink);
    iobuf_pool_clear(&pool);
    poller_clear(&poller);
    event_base_free(base);
}

/* Begins a request. `max`: largest content; 0: no limit. */
static void begin(enum framing_kind kind, uint64_t length, bool chunked_out, uint64_t max)
{
    struct framing framing = {.kind = kind, .length = length};
    body_reader_begin(&reader, &framing);
    x.worker = &worker;
    x.downstream = &client;
    x.upstream.link = &server.link;
    x.policy = &policy;
    upstream.io = io();
    http1_adopt(&server);
    server.link.worker = &upstream;
    server.chunked = chunked_out;
    x.request.kind = chunked_out ? FRAMING_CHUNKED : kind;
    x.request.progress = kind == FRAMING_NONE ? MESSAGE_END : MESSAGE_CONTENT;
    x.request.bytes = 0;
    x.request.max = max;
}

static void allow_memory(uint64_t bytes)
{
    memory_set_limit(bytes);
    memory_report(&pool.memory);
}

static void client_sends(const char *bytes)
{
    ck_assert_int_eq(write(source, bytes, strlen(bytes)), (ssize_t)strlen(bytes));
}

static void assert_sent(const char *expected)
{
    char got[4096];
    ssize_t n = read(sink, got, sizeof got);
    ck_assert_int_eq(n < 0 ? 0 : n, (ssize_t)strlen(expected));
    ck_assert_mem_eq(got, expected, strlen(expected));
}

static enum relay relay_once(void)
{
    return relay_request(&x, &why);
}

static enum relay send_head(struct slice head)
{
    ck_assert_ptr_nonnull(x.request.head = iobuf_get(&pool, head.n));
    iobuf_append(x.request.head, head);
    enum relay moved = relay_request_head(&x, &why);
    iobuf_put(&pool, &x.request.head);
    return moved;
}

START_TEST(a_known_length_is_read_exactly)
{
    begin(FRAMING_LENGTH, 5, false, 0);
    client_sends("helloGET /next");
    ck_assert_int_eq(relay_once(), RELAY_ENDED);
    ck_assert_int_eq(x.request.progress, MESSAGE_END);
    assert_sent("hello");
    char rest[16];
    ck_assert_int_eq(read(from.fd, rest, sizeof rest),
                     9); /* the next message is still in the kernel */
}
END_TEST

START_TEST(chunked_content_is_written_with_new_chunk_lines)
{
    begin(FRAMING_CHUNKED, 0, true, 0);
    client_sends("3;name=value\r\nabc\r\n2\r\nde\r\n");
    ck_assert_int_eq(relay_once(), RELAY_SOURCE);
    assert_sent("5\r\nabcde\r\n");
    client_sends("0\r\nTrailer: dropped\r\n\r\nGET /next");
    ck_assert_int_eq(relay_once(), RELAY_ENDED);
    assert_sent("0\r\n\r\n");
    ck_assert(slice_equal(iobuf_slice(from.in), SLICE("GET /next")));
}
END_TEST

START_TEST(the_last_chunk_and_the_end_are_written_together)
{
    begin(FRAMING_CHUNKED, 0, true, 0);
    client_sends("3\r\nabc\r\n0\r\n\r\n");
    ck_assert_int_eq(relay_once(), RELAY_ENDED);
    assert_sent("3\r\nabc\r\n0\r\n\r\n");
}
END_TEST

START_TEST(content_until_close_ends_with_the_connection)
{
    begin(FRAMING_UNTIL_CLOSE, 0, true, 0);
    client_sends("some");
    ck_assert_int_eq(relay_once(), RELAY_SOURCE);
    assert_sent("4\r\nsome\r\n");
    shutdown(source, SHUT_WR);
    ck_assert_int_eq(relay_once(), RELAY_ENDED);
    assert_sent("0\r\n\r\n");
}
END_TEST

START_TEST(a_premature_close_is_reported)
{
    begin(FRAMING_LENGTH, 10, false, 0);
    client_sends("some");
    ck_assert_int_eq(relay_once(), RELAY_SOURCE);
    shutdown(source, SHUT_WR);
    ck_assert_int_eq(relay_once(), RELAY_CLOSED);
    ck_assert_int_ne(x.request.progress, MESSAGE_END);
}
END_TEST

START_TEST(invalid_chunks_are_reported_and_not_forwarded)
{
    begin(FRAMING_CHUNKED, 0, true, 0);
    client_sends("3\r\nabcdef\r\n");
    ck_assert_int_eq(relay_once(), RELAY_BAD);
    ck_assert_ptr_nonnull(why);
    assert_sent("");
}
END_TEST

START_TEST(content_above_the_maximum_is_not_forwarded)
{
    begin(FRAMING_CHUNKED, 0, true, 4);
    client_sends("3\r\nabc\r\n");
    ck_assert_int_eq(relay_once(), RELAY_SOURCE);
    assert_sent("3\r\nabc\r\n");
    client_sends("2\r\nde\r\n0\r\n\r\n");
    ck_assert_int_eq(relay_once(), RELAY_TOO_LARGE);
    assert_sent("");
}
END_TEST

/* In one piece, and split at every byte. */
START_TEST(trailers_are_forwarded_except_framing_fields)
{
    static const char coded[] = "3\r\nabc\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nempty:\r\n\r\n";
    begin(FRAMING_CHUNKED, 0, true, 0);
    for (const char *p = coded; *p; p++) {
        char byte[2] = {*p, '\0'};
        client_sends(_i ? byte : coded);
        enum relay moved = relay_once();
        ck_assert_int_eq(moved, !_i || !p[1] ? RELAY_ENDED : RELAY_SOURCE);
        if (!_i)
            break;
    }
    if (_i)
        assert_sent("1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\nX-Sum: 1\r\nempty: \r\n\r\n");
    else
        assert_sent("3\r\nabc\r\n0\r\nX-Sum: 1\r\nempty: \r\n\r\n");
    ck_assert(server.sent_trailers);
    body_reader_end(&reader, &pool);
    server.sent_trailers = false;
}
END_TEST

START_TEST(a_message_with_only_forbidden_trailers_has_none)
{
    begin(FRAMING_CHUNKED, 0, true, 0);
    client_sends("1\r\na\r\n0\r\nTransfer-Encoding: chunked\r\nHost: b\r\n\r\n");
    ck_assert_int_eq(relay_once(), RELAY_ENDED);
    assert_sent("1\r\na\r\n0\r\n\r\n");
    ck_assert(!server.sent_trailers);
}
END_TEST

START_TEST(the_head_is_written_together_with_the_first_content)
{
    begin(FRAMING_LENGTH, 5, false, 0);
    ck_assert(stream_keep(&from, &pool, SLICE("helloGET /next")));
    ck_assert_int_eq(send_head(SLICE("HEAD\r\n\r\n")), RELAY_ENDED);
    assert_sent("HEAD\r\n\r\nhello");
    ck_assert(slice_equal(iobuf_slice(from.in), SLICE("GET /next")));
}
END_TEST

START_TEST(content_after_a_head_keeps_the_following_bytes)
{
    struct body_io m = io();
    struct content_piece piece;
    begin(FRAMING_LENGTH, 5, false, 0);
    memcpy(worker.receive, "helloHTTP/1.1 200", 17);
    ck_assert_int_eq(body_read_after_head(&reader, worker.receive, 17, &m, &piece, &why),
                     BODY_READ);
    ck_assert(piece.last && slice_equal((struct slice){piece.bytes, piece.size}, SLICE("hello")));
    ck_assert(body_consume(&from, &piece, &m));
    ck_assert(slice_equal(iobuf_slice(from.in),
                          /* a connection with unread bytes is not used again */
                          SLICE("HTTP/1.1 200")));
}
END_TEST

START_TEST(no_content_is_read_while_the_sink_is_full)
{
    begin(FRAMING_LENGTH, 1 << 30, false, 0);
    static char piece[65536];
    uint64_t sent = 0;
    enum relay moved = RELAY_SOURCE;

    while (moved == RELAY_SOURCE) {
        ssize_t n = write(source, piece, sizeof piece);
        sent += n > 0 ? (uint64_t)n : 0;
        moved = relay_once();
    }
    ck_assert_int_eq(moved, RELAY_SINK);
    ck_assert_uint_le(iobuf_held(to.out), IOBUF_READ_MAX);
    ck_assert(to.writing);
    uint64_t got = 0;
    while (to.out) { /* the reader drains it and the transfer continues */
        static char taken[65536];
        ssize_t n = read(sink, taken, sizeof taken);
        got += n > 0 ? (uint64_t)n : 0;
        ck_assert_int_ne(stream_flush(&to, &pool), SENT_FAILED);
    }
    ck_assert_uint_le(got, x.request.bytes); /* the rest is in the reader's socket */
    ck_assert_int_eq(relay_once() == RELAY_SOURCE || to.out != NULL, true);
    ck_assert_uint_le(x.request.bytes, sent);
}
END_TEST

/* In a retry, all the kept content is sent with the head. */
START_TEST(a_large_head_and_kept_content_wait_for_a_full_sink)
{
    static char head[60 * 1024], content[KEPT_CONTENT_MAX], taken[65536];
    size_t got = 0, before = 0;

    begin(FRAMING_LENGTH, sizeof content, true, 0);
    x.request.bytes = sizeof content;
    x.request.progress = MESSAGE_END;
    ck_assert(iobuf_store(&pool, &x.request.kept, (struct slice){content, sizeof content}));
    for (ssize_t n; (n = write(to.fd, taken, sizeof taken)) > 0;)
        before += (size_t)n;
    ck_assert_int_eq(send_head((struct slice){head, sizeof head}), RELAY_ENDED);
    ck_assert(server.link.pending);
    while (to.out) {
        ssize_t n = read(sink, taken, sizeof taken);
        got += n > 0 ? (size_t)n : 0;
        ck_assert_int_ne(stream_flush(&to, &pool), SENT_FAILED);
    }
    for (ssize_t n; (n = read(sink, taken, sizeof taken)) > 0;)
        got += (size_t)n;
    ck_assert_uint_eq(got - before,
                      sizeof head + strlen("10000\r\n") + sizeof content + strlen("\r\n0\r\n\r\n"));
    iobuf_put(&pool, &x.request.kept);
    x.request.progress = MESSAGE_CONTENT;
}
END_TEST

/* Also beyond request.max. */
START_TEST(discarded_content_leaves_the_next_message)
{
    begin(FRAMING_CHUNKED, 0, false, _i ? 2 : 0);
    client_sends("3\r\nabc\r\n0\r\n\r\nGET /next");
    ck_assert_int_eq(relay_drop_request(&x, &why), RELAY_ENDED);
    ck_assert(slice_equal(iobuf_slice(from.in), SLICE("GET /next")));
    assert_sent("");
}
END_TEST

/* Otherwise the body would be parsed as a request on a persistent connection. */
START_TEST(content_that_the_sink_did_not_accept_is_consumed_anyway)
{
    begin(FRAMING_LENGTH, 4, false, 0);

    ck_assert(stream_keep(&from, &pool, SLICE("bodyGET /next")));
    close(sink);
    ck_assert_int_eq(send_head(SLICE("HEAD")), RELAY_GONE);
    ck_assert_int_eq(x.request.progress, MESSAGE_END);
    ck_assert(slice_equal(iobuf_slice(from.in), SLICE("GET /next")));
    sink = -1;
}
END_TEST

START_TEST(content_that_cannot_be_kept_leaves_the_next_message)
{
    begin(FRAMING_LENGTH, 4, false, 0);

    ck_assert(stream_keep(&from, &pool, SLICE("bodyGET /next")));
    allow_memory(0);
    ck_assert_int_eq(relay_keep_request(&x, IOBUF_LARGE, &why), RELAY_NO_MEMORY);
    allow_memory(UINT64_MAX);
    ck_assert(slice_equal(iobuf_slice(from.in), SLICE("GET /next")));
}
END_TEST

/* weir can then respond itself. The content is not charged, though all of it was read. */
START_TEST(a_response_that_cannot_be_filtered_is_not_begun)
{
    static const struct json_paths paths = {.count = 1};
    struct stream_usage_filter filter;
    struct response response = {.status = 200};

    begin(FRAMING_NONE, 0, false, 0);
    stream_usage_filter_begin(&filter);
    x.cost.filter = &filter;
    x.cost.usage = malloc(usage_reader_size(&paths));
    usage_reader_begin(x.cost.usage, &paths, USAGE_TYPE_JSON, false);
    x.response.progress = MESSAGE_CONTENT;
    body_reader_begin(&server.response, &(struct framing){.kind = FRAMING_LENGTH, .length = 5});
    server.head_end = worker.receive;
    server.after_head = 5;
    allow_memory(0);
    ck_assert_int_eq(relay_response_head(&x, &response, &why), RELAY_NO_MEMORY);
    allow_memory(UINT64_MAX);
    ck_assert_int_eq(x.response.progress, MESSAGE_HEAD);
    ck_assert_uint_eq(x.response.bytes, 0);
    ck_assert_ptr_nonnull(x.cost.usage);
    free(x.cost.usage);
}
END_TEST

static enum downstream_sent gone(struct downstream *d, const struct content_piece *piece)
{
    (void)d, (void)piece;
    return DOWNSTREAM_GONE;
}

static enum downstream_sent head_gone(struct downstream *d, const struct response *response,
                                      const struct iovec *content, int count, bool last)
{
    (void)d, (void)response, (void)content, (void)count, (void)last;
    return DOWNSTREAM_GONE;
}

/* A response whose last piece was read, but not sent: the client must not get the end. */
START_TEST(a_response_without_its_last_piece_is_not_complete)
{
    static const struct downstream_ops left = {.send_head = head_gone, .send_body = gone};
    struct downstream leaving = {.ops = &left};
    struct stream_usage_filter filter;
    struct response response = {.status = 200};

    begin(FRAMING_NONE, 0, false, 0);
    x.downstream = &leaving;
    x.response.progress = MESSAGE_CONTENT;
    body_reader_begin(&server.response, &(struct framing){.kind = FRAMING_LENGTH, .length = 5});
    ck_assert_int_eq(write(sink, "hello", 5), 5);
    if (_i == 0) { /* the filter has no memory */
        stream_usage_filter_begin(&filter);
        x.cost.filter = &filter;
        allow_memory(0);
        ck_assert_int_eq(relay_response(&x, &why), RELAY_NO_MEMORY);
        allow_memory(UINT64_MAX);
    } else if (_i == 1) /* the client has left */
        ck_assert_int_eq(relay_response(&x, &why), RELAY_GONE);
    else { /* ... and all content came with the head */
        memcpy(worker.receive, "hello", 5);
        server.head_end = worker.receive;
        server.after_head = 5;
        ck_assert_int_eq(relay_response_head(&x, &response, &why), RELAY_GONE);
    }
    ck_assert(server.response.ended);
    ck_assert_uint_eq(x.response.bytes, 5);
    ck_assert_int_eq(x.response.progress, MESSAGE_CONTENT);
}
END_TEST

START_TEST(a_buffer_grows_for_a_head_in_pieces)
{
    static char large[6000];
    memset(large, 'x', sizeof large);
    ck_assert(stream_keep(&from, &pool, SLICE("GET / HTTP/1.1\r\n")));
    ck_assert_uint_eq(from.in->cap, IOBUF_SMALL);
    ck_assert_int_eq(write(source, large, sizeof large), sizeof large);
    ck_assert_int_eq(stream_read_in(&from, &pool, IOBUF_LARGE), sizeof large);
    ck_assert_uint_eq(iobuf_held(from.in), sizeof large + 16);
    ck_assert(slice_starts_with(iobuf_slice(from.in), SLICE("GET / HTTP/1.1\r\nxxx")));
}
END_TEST

/* --- splicing --------------------------------------------------------------------------------- */

static void close_both(void)
{
    stream_close(&from, &pool);
    stream_close(&to, &pool);
    close(source);
    close(sink);
}

static void open_tcp(struct stream *s, int *far)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof any;
    int listener = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0);

    ck_assert_int_eq(bind(listener, (struct sockaddr *)&any, size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&any, &size), 0);
    ck_assert_int_eq(connect(near, (struct sockaddr *)&any, size), 0);
    *far = accept(listener, NULL, NULL);
    ck_assert_int_ge(*far, 0);
    close(listener);
    fcntl(near, F_SETFL, O_NONBLOCK);
    fcntl(*far, F_SETFL, O_NONBLOCK);
    stream_open(s, &poller, near, nothing, nothing, NULL);
}

static bool is_closed(int fd)
{
    struct tcp_info info;
    socklen_t size = sizeof info;

    ck_assert_int_eq(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size), 0);
    return info.tcpi_state == TCP_CLOSE;
}

/* splice(2) can receive the report of a reset and return the number of bytes that it sent before.
 * Here, SO_ERROR receives it. `spliced`: content was spliced to the socket. `fin`: the peer has
 * sent its FIN before it resets the connection. Returns the result of reading its end. */
static ssize_t read_after_lost_report(bool spliced, bool fin)
{
    struct linger now = {.l_onoff = 1};
    struct stream s;
    bool closed = false;
    char byte;
    int far, error;
    socklen_t size = sizeof error;

    open_tcp(&s, &far);
    s.spliced = spliced;
    ck_assert_int_eq(setsockopt(far, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    ck_assert_int_eq(write(far, "x", 1), 1);
    if (fin)
        ck_assert_int_eq(shutdown(far, SHUT_WR), 0);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = s.fd, .events = POLLIN}, 1, 10000), 1);
    ck_assert_int_eq(stream_read(&s, &byte, 1), 1);
    close(far);
    while (!closed && poll(&(struct pollfd){.fd = s.fd, .events = POLLIN}, 1, 10000) == 1)
        closed = is_closed(s.fd);
    ck_assert_int_eq(poll(&(struct pollfd){.fd = s.fd, .events = POLLIN}, 1, 10000), 1);
    ck_assert_int_eq(getsockopt(s.fd, SOL_SOCKET, SO_ERROR, &error, &size), 0);
    ck_assert_int_eq(error, fin ? EPIPE : ECONNRESET);
    ssize_t n = stream_read(&s, &byte, 1);
    stream_close(&s, &pool);
    return n;
}

START_TEST(a_reset_that_splice_received_is_no_end_of_input)
{
    ck_assert_int_eq(read_after_lost_report(false, false), 0);
    ck_assert_int_eq(read_after_lost_report(true, false), STREAM_FAILED);
    ck_assert_int_eq(read_after_lost_report(true, true), 0);
}
END_TEST

static char byte_at(size_t i)
{
    return (char)(i * 7 + (i >> 12) + (i >> 20));
}

static size_t sent, received; /* by the far ends */

static void feed(size_t size, size_t step)
{
    static char bytes[65536];
    size_t n = size - sent < step ? size - sent : step;

    n = n < sizeof bytes ? n : sizeof bytes;
    for (size_t i = 0; i < n; i++)
        bytes[i] = byte_at(sent + i);
    ssize_t written = n ? write(source, bytes, n) : 0;
    if (written > 0)
        sent += (size_t)written;
}

static void drain(size_t step)
{
    static char bytes[65536];
    ssize_t n = read(sink, bytes, step < sizeof bytes ? step : sizeof bytes);

    for (ssize_t i = 0; i < n; i++)
        if (bytes[i] !=
            byte_at(received + (size_t)i)) /* an assertion for each byte would take minutes */
            ck_abort_msg("byte %zu", received + (size_t)i);
    if (n > 0)
        received += (size_t)n;
}

/* Relays until the result is not "wait", with slow peers. */
static enum relay relay_all(size_t size, size_t step)
{
    enum relay moved = RELAY_SOURCE;

    while (moved == RELAY_SOURCE || moved == RELAY_SINK) {
        feed(size, step);
        drain(step);
        if (stream_holds_output(&to)) {
            if (!to.writing)
                ck_abort_msg("no one waits for space");
            if (stream_flush(&to, &pool) == SENT_FAILED)
                return RELAY_GONE;
        } else
            moved = relay_once();
    }
    return moved;
}

static void drain_rest(void)
{
    while (stream_holds_output(&to)) {
        ck_assert_int_ne(stream_flush(&to, &pool), SENT_FAILED);
        drain(65536);
    }
    for (size_t before = received + 1; before != received;) {
        before = received;
        drain(65536);
    }
}

static const size_t spliced_sizes[] = {SPLICE_MIN - 1,      SPLICE_MIN,     SPLICE_MIN + 1,
                                       PIPE_BYTES,          PIPE_BYTES + 1, 4 * PIPE_BYTES,
                                       4 * PIPE_BYTES + 999};

START_TEST(spliced_content_arrives_unchanged)
{
    size_t size = spliced_sizes[_i / 4], step = _i & 1 ? 65536 : 4001;
    begin(FRAMING_LENGTH, size, false, _i & 1 ? size : 0);

    if (_i & 2) {
        close_both();
        open_tcp(&from, &source);
        open_tcp(&to, &sink);
    }
    sent = received = 0;
    ck_assert_int_eq(relay_all(size, step), RELAY_ENDED);
    drain_rest();
    ck_assert_uint_eq(received, size);
    ck_assert_uint_eq(x.request.bytes, size);
    ck_assert_uint_eq(reader.left, 0);
    ck_assert_uint_eq(pool.pipes.open, pool.pipes.kept);
    ck_assert_int_eq(pool.pipes.open > 0, size >= SPLICE_MIN);
}
END_TEST

START_TEST(splicing_stops_at_the_end_of_the_message)
{
    size_t size = SPLICE_MIN + 5;
    begin(FRAMING_LENGTH, size, false, 0);
    char rest[16];

    sent = received = 0;
    ck_assert_int_eq(relay_all(size + 9, 65536), RELAY_ENDED);
    while (sent < size + 9)
        feed(size + 9, 65536);
    ck_assert_int_eq(read(from.fd, rest, sizeof rest), 9);
    drain_rest();
    ck_assert_uint_eq(received, size);
}
END_TEST

START_TEST(truncated_spliced_content_is_reported_and_counted)
{
    begin(FRAMING_LENGTH, 10 * SPLICE_MIN, false, 0);

    sent = received = 0;
    while (sent < 3 * SPLICE_MIN) {
        feed(3 * SPLICE_MIN, 65536);
        if (!stream_holds_output(&to))
            ck_assert_int_le(relay_once(), RELAY_SINK);
        drain_rest();
    }
    shutdown(source, SHUT_WR);
    ck_assert_int_eq(relay_all(3 * SPLICE_MIN, 65536), RELAY_CLOSED);
    drain_rest();
    ck_assert_int_ne(x.request.progress, MESSAGE_END);
    ck_assert_uint_eq(x.request.bytes, 3 * SPLICE_MIN);
    ck_assert_uint_eq(received, 3 * SPLICE_MIN);
}
END_TEST

START_TEST(spliced_content_until_close_ends_with_the_connection)
{
    begin(FRAMING_UNTIL_CLOSE, 0, false, 0);
    enum relay moved = RELAY_SOURCE;

    sent = received = 0;
    while (sent < 4 * SPLICE_MIN) {
        feed(4 * SPLICE_MIN, 65536);
        if (!stream_holds_output(&to))
            moved = relay_once();
        drain_rest();
    }
    ck_assert_int_ne(moved, RELAY_ENDED);
    shutdown(source, SHUT_WR);
    ck_assert_int_eq(relay_all(sent, 65536), RELAY_ENDED);
    drain_rest();
    ck_assert_uint_eq(received, 4 * SPLICE_MIN);
}
END_TEST

START_TEST(closing_a_sink_closes_its_pipe)
{
    size_t size = 8 * SPLICE_MIN;
    begin(FRAMING_LENGTH, size, false, 0);

    sent = received = 0;
    while (!to.pipe) {
        feed(size, 65536);
        (void)relay_once();
    }
    ck_assert_uint_gt(to.pipe->held, 0);
    close(sink);
    sink = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(stream_flush(&to, &pool), SENT_FAILED);
    stream_drop_output(&to, &pool);
    ck_assert(!stream_holds_output(&to));
    ck_assert_uint_eq(pool.pipes.open, pool.pipes.kept); /* its buffered bytes are discarded */
}
END_TEST

START_TEST(without_a_pipe_content_is_copied)
{
    size_t size = 2 * PIPE_BYTES + 1;
    begin(FRAMING_LENGTH, size, false, 0);

    pool.pipes.open = PIPES_MAX;
    sent = received = 0;
    ck_assert_int_eq(relay_all(size, 65536), RELAY_ENDED);
    drain_rest();
    ck_assert_uint_eq(received, size);
    ck_assert_uint_eq(pool.pipes.kept, 0);
    pool.pipes.open = 0;
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("relay");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_loop_test(tests, trailers_are_forwarded_except_framing_fields, 0, 2);
    tcase_add_test(tests, a_reset_that_splice_received_is_no_end_of_input);
    tcase_add_test(tests, a_message_with_only_forbidden_trailers_has_none);
    tcase_add_test(tests, a_known_length_is_read_exactly);
    tcase_add_test(tests, chunked_content_is_written_with_new_chunk_lines);
    tcase_add_test(tests, the_last_chunk_and_the_end_are_written_together);
    tcase_add_test(tests, content_until_close_ends_with_the_connection);
    tcase_add_test(tests, a_premature_close_is_reported);
    tcase_add_test(tests, invalid_chunks_are_reported_and_not_forwarded);
    tcase_add_test(tests, content_above_the_maximum_is_not_forwarded);
    tcase_add_test(tests, the_head_is_written_together_with_the_first_content);
    tcase_add_test(tests, content_after_a_head_keeps_the_following_bytes);
    tcase_add_test(tests, no_content_is_read_while_the_sink_is_full);
    tcase_add_test(tests, a_large_head_and_kept_content_wait_for_a_full_sink);
    tcase_add_loop_test(tests, discarded_content_leaves_the_next_message, 0, 2);
    tcase_add_test(tests, content_that_cannot_be_kept_leaves_the_next_message);
    tcase_add_test(tests, a_response_that_cannot_be_filtered_is_not_begun);
    tcase_add_loop_test(tests, a_response_without_its_last_piece_is_not_complete, 0, 3);
    tcase_add_test(tests, content_that_the_sink_did_not_accept_is_consumed_anyway);
    tcase_add_loop_test(tests, spliced_content_arrives_unchanged, 0,
                        4 * (int)COUNT_OF(spliced_sizes));
    tcase_add_test(tests, splicing_stops_at_the_end_of_the_message);
    tcase_add_test(tests, truncated_spliced_content_is_reported_and_counted);
    tcase_add_test(tests, spliced_content_until_close_ends_with_the_connection);
    tcase_add_test(tests, closing_a_sink_closes_its_pipe);
    tcase_add_test(tests, without_a_pipe_content_is_copied);
    tcase_add_test(tests, a_buffer_grows_for_a_head_in_pieces);
    suite_add_tcase(suite, tests);
    return run_suite_in_processes(suite);
}
