/* check_poller.c - many sockets in batches: each is reported once per received data, in turn, and
 * never after its end. */
#include <check.h>
#include <sys/socket.h>
#include <unistd.h>

#include "net/poller.h"
#include "run_suite.h"

enum { SOCKETS = 40, BATCH = 8 };

static struct event_base *base;
static struct poller poller;
static struct peer {
    struct watch watch;
    int near, far;
    unsigned reads, writes, wakes, ends; /* wakes: callbacks that found nothing to read */
} peers[SOCKETS];
static unsigned served;
static void (*also)(struct peer *peer); /* extra action of the callback */

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    struct peer *peer = arg;
    char byte;

    ck_assert_int_eq(fd, peer->near);
    served++;
    if (what == EV_CLOSED) {
        peer->ends++;
        watch_end(&peer->watch);
        return;
    }
    ck_assert_int_eq(what, EV_READ);
    if (recv(fd, &byte, 1, MSG_DONTWAIT) == 1)
        peer->reads++;
    else
        peer->wakes++;
    if (also)
        also(peer);
}

static void on_writable(evutil_socket_t fd, short what, void *arg)
{
    struct peer *peer = arg;

    ck_assert_int_eq(fd, peer->near);
    ck_assert_int_eq(what, EV_WRITE);
    peer->writes++;
    watch_want(&peer->watch, true, false);
}

static void open_peer(struct peer *peer)
{
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    *peer = (struct peer){.near = fds[0], .far = fds[1]};
    peer->watch.on_readable = on_readable;
    peer->watch.on_writable = on_writable;
    peer->watch.context = peer;
    watch_begin(&peer->watch, &poller, peer->near);
    watch_want(&peer->watch, true, false);
}

static void set_up(void)
{
    base = event_base_new();
    ck_assert_int_eq(poller_init(&poller, base, BATCH), 0);
    for (unsigned i = 0; i < SOCKETS; i++)
        open_peer(&peers[i]);
    served = 0;
    also = NULL;
}

static void tear_down(void)
{
    for (unsigned i = 0; i < SOCKETS; i++) {
        watch_end(&peers[i].watch);
        close(peers[i].near);
        close(peers[i].far);
    }
    poller_clear(&poller);
    event_base_free(base);
}

static void send_to_all(void)
{
    for (unsigned i = 0; i < SOCKETS; i++)
        ck_assert_int_eq(write(peers[i].far, "x", 1), 1);
}

