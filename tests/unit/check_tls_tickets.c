/* check_tls_tickets.c - the keys of session tickets change with time, and weir as client resumes
 * sessions for a limited time. */
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/macros.h"
#include "fault/test_clock.h"
#include "net/tls_internal.h"
#include "run_suite.h"

static const uint64_t hour_us = 3600 * (uint64_t)1000000;
static const int64_t margin_us = 10000000; /* more than the handshakes of a test take */
static uint64_t passed_us;

static void pass(uint64_t us)
{
    test_clock_advance_us(us);
    passed_us += us;
}

/* Check measures the time of a test by the same clock, and accepts an hour at most. */
static void end_test(void)
{
    test_clock_advance_us(-passed_us);
}

static struct tls_server *server_new(const char *client_ca)
{
    const char *srcdir = getenv("srcdir");
    struct tls_server *server = tls_server_new();
    char certificate[4096], key[4096], ca[4096], why[TLS_WHY_MAX];

    snprintf(certificate, sizeof certificate, "%s/tests/tls/cert.pem", srcdir ? srcdir : ".");
    snprintf(key, sizeof key, "%s/tests/tls/key.pem", srcdir ? srcdir : ".");
    snprintf(ca, sizeof ca, "%s/tests/tls/%s", srcdir ? srcdir : ".", client_ca ? client_ca : "");
    ck_assert_ptr_nonnull(server);
    ck_assert_msg(tls_server_add(server, certificate, key, why) == TLS_GOOD, "%s", why);
    struct tls_server_settings settings = {.client_ca = client_ca ? ca : NULL,
                                           .client_optional = true};
    ck_assert_msg(tls_server_set(server, &settings, why) == TLS_GOOD, "%s", why);
    return server;
}

/* --- A client --------------------------------------------------------------------------------- */

static SSL_SESSION *offered;             /* the last session that the server has offered */
static unsigned char used[16], made[16]; /* names of the keys of tickets */

static void read_name(const SSL_SESSION *session, unsigned char name[16])
{
    const unsigned char *ticket;
    size_t size;

    SSL_SESSION_get0_ticket(session, &ticket, &size);
    ck_assert_uint_gt(size, 16);
    memcpy(name, ticket, 16);
}

static void offer(SSL_SESSION *session)
{
    SSL_SESSION_free(offered);
    offered = session;
}

/* Connects with the last session. Returns whether the server has resumed it. */
static bool visit(struct tls_server *server, int version)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *client = SSL_new(ctx), *weir = tls_server_ssl(server);
    BIO *near, *far;
    char byte;

    ck_assert_int_eq(BIO_new_bio_pair(&near, 0, &far, 0), 1);
    SSL_set_bio(client, near, near);
    SSL_set_bio(weir, far, far);
    SSL_set_connect_state(client);
    SSL_set_accept_state(weir);
    ck_assert_int_eq(SSL_set_max_proto_version(client, version), 1);
    if (offered) {
        read_name(offered, used);
        ck_assert_int_eq(SSL_set_session(client, offered), 1);
    }
    for (int i = 0; i < 10 && !(SSL_is_init_finished(client) && SSL_is_init_finished(weir)); i++) {
        SSL_do_handshake(client);
        SSL_do_handshake(weir);
    }
    ck_assert(SSL_is_init_finished(client) && SSL_is_init_finished(weir));
    SSL_read(client, &byte, 1); /* with TLS 1.3, tickets follow the handshake */
    offer(SSL_get1_session(client));
    bool resumed = SSL_session_reused(client);
    SSL_shutdown(client); /* without it, OpenSSL does not resume the session */
    SSL_free(client);
    SSL_free(weir);
    SSL_CTX_free(ctx);
    ck_assert_ptr_nonnull(offered);
    read_name(offered, made);
    return resumed;
}

static SSL_SESSION *offered_copy(void)
{
    SSL_SESSION *copy = SSL_SESSION_dup(offered);
    ck_assert_ptr_nonnull(copy);
    return copy;
}

static const int versions[] = {TLS1_2_VERSION, TLS1_3_VERSION};

/* --- Tests ------------------------------------------------------------------------------------ */

