/* check_tls_bufferevent.c - every failed handshake of an admin listener is reported once. */
#include <check.h>
#include <event2/event.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "net/buffer_memory.h"
#include "net/tls_bufferevent.h"
#include "net/tls_internal.h"
#include "run_suite.h"

static struct event_base *base;
static struct tls_server *server;
static unsigned reports;
static enum tls_failure reported;
static struct bufferevent *accepted;
static bool connected;

static void set_up(void)
{
    const char *srcdir = getenv("srcdir");
    char certificate[4096], key[4096], why[TLS_WHY_MAX];

    snprintf(certificate, sizeof certificate, "%s/tests/tls/cert.pem", srcdir ? srcdir : ".");
    snprintf(key, sizeof key, "%s/tests/tls/key.pem", srcdir ? srcdir : ".");
    signal(SIGPIPE, SIG_IGN); /* as weir does */
    base = event_base_new();
    server = tls_server_new();
    ck_assert(base && server);
    ck_assert_msg(tls_server_add(server, certificate, key, why) == TLS_GOOD, "%s", why);
}

static void tear_down(void)
{
    tls_server_drop(server);
    event_base_free(base);
}

static void on_failed(void *context, evutil_socket_t fd, enum tls_failure failure)
{
    (void)fd;
    ck_assert_ptr_eq(context, &reports);
    reports++;
    reported = failure;
}

/* As evhttp does. */
static void on_event(struct bufferevent *bufferevent, short what, void *context)
{
    (void)context;
    if (what & BEV_EVENT_CONNECTED)
        connected = true;
    else {
        bufferevent_free(bufferevent);
        accepted = NULL;
    }
}

static void set_timeout(bool soon)
{
    const struct timeval timeout = {soon ? 0 : 60, 30000};
    bufferevent_set_timeouts(accepted, &timeout, &timeout);
}

/* Accepts one end of a socket pair; returns the other one. */
static int accept_one(bool times_out)
{
    int pair[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    evutil_make_socket_nonblocking(pair[0]);
    accepted = tls_bufferevent_new(base, server, on_failed, &reports);
    ck_assert_ptr_nonnull(accepted);
    ck_assert_int_eq(bufferevent_setfd(accepted, pair[0]), 0);
    bufferevent_setcb(accepted, NULL, NULL, on_event, NULL);
    set_timeout(times_out);
    bufferevent_enable(accepted, EV_READ | EV_WRITE);
    return pair[1];
}

static void run_until_freed(void)
{
    while (accepted)
        event_base_loop(base, EVLOOP_ONCE);
    for (int i = 0; i < 3; i++)
        event_base_loop(base, EVLOOP_NONBLOCK);
}

#define HELLO       NULL, 0
#define BYTES(text) text, sizeof text - 1

static const struct row {
    const char *bytes; /* that the client sends; NULL: a whole ClientHello */
    size_t size;
    bool closes, resets;
    enum tls_failure failure;
} rows[] = {
    {BYTES(""), false, false, TLS_FAILURE_TIMEOUT},
    {BYTES("\x16\x03\x01"), false, false, TLS_FAILURE_TIMEOUT},
    {HELLO, false, false, TLS_FAILURE_TIMEOUT},
    {BYTES(""), true, false, TLS_FAILURE_CLOSED},
    {BYTES("\x16\x03\x01"), true, false, TLS_FAILURE_CLOSED},
    {HELLO, true, false, TLS_FAILURE_CLOSED},
    {HELLO, true, true, TLS_FAILURE_CLOSED},
    {BYTES("GET / HTTP/1.1\r\n\r\n"), false, false, TLS_FAILURE_PLAIN_HTTP},
    {BYTES("SSH-2.0-OpenSSH\r\n"), false, false, TLS_FAILURE_PROTOCOL},
    {BYTES("\x16\x03\x03\0\x05\x01\0\0\x01\0"), false, false, TLS_FAILURE_PROTOCOL},
};

static void send_hello(int fd)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *client = SSL_new(ctx);

    ck_assert_int_eq(SSL_set_fd(client, fd), 1);
    evutil_make_socket_nonblocking(fd);
    SSL_connect(client);
    SSL_free(client);
    SSL_CTX_free(ctx);
}

