/* check_client.c - the client connections of a worker, with a protocol that has no socket. */
#include "downstream/client.h"

#include <stdlib.h>

#include "base/clock.h"
#include "downstream/handoff.h"
#include "fault/test_clock.h"
#include "run_suite.h"

enum { HEAD_US = 5000000, IDLE_US = 60000000, SECOND_US = 1000000 };

/* A connection of the protocol, with what weir has called. */
struct fake {
    struct client client;
    bool input;
    unsigned ends, frees, stops, cuts, head_timeouts, idle_timeouts;
};

static struct policy policy;
static struct worker_shared shared = {.workers = 1};
static struct worker *worker;
static struct fake fakes[4];
static unsigned flushes, states_freed;

static struct fake *fake_of(const struct client *client)
{
    return CONTAINER_OF((struct client *)(uintptr_t)client, struct fake, client);
}

static bool has_input(const struct client *client)
{
    return fake_of(client)->input;
}

static void head_timed_out(struct client *client)
{
    fake_of(client)->head_timeouts++;
    client_close(client);
}

static void idle_timed_out(struct client *client)
{
    fake_of(client)->idle_timeouts++;
    client_close(client);
}

static void stop(struct client *client)
{
    fake_of(client)->stops++;
    if (client->state != CLIENT_EXCHANGE)
        client_close(client);
}

static void cut(struct client *client, enum cause cause)
{
    (void)cause;
    fake_of(client)->cuts++;
    client_close(client);
}

static size_t memory(const struct client *client, uint64_t now_us, uint64_t *still_us)
{
    (void)client, (void)now_us, (void)still_us;
    return 1000;
}

static unsigned shed(struct client *client)
{
    client_close(client);
    return 1;
}

static void end(struct client *client)
{
    fake_of(client)->ends++;
}

static void release(struct client *client)
{
    fake_of(client)->frees++;
}

static const struct client_protocol fake_protocol = {.has_input = has_input,
                                                     .head_timed_out = head_timed_out,
                                                     .idle_timed_out = idle_timed_out,
                                                     .stop = stop,
                                                     .cut = cut,
                                                     .memory = memory,
                                                     .shed = shed,
                                                     .end = end,
                                                     .free = release};

static void set_up(void)
{
    policy.timeouts.request_header_us = HEAD_US;
    policy.timeouts.keepalive_us = IDLE_US;
    policy.size_limits.connections = 20;
    ck_assert_ptr_nonnull(worker = calloc(1, sizeof *worker));
    worker->policy = &policy;
    worker->shared = &shared;
    ck_assert_ptr_nonnull(worker->base = event_base_new());
    ck_assert_int_eq(deadlines_init(&worker->deadlines, worker->base), 0);
    ck_assert(clients_init(worker));
}

static void tear_down(void)
{
    clients_cut(worker);
    clients_free(worker);
    deadlines_clear(&worker->deadlines);
    event_base_free(worker->base);
    free(worker);
}

static void advance(uint64_t us)
{
    test_clock_advance_us(us);
    clock_iteration_begin();
}

static struct address peer(void)
{
    struct address address = {.length = sizeof address.v4};
    address.v4.sin_family = AF_INET;
    return address;
}

/* Opens a connection and enters `state` after its first byte. */
static struct client *open_in(struct fake *fake, enum client_state state)
{
    struct address address = peer();

    ck_assert(slot_take_here(worker));
    *fake = (struct fake){.client.protocol = &fake_protocol};
    client_begin(&fake->client, worker, &address, false);
    client_speaks(&fake->client);
    client_enter(&fake->client, state);
    return &fake->client;
}

static unsigned open_count(void)
{
    return (unsigned)counter_read(&worker->stats.connections_open);
}

START_TEST(a_connection_frees_its_slot_and_its_struct)
{
    struct client *c = open_in(&fakes[0], CLIENT_EXCHANGE);

    ck_assert_uint_eq(open_count(), 1);
    ck_assert_uint_eq(worker->downstream->handoff.slots, 1);
    client_close(c);
    client_close(c);
    ck_assert_uint_eq(worker->downstream->handoff.slots, 0);
    ck_assert_uint_eq(open_count(), 0);
    ck_assert_uint_eq(fakes[0].ends, 1);
    ck_assert_uint_eq(fakes[0].frees, 0);
    clients_free_closed(worker);
    ck_assert_uint_eq(fakes[0].frees, 1);
    ck_assert(!clients_any(worker));
}
END_TEST