START_TEST(a_key_encrypts_for_two_hours_and_decrypts_for_two_more)
{
    struct tls_server *server = server_new(NULL);
    unsigned char first[16];

    ck_assert(!visit(server, versions[_i]));
    memcpy(first, made, sizeof first);
    pass(2 * hour_us - margin_us);
    SSL_SESSION *old = offered_copy();
    ck_assert(visit(server, versions[_i]));
    ck_assert_mem_eq(made, first, sizeof first);
    SSL_SESSION *late = offered_copy(), *later = offered_copy();
    pass(margin_us);
    offer(late);
    ck_assert_msg(visit(server, versions[_i]), "a ticket of the key before");
    ck_assert_mem_eq(used, first, sizeof first);
    ck_assert_mem_ne(made, first, sizeof first);
    pass(2 * hour_us - margin_us);
    offer(later);
    ck_assert_msg(visit(server, versions[_i]), "shortly before the end of the last ticket");
    pass(margin_us);
    offer(old);
    ck_assert_msg(!visit(server, versions[_i]), "the key is still there");
    offer(NULL);
    tls_server_drop(server);
    end_test();
}
END_TEST

START_TEST(a_key_begins_with_its_first_ticket)
{
    struct tls_server *server = server_new(NULL);

    pass(100 * hour_us);
    ck_assert(!visit(server, versions[_i]));
    ck_assert(visit(server, versions[_i]));
    pass(100 * hour_us);
    ck_assert(!visit(server, versions[_i]));
    ck_assert(visit(server, versions[_i]));
    offer(NULL);
    tls_server_drop(server);
    end_test();
}
END_TEST

/* Afterwards the clock goes back, so that the handshake itself would not wipe the key. */
START_TEST(keys_are_wiped_without_handshakes)
{
    struct tls_server *server = server_new(NULL);

    ck_assert(!visit(server, versions[_i]));
    pass(4 * hour_us - margin_us);
    tls_server_wipe_old_keys(server);
    SSL_SESSION *copy = offered_copy();
    ck_assert(visit(server, versions[_i]));
    offer(copy);
    pass(margin_us);
    tls_server_wipe_old_keys(server);
    pass(-margin_us);
    ck_assert(!visit(server, versions[_i]));
    tls_server_wipe_old_keys(NULL);
    offer(NULL);
    tls_server_drop(server);
    end_test();
}
END_TEST

/* Both servers may have handshakes under way: a new key of one is accepted by the other. */
START_TEST(servers_share_their_keys_after_a_reload)
{
    struct tls_server *now = server_new(NULL), *next = server_new(NULL);
    struct tls_server *verifying = server_new("cert.pem"), *other = server_new("two.pem");

    ck_assert(!visit(now, versions[_i]));
    tls_server_keep_sessions(next, now);
    ck_assert(visit(next, versions[_i]));
    pass(2 * hour_us);
    ck_assert(visit(next, versions[_i]));
    ck_assert_mem_ne(made, used, sizeof made);
    ck_assert(visit(now, versions[_i]));
    tls_server_drop(now);
    ck_assert(visit(next, versions[_i]));
    ck_assert_mem_eq(made, used, sizeof made);
    tls_server_keep_sessions(verifying, next);
    ck_assert_msg(!visit(verifying, versions[_i]), "clients were not verified before");
    tls_server_keep_sessions(other, verifying);
    ck_assert_msg(!visit(other, versions[_i]), "clients were verified by other authorities");
    tls_server_keep_sessions(other, other);
    ck_assert(visit(other, versions[_i]));
    offer(NULL);
    tls_server_drop(next);
    tls_server_drop(verifying);
    tls_server_drop(other);
    end_test();
}
END_TEST

START_TEST(tickets_of_another_server_are_refused)
{
    struct tls_server *server = server_new(NULL), *stranger = server_new(NULL);

    ck_assert(!visit(server, versions[_i]));
    ck_assert(!visit(stranger, versions[_i]));
    ck_assert(!visit(server, versions[_i]));
    ck_assert(visit(server, versions[_i]));
    offer(NULL);
    tls_server_drop(server);
    tls_server_drop(stranger);
    end_test();
}
END_TEST