START_TEST(each_failure_is_reported_once)
{
    const struct row *row = &rows[_i];
    int fd = accept_one(row->failure == TLS_FAILURE_TIMEOUT);

    if (!row->bytes)
        send_hello(fd);
    else
        ck_assert_int_eq(write(fd, row->bytes, row->size), (ssize_t)row->size);
    if (row->closes && !row->resets)
        shutdown(fd, SHUT_WR);
    if (row->resets)
        close(fd); /* with unread bytes: a reset */
    run_until_freed();
    ck_assert_uint_eq(reports, 1);
    ck_assert_msg(reported == row->failure, "%s", tls_failure_table[reported].label);
    if (!row->resets)
        close(fd);
}
END_TEST

START_TEST(a_handshake_that_is_done_has_not_failed)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *client = SSL_new(ctx);
    int fd = accept_one(false);

    evutil_make_socket_nonblocking(fd);
    ck_assert_int_eq(SSL_set_fd(client, fd), 1);
    while (!connected) {
        SSL_connect(client);
        event_base_loop(base, EVLOOP_NONBLOCK);
    }
    if (_i)
        SSL_shutdown(client);
    else
        set_timeout(true);
    run_until_freed();
    ck_assert_uint_eq(reports, 0);
    SSL_free(client);
    SSL_CTX_free(ctx);
    close(fd);
}
END_TEST

static void run_until_used(uint64_t bytes)
{
    while (memory_used() != bytes)
        event_base_loop(base, EVLOOP_ONCE);
}

/* Opens `admitted` handshakes, and one that takes the place of the oldest. */
static void check_bound(unsigned admitted)
{
    uint64_t others = memory_used();
    int ends[64], newest;
    char byte;

    for (unsigned i = 0; i < admitted; i++)
        ends[i] = accept_one(false);
    run_until_used(others + admitted * (uint64_t)TLS_HANDSHAKE_BYTES);
    ck_assert_uint_eq(reports, 0);
    newest = accept_one(false);
    run_until_freed();
    ck_assert_uint_eq(reports, 1);
    ck_assert_int_eq(reported, TLS_FAILURE_DISPLACED);
    ck_assert_int_eq(read(ends[0], &byte, 1), 0);
    ck_assert_uint_eq(memory_used(), others + admitted * (uint64_t)TLS_HANDSHAKE_BYTES);
    close(newest);
    for (unsigned i = 0; i < admitted; i++)
        close(ends[i]);
    run_until_used(others);
    ck_assert_uint_eq(reports, 1 + admitted);
    ck_assert_int_eq(reported, TLS_FAILURE_CLOSED);
    memory_set_limit(UINT64_MAX);
}

START_TEST(some_handshakes_are_admitted_without_memory)
{
    struct buffer_memory others = {0};

    memory_set_limit(64 << 20);
    memory_take(&others, 72 << 20);
    check_bound(TLS_BUFFEREVENTS_ADMITTED);
    memory_give(&others, 72 << 20);
}
END_TEST

START_TEST(handshakes_use_an_eighth_of_the_memory)
{
    memory_set_limit(8 * 30 * (uint64_t)TLS_HANDSHAKE_BYTES);
    check_bound(30);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_bufferevent");
    TCase *c = tcase_create("handshakes");
    tcase_add_checked_fixture(c, set_up, tear_down);
    tcase_add_loop_test(c, each_failure_is_reported_once, 0, COUNT_OF(rows));
    tcase_add_loop_test(c, a_handshake_that_is_done_has_not_failed, 0, 2);
    tcase_add_test(c, some_handshakes_are_admitted_without_memory);
    tcase_add_test(c, handshakes_use_an_eighth_of_the_memory);
    suite_add_tcase(suite, c);
    return run_suite_in_processes(suite);
}