static void iterate(void)
{
    event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

START_TEST(every_socket_is_served_before_one_is_served_again)
{
    send_to_all();
    send_to_all();
    for (unsigned n = 1; n <= SOCKETS / BATCH; n++) {
        iterate();
        ck_assert_uint_eq(served, n * BATCH);
    }
    for (unsigned i = 0; i < SOCKETS; i++)
        ck_assert_uint_eq(peers[i].reads, 1);
    while (served < 2 * SOCKETS)
        iterate();
    iterate();
    ck_assert_uint_eq(served, 2 * SOCKETS); /* no callback without an event */
}
END_TEST

static void stop(struct peer *peer)
{
    (void)peer;
    poller_stop(&poller);
    event_base_loopbreak(base);
}

START_TEST(an_aborted_iteration_continues_where_it_stopped)
{
    also = stop;
    send_to_all();
    for (unsigned n = 1; n <= SOCKETS; n++) {
        iterate();
        ck_assert_uint_eq(served, n);
    }
    for (unsigned i = 0; i < SOCKETS; i++)
        ck_assert_uint_eq(peers[i].reads, 1);
}
END_TEST

static struct peer *survivor;

static void end_all_others(struct peer *peer)
{
    survivor = peer;
    for (unsigned i = 0; i < SOCKETS; i++)
        if (&peers[i] != peer)
            watch_end(&peers[i].watch);
    also = NULL;
}

START_TEST(a_socket_without_a_watch_is_not_served_even_if_it_was_reported)
{
    watch_wake(&peers[1].watch);
    for (unsigned i = 0; i < SOCKETS; i++)
        watch_want(&peers[i].watch, true, true);
    send_to_all();
    also = end_all_others;
    iterate();
    iterate();
    ck_assert_uint_eq(served, 1);
    for (unsigned i = 0; i < SOCKETS; i++)
        ck_assert_uint_eq(peers[i].writes, &peers[i] == survivor);
}
END_TEST

static void close_and_open(struct peer *peer)
{
    struct peer *next = peer == &peers[0] ? &peers[1] : &peers[0];
    int descriptor = next->near;

    also = NULL;
    watch_end(&next->watch);
    close(next->near);
    close(next->far);
    open_peer(next); /* a new connection with the descriptor of one that was reported */
    ck_assert_int_eq(next->near, descriptor);
}

START_TEST(a_new_socket_does_not_get_events_of_its_descriptors_previous_owner)
{
    also = close_and_open;
    ck_assert_int_eq(write(peers[0].far, "x", 1), 1);
    ck_assert_int_eq(write(peers[1].far, "x", 1), 1);
    iterate();
    iterate();
    ck_assert_uint_eq(served, 1);
}
END_TEST

static void wake_again(struct peer *peer)
{
    if (peer->wakes < 3)
        watch_wake(&peer->watch);
}

START_TEST(a_woken_socket_is_called_once_per_wake_and_does_not_starve_others)
{
    also = wake_again;
    send_to_all();
    watch_wake(&peers[0].watch);
    watch_wake(&peers[0].watch);
    for (unsigned n = 0; n < 2 * SOCKETS && served < SOCKETS; n++)
        iterate();
    for (unsigned i = 0; i < SOCKETS; i++)
        ck_assert_uint_eq(peers[i].reads, 1);
    for (unsigned n = 0; n < 2 * SOCKETS; n++)
        iterate();
    ck_assert_uint_eq(peers[0].wakes, 3);
    watch_wake(&peers[0].watch);
    watch_cancel_wake(&peers[0].watch);
    iterate();
    ck_assert_uint_eq(peers[0].wakes, 3);
}
END_TEST

static void stop_and_wake(struct peer *peer)
{
    stop(peer);
    watch_wake(&peer->watch);
}

/* Half of the sockets have endless buffered input, such as a long pipeline of requests. Each
 * iteration has time for one socket. */
START_TEST(sockets_that_wake_themselves_do_not_starve_sockets_that_receive)
{
    for (unsigned i = 0; i < SOCKETS / 2; i++)
        watch_wake(&peers[i].watch);
    for (unsigned i = SOCKETS / 2; i < SOCKETS; i++)
        ck_assert_int_eq(write(peers[i].far, "x", 1), 1);
    also = stop_and_wake;
    for (unsigned n = 0; n < 4 * SOCKETS; n++)
        iterate();
    for (unsigned i = 0; i < SOCKETS; i++)
        ck_assert_msg(peers[i].reads + peers[i].wakes > 0, "socket %u was not served", i);
}
END_TEST

START_TEST(events_that_are_not_wanted_are_not_reported)
{
    watch_want(&peers[0].watch, false, false);
    ck_assert_int_eq(write(peers[0].far, "x", 1), 1);
    shutdown(peers[0].far, SHUT_RDWR); /* EPOLLHUP, which epoll always reports */
    iterate();
    ck_assert_uint_eq(served, 0);
    watch_want(&peers[0].watch, true, true);
    iterate();
    ck_assert_uint_eq(peers[0].reads, 1);
    ck_assert_uint_eq(peers[0].writes, 1);
}
END_TEST

/* Two pollers in one base: one with endless input does not starve the other. */
START_TEST(the_end_of_a_peer_is_reported_despite_unread_input)
{
    for (unsigned i = 0; i < 2; i++) {
        peers[i].watch.for_end = i == 0;
        watch_want(&peers[i].watch, false, false);
        ck_assert_int_eq(write(peers[i].far, "abc", 3), 3);
    }
    event_base_loop(base, EVLOOP_NONBLOCK);
    ck_assert_uint_eq(served, 0);
    ck_assert_int_eq(shutdown(peers[0].far, SHUT_WR), 0);
    ck_assert_int_eq(shutdown(peers[1].far, SHUT_WR), 0);
    event_base_loop(base, EVLOOP_NONBLOCK);
    event_base_loop(base, EVLOOP_NONBLOCK);
    ck_assert_uint_eq(peers[0].ends, 1);
    ck_assert_uint_eq(served, 1);
}
END_TEST

START_TEST(a_busy_poller_does_not_starve_another_one)
{
    struct poller other;
    struct peer lone;

    ck_assert_int_eq(poller_init(&other, base, BATCH), 0);
    open_peer(&lone);
    watch_end(&lone.watch);
    watch_begin(&lone.watch, &other, lone.near);
    watch_want(&lone.watch, true, false);
    send_to_all();
    also = stop;
    ck_assert_int_eq(write(lone.far, "x", 1), 1);
    for (unsigned n = 0; n < 3; n++)
        iterate();
    ck_assert_uint_eq(lone.reads, 1);
    watch_end(&lone.watch);
    close(lone.near), close(lone.far);
    poller_clear(&other);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("poller");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, set_up, tear_down);
    tcase_add_test(tests, every_socket_is_served_before_one_is_served_again);
    tcase_add_test(tests, an_aborted_iteration_continues_where_it_stopped);
    tcase_add_test(tests, a_socket_without_a_watch_is_not_served_even_if_it_was_reported);
    tcase_add_test(tests, a_new_socket_does_not_get_events_of_its_descriptors_previous_owner);
    tcase_add_test(tests, a_woken_socket_is_called_once_per_wake_and_does_not_starve_others);
    tcase_add_test(tests, sockets_that_wake_themselves_do_not_starve_sockets_that_receive);
    tcase_add_test(tests, events_that_are_not_wanted_are_not_reported);
    tcase_add_test(tests, the_end_of_a_peer_is_reported_despite_unread_input);
    tcase_add_test(tests, a_busy_poller_does_not_starve_another_one);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