START_TEST(the_order_of_eviction)
{
    struct address address = peer();
    struct client *head = open_in(&fakes[0], CLIENT_HEAD),
                  *lingers = open_in(&fakes[1], CLIENT_LINGER),
                  *idle = open_in(&fakes[2], CLIENT_IDLE), *silent = &fakes[3].client;

    fakes[3] = (struct fake){.client.protocol = &fake_protocol};
    ck_assert(slot_take_here(worker));
    client_begin(silent, worker, &address, false);
    ck_assert_ptr_null(client_to_evict(worker, true)); /* they are young */
    advance(SECOND_US + 1000);
    struct client *order[] = {silent, idle, lingers, head};
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_ptr_eq(client_to_evict(worker, true), order[i]);
        client_evict(order[i]);
    }
    ck_assert_ptr_null(client_to_evict(worker, true));
    ck_assert_uint_eq(counter_read(&worker->stats.connections_evicted), 4);
}
END_TEST

START_TEST(connections_with_input_are_not_evicted)
{
    struct client *first = open_in(&fakes[0], CLIENT_IDLE),
                  *second = open_in(&fakes[1], CLIENT_IDLE);

    open_in(&fakes[2], CLIENT_HEAD);
    fakes[0].input = fakes[2].input = true;
    advance(SECOND_US + 1000);
    ck_assert_ptr_eq(client_to_evict(worker, true), second);
    client_evict(second);
    ck_assert_ptr_null(client_to_evict(worker, true));
    fakes[0].input = false;
    ck_assert_ptr_eq(client_to_evict(worker, true), first);
}
END_TEST

START_TEST(deadlines_of_heads_and_idle_connections)
{
    struct client *idle = open_in(&fakes[1], CLIENT_IDLE);

    open_in(&fakes[0], CLIENT_HEAD);
    deadline_arm(&worker->downstream->queue.idle, &idle->deadline, clock_us(), IDLE_US);
    advance(HEAD_US + 1000);
    deadlines_pass(&worker->deadlines);
    ck_assert_uint_eq(fakes[0].head_timeouts, 1);
    fakes[1].input = true;
    advance(IDLE_US);
    deadlines_pass(&worker->deadlines);
    ck_assert_uint_eq(fakes[1].idle_timeouts, 0); /* its request has arrived */
    fakes[1].input = false;
    advance(IDLE_US + 1000);
    deadlines_pass(&worker->deadlines);
    ck_assert_uint_eq(fakes[1].idle_timeouts, 1);
    ck_assert(!clients_any(worker));
}
END_TEST

START_TEST(stop_and_cut)
{
    open_in(&fakes[0], CLIENT_EXCHANGE);
    open_in(&fakes[1], CLIENT_IDLE);
    open_in(&fakes[2], CLIENT_LINGER);
    clients_stop(worker);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_uint_eq(fakes[i].stops, 1);
    ck_assert_uint_eq(open_count(), 1);
    clients_cut(worker);
    ck_assert_uint_eq(fakes[0].cuts, 1);
    ck_assert_uint_eq(counter_read(&worker->stats.connections_lingering), 0);
    ck_assert(!clients_any(worker));
}
END_TEST

START_TEST(a_worker_with_all_slots_taken_gives_way)
{
    struct client *c = open_in(&fakes[0], CLIENT_EXCHANGE);

    advance(2 * SECOND_US);
    ck_assert(!client_gives_way(c));
    worker->downstream->slots_exhausted = true;
    ck_assert(client_gives_way(c));
}
END_TEST

static void flush(struct protocol_worker *protocol)
{
    (void)protocol;
    flushes++;
}

static void free_state(struct protocol_worker *protocol)
{
    (void)protocol;
    states_freed++;
}

START_TEST(the_state_of_a_protocol_is_flushed_and_freed)
{
    struct protocol_worker states[2] = {{.flush = flush, .free = free_state},
                                        {.flush = flush, .free = free_state}};

    clients_flush(worker);
    clients_add_protocol(worker, &states[0]);
    clients_add_protocol(worker, &states[1]);
    clients_flush(worker);
    ck_assert_uint_eq(flushes, 2);
    clients_free(worker);
    ck_assert_uint_eq(states_freed, 2);
    ck_assert(clients_init(worker));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client");
    TCase *tcase = tcase_create("core");

    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, a_connection_frees_its_slot_and_its_struct);
    tcase_add_test(tcase, the_order_of_eviction);
    tcase_add_test(tcase, connections_with_input_are_not_evicted);
    tcase_add_test(tcase, deadlines_of_heads_and_idle_connections);
    tcase_add_test(tcase, stop_and_cut);
    tcase_add_test(tcase, a_worker_with_all_slots_taken_gives_way);
    tcase_add_test(tcase, the_state_of_a_protocol_is_flushed_and_freed);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
