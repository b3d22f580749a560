/* check_relay.c - content between two streams: framing in, framing out, back-pressure, what belongs to the next message. */
#include <check.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proxy/relay.h"

static struct event_base *base;
static struct iobuf_pool pool;
static struct stream from, to;
static int source, sink; /* the far ends */
static char receive[IOBUF_READ_MAX];
static const char *why;

static void nothing(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

static void open_pair(struct stream *s, int *far)
{
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    stream_open(s, base, fds[0], nothing, nothing, NULL);
    *far = fds[1];
}

static void set_up(void)
{
    base = event_base_new();
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
    event_base_free(base);
}

static struct relay_means means(void)
{
    return (struct relay_means){&pool, receive};
}

static struct half half_of(enum framing_kind kind, uint64_t length, bool chunked_out, uint64_t max)
{
    struct half half;
    struct framing framing = {.kind = kind, .length = length};
    half_begin(&half, &framing, chunked_out, max);
    return half;
}

static void arrives(const char *bytes)
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

static enum relay move(struct half *half)
{
    struct relay_means m = means();
    return relay_move(half, &from, &to, true, &m, &why);
}

START_TEST(a_known_length_is_read_to_its_end_and_not_beyond)
{
    struct half half = half_of(FRAMING_LENGTH, 5, false, 0);
    arrives("helloGET /next");
    ck_assert_int_eq(move(&half), RELAY_ENDED);
    ck_assert(half.ended);
    assert_sent("hello");
    char rest[16];
    ck_assert_int_eq(read(from.fd, rest, sizeof rest), 9); /* the next message is still in the kernel */
}
END_TEST

START_TEST(chunked_content_is_written_with_chunk_lines_of_our_own)
{
    struct half half = half_of(FRAMING_CHUNKED, 0, true, 0);
    arrives("3;name=value\r\nabc\r\n2\r\nde\r\n");
    ck_assert_int_eq(move(&half), RELAY_SOURCE);
    assert_sent("5\r\nabcde\r\n");
    arrives("0\r\nTrailer: dropped\r\n\r\nGET /next");
    ck_assert_int_eq(move(&half), RELAY_ENDED);
    assert_sent("0\r\n\r\n");
    ck_assert(slice_equal(iobuf_slice(from.in), SLICE("GET /next")));
}
END_TEST

START_TEST(the_last_piece_and_the_end_go_out_together)
{
    struct half half = half_of(FRAMING_CHUNKED, 0, true, 0);
    arrives("3\r\nabc\r\n0\r\n\r\n");
    ck_assert_int_eq(move(&half), RELAY_ENDED);
    assert_sent("3\r\nabc\r\n0\r\n\r\n");
}
END_TEST

START_TEST(content_until_close_ends_with_the_connection)
{
    struct half half = half_of(FRAMING_UNTIL_CLOSE, 0, true, 0);
    arrives("some");
    ck_assert_int_eq(move(&half), RELAY_SOURCE);
    assert_sent("4\r\nsome\r\n");
    shutdown(source, SHUT_WR);
    ck_assert_int_eq(move(&half), RELAY_ENDED);
    assert_sent("0\r\n\r\n");
}
END_TEST

START_TEST(a_close_before_the_end_is_told)
{
    struct half half = half_of(FRAMING_LENGTH, 10, false, 0);
    arrives("some");
    ck_assert_int_eq(move(&half), RELAY_SOURCE);
    shutdown(source, SHUT_WR);
    ck_assert_int_eq(move(&half), RELAY_CLOSED);
    ck_assert(!half.ended);
}
END_TEST

START_TEST(broken_chunks_are_told_with_the_reason_and_not_passed_on)
{
    struct half half = half_of(FRAMING_CHUNKED, 0, true, 0);
    arrives("3\r\nabcdef\r\n");
    ck_assert_int_eq(move(&half), RELAY_BAD);
    ck_assert_ptr_nonnull(why);
    assert_sent("");
}
END_TEST

START_TEST(what_is_over_the_maximum_is_not_passed_on)
{
    struct half half = half_of(FRAMING_CHUNKED, 0, true, 4);
    arrives("3\r\nabc\r\n");
    ck_assert_int_eq(move(&half), RELAY_SOURCE);
    assert_sent("3\r\nabc\r\n");
    arrives("2\r\nde\r\n0\r\n\r\n");
    ck_assert_int_eq(move(&half), RELAY_TOO_LARGE);
    assert_sent("");
}
END_TEST

START_TEST(a_head_goes_out_with_the_first_piece_behind_it)
{
    struct half half = half_of(FRAMING_LENGTH, 5, false, 0);
    struct relay_means m = means();
    memcpy(receive, "helloHTTP/1.1 200", 17);
    ck_assert_int_eq(
        relay_begin(&half, &from, &to, SLICE("HEAD\r\n\r\n"), (struct behind){receive, 17}, &m, &why),
        RELAY_ENDED);
    assert_sent("HEAD\r\n\r\nhello");
    ck_assert(slice_equal(iobuf_slice(from.in),
                          SLICE("HTTP/1.1 200"))); /* a link that holds this is not used again */
}
END_TEST

START_TEST(nothing_is_read_while_the_sink_is_full)
{
    struct half half = half_of(FRAMING_LENGTH, 1 << 30, false, 0);
    static char piece[65536];
    uint64_t sent = 0;
    enum relay moved = RELAY_SOURCE;

    while (moved == RELAY_SOURCE) {
        ssize_t n = write(source, piece, sizeof piece);
        sent += n > 0 ? (uint64_t)n : 0;
        moved = move(&half);
    }
    ck_assert_int_eq(moved, RELAY_SINK);
    ck_assert_uint_le(iobuf_held(to.out), IOBUF_READ_MAX);
    ck_assert(to.writing);
    uint64_t got = 0;
    while (to.out) { /* the reader takes it all, and it goes on */
        static char taken[65536];
        ssize_t n = read(sink, taken, sizeof taken);
        got += n > 0 ? (uint64_t)n : 0;
        ck_assert_int_ne(stream_flush(&to, &pool), SENT_FAILED);
    }
    ck_assert_uint_le(got, half.bytes); /* the rest is in the socket of the reader */
    ck_assert_int_eq(move(&half) == RELAY_SOURCE || to.out != NULL, true);
    ck_assert_uint_le(half.bytes, sent);
}
END_TEST

START_TEST(dropped_content_leaves_the_next_message)
{
    struct half half = half_of(FRAMING_CHUNKED, 0, false, 0);
    struct relay_means m = means();
    arrives("3\r\nabc\r\n0\r\n\r\nGET /next");
    ck_assert_int_eq(relay_drop(&half, &from, true, &m, &why), RELAY_ENDED);
    ck_assert(slice_equal(iobuf_slice(from.in), SLICE("GET /next")));
    assert_sent("");
}
END_TEST

START_TEST(a_buffer_grows_to_hold_a_head_that_comes_in_pieces)
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

int main(void)
{
    Suite *suite = suite_create("relay");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, a_known_length_is_read_to_its_end_and_not_beyond);
    tcase_add_test(tests, chunked_content_is_written_with_chunk_lines_of_our_own);
    tcase_add_test(tests, the_last_piece_and_the_end_go_out_together);
    tcase_add_test(tests, content_until_close_ends_with_the_connection);
    tcase_add_test(tests, a_close_before_the_end_is_told);
    tcase_add_test(tests, broken_chunks_are_told_with_the_reason_and_not_passed_on);
    tcase_add_test(tests, what_is_over_the_maximum_is_not_passed_on);
    tcase_add_test(tests, a_head_goes_out_with_the_first_piece_behind_it);
    tcase_add_test(tests, nothing_is_read_while_the_sink_is_full);
    tcase_add_test(tests, dropped_content_leaves_the_next_message);
    tcase_add_test(tests, a_buffer_grows_to_hold_a_head_that_comes_in_pieces);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