/* --- weir as client --------------------------------------------------------------------------- */

static void on_event(evutil_socket_t fd, short what, void *context)
{
    (void)fd, (void)what, (void)context;
}

/* A server as OpenSSL makes it: with TLS 1.3, each resumption brings a new ticket. */
static SSL_CTX *peer_new(int version)
{
    const char *srcdir = getenv("srcdir");
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());
    char certificate[4096], key[4096], why[TLS_WHY_MAX];

    snprintf(certificate, sizeof certificate, "%s/tests/tls/cert.pem", srcdir ? srcdir : ".");
    snprintf(key, sizeof key, "%s/tests/tls/key.pem", srcdir ? srcdir : ".");
    ck_assert_msg(tls_load_pair(ctx, certificate, key, why) == TLS_GOOD, "%s", why);
    ck_assert_int_eq(SSL_CTX_set_max_proto_version(ctx, version), 1);
    return ctx;
}

/* Returns whether the session was resumed. */
static bool connect_to(SSL_CTX *peer, struct tls_client *client, struct tls_resumption *resumption)
{
    struct event_base *base = event_base_new();
    struct poller poller;
    struct stream stream = {.fd = -1};
    struct iobuf_pool pool = {.memory = {0}};
    SSL *far = SSL_new(peer);
    int fds[2];
    char byte;

    ck_assert_int_eq(poller_init(&poller, base, 1), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    stream_open(&stream, &poller, fds[0], on_event, on_event, NULL);
    ck_assert(tls_connect(&stream, client, "a.test", resumption));
    ck_assert_int_eq(SSL_set_fd(far, fds[1]), 1);
    SSL_set_accept_state(far);
    for (int i = 0; i < 10 && tls_handshake(&stream) == TLS_AGAIN; i++)
        SSL_do_handshake(far);
    SSL_do_handshake(far);
    ck_assert(SSL_is_init_finished(far));
    ck_assert_int_eq(stream_read(&stream, &byte, 1), STREAM_AGAIN); /* tickets of TLS 1.3 */
    bool resumed = SSL_session_reused(far);
    stream_close(&stream, &pool);
    SSL_free(far);
    close(fds[1]);
    poller_clear(&poller);
    event_base_free(base);
    return resumed;
}

/* The peer accepts its tickets for longer: for 2 h, by the clock of the machine. */
START_TEST(a_server_is_verified_again_although_each_resumption_brings_a_new_session)
{
    const struct tls_client_settings settings = {.verify = false};
    SSL_CTX *peer = peer_new(versions[_i]);
    struct tls_resumption resumption = {.session = NULL};
    struct tls_client *client;
    char why[TLS_WHY_MAX];

    ck_assert_int_eq(tls_client_new(&settings, &client, why), TLS_GOOD);
    for (unsigned round = 0; round < 2; round++) {
        ck_assert(!connect_to(peer, client, &resumption));
        for (unsigned i = 0; i < 3; i++) {
            pass(hour_us / 4);
            ck_assert(connect_to(peer, client, &resumption));
        }
        pass(hour_us / 4);
    }
    tls_resumption_clear(&resumption);
    tls_client_free(client);
    SSL_CTX_free(peer);
    end_test();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tls_tickets");
    TCase *c = tcase_create("tickets");
    tcase_add_loop_test(c, a_key_encrypts_for_two_hours_and_decrypts_for_two_more, 0,
                        COUNT_OF(versions));
    tcase_add_loop_test(c, a_key_begins_with_its_first_ticket, 0, COUNT_OF(versions));
    tcase_add_loop_test(c, keys_are_wiped_without_handshakes, 0, COUNT_OF(versions));
    tcase_add_loop_test(c, servers_share_their_keys_after_a_reload, 0, COUNT_OF(versions));
    tcase_add_loop_test(c, tickets_of_another_server_are_refused, 0, COUNT_OF(versions));
    tcase_add_loop_test(c, a_server_is_verified_again_although_each_resumption_brings_a_new_session,
                        0, COUNT_OF(versions));
    suite_add_tcase(suite, c);
    return run_suite(suite);
}
