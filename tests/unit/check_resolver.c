/* Name resolution without free descriptors. */
#include <check.h>
#include <sys/resource.h>
#include <unistd.h>

#include "net/resolver.h"
#include "run_suite.h"

static void on_answer(void *context, const struct resolver_answer *answer)
{
    (void)context, (void)answer;
}

/* Returns a UDP socket at a free port, and its address. */
static int open_name_server(struct address *address)
{
    struct ip loopback;
    int fd = socket(AF_INET, SOCK_DGRAM, 0);

    ck_assert(ip_parse(SLICE("127.0.0.1"), &loopback));
    address_of_ip(&loopback, 0, address);
    ck_assert_int_eq(bind(fd, &address->any, address->length), 0);
    ck_assert_int_eq(getsockname(fd, &address->any, &address->length), 0);
    return fd;
}

START_TEST(name_servers_are_used_when_descriptors_are_free_again)
{
    struct resolver_settings settings = {.nameserver_count = 1, .timeout_us = 5000000};
    struct event_base *base = event_base_new();
    struct rlimit before, none;
    char query[512];
    int server = open_name_server(&settings.nameservers[0]), next = dup(server);

    close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){(rlim_t)next, before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    struct resolver *resolver = resolver_new(base, &settings);
    ck_assert_ptr_nonnull(resolver);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_ptr_nonnull(resolver_look_up(resolver, "name.test", on_answer, NULL));
    event_base_loop(base, EVLOOP_NONBLOCK);
    ck_assert_int_gt(recv(server, query, sizeof query, MSG_DONTWAIT), 0);
    resolver_free(resolver);
    event_base_loop(base, EVLOOP_NONBLOCK);
    event_base_free(base);
    close(server);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resolver");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, name_servers_are_used_when_descriptors_are_free_again);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
