#include "fault/redis_rig.h"

#include <check.h>
#include <dirent.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "fault/test_clock.h"

static const uint64_t rig_timeout_us = 20000000;

/* --- Directory and loop ------------------------------------------------------------------------------- */

void rig_make_directory(char directory[64])
{
    strcpy(directory, "/tmp/weir-test-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

void rig_remove_directory(const char *directory)
{
    DIR *dir = opendir(directory);
    struct dirent *found;
    char path[512];

    while (dir && (found = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", directory, found->d_name);
        if (found->d_name[0] != '.')
            unlink(path);
    }
    if (dir)
        closedir(dir);
    rmdir(directory);
}

static void on_tick(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
}

void rig_run_until(struct event_base *base, void (*after)(void *), bool (*done)(void *),
                   void *context)
{
    static const struct timeval moment = {0, 2000};
    struct event *tick = event_new(base, -1, EV_PERSIST, on_tick, NULL);
    uint64_t since = clock_us();

    event_add(tick, &moment);
    if (after)
        after(context);
    while (!done(context)) {
        event_base_loop(base, EVLOOP_ONCE);
        if (after)
            after(context);
        ck_assert_msg(clock_us() - since < rig_timeout_us, "timed out");
    }
    event_free(tick);
}

static void set_address(struct address *address, char *path, size_t size, const char *directory)
{
    char text[128];
    const char *why;

    snprintf(text, sizeof text, "unix:%s/redis.sock", directory);
    ck_assert(address_parse(slice_of(text), false, address, &why));
    if (path)
        snprintf(path, size, "%s", text + 5);
}

/* --- The real server ---------------------------------------------------------------------------------- */

static void wait_for_reply(struct real_redis *redis)
{
    uint64_t since = clock_us();
    const struct timespec moment = {0, 2000000};

    for (;;) {
        redisContext *c = redisConnectUnix(redis->path);
        redisReply *reply = c && !c->err ? redisCommand(c, "PING") : NULL;
        bool fine = reply && reply->type == REDIS_REPLY_STATUS;
        freeReplyObject(reply);
        if (c)
            redisFree(c);
        if (fine)
            return;
        ck_assert_msg(clock_us() - since < rig_timeout_us, "redis-server does not reply");
        nanosleep(&moment, NULL);
    }
}

void real_redis_start_again(struct real_redis *redis)
{
    redis->pid = fork();
    ck_assert_int_ge(redis->pid, 0);
    if (redis->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", redis->path, "--save",
               "", "--appendonly", "no", "--logfile", "/dev/null", "--dir", redis->directory, NULL);
        _exit(127);
    }
    wait_for_reply(redis);
}

void real_redis_prepare(struct real_redis *redis)
{
    rig_make_directory(redis->directory);
    set_address(&redis->address, redis->path, sizeof redis->path, redis->directory);
}

void real_redis_start(struct real_redis *redis)
{
    ck_assert_msg(system("command -v redis-server >/dev/null") == 0,
                  "redis-server is missing: install the Debian package redis-server");
    real_redis_prepare(redis);
    real_redis_start_again(redis);
}

void real_redis_kill(struct real_redis *redis)
{
    kill(redis->pid, SIGKILL);
    waitpid(redis->pid, NULL, 0);
}

void real_redis_stop(struct real_redis *redis)
{
    real_redis_kill(redis);
    rig_remove_directory(redis->directory);
}

redisReply *real_redis_command(const struct real_redis *redis, const char *command)
{
    redisContext *c = redisConnectUnix(redis->path);
    ck_assert(c && !c->err);
    redisReply *reply = redisCommand(c, command);
    redisFree(c);
    ck_assert_ptr_nonnull(reply);
    return reply;
}

void real_redis_do(const struct real_redis *redis, const char *command)
{
    freeReplyObject(real_redis_command(redis, command));
}

/* --- The scripted server ------------------------------------------------------------------------------ */

struct fake_client {
    struct fake_client *next;
    struct fake_redis *fake;
    struct bufferevent *stream;
    redisReader *reader; /* a command is an array like any other */
};

static void client_close(struct fake_client *client)
{
    struct fake_client **at = &client->fake->clients;
    while (*at != client)
        at = &(*at)->next;
    *at = client->next;
    bufferevent_free(client->stream);
    redisReaderFree(client->reader);
    free(client);
}

static void send_reply(struct fake_client *client, const char *bytes)
{
    evbuffer_add(bufferevent_get_output(client->stream), bytes, strlen(bytes));
}

static long argument(const redisReply *command, size_t i)
{
    return i < command->elements ? strtol(command->element[i]->str, NULL, 10) : 0;
}

/* Writes the driver's reply if everything is admitted: remaining 7, reset 1 s. */
static unsigned write_result(struct evbuffer *out, long limits, bool plain)
{
    for (long i = 0; i < limits; i++)
        evbuffer_add_printf(out,
                            plain ? ":7\r\n:1000000\r\n" : ":1\r\n:7\r\n:0\r\n:1000000\r\n:0\r\n");
    return (unsigned)limits * (plain ? 2 : 5);
}

static void send_admitted(struct fake_client *client, const redisReply *command)
{
    struct evbuffer *out = bufferevent_get_output(client->stream), *numbers = evbuffer_new();
    size_t at = 3 + (size_t)argument(command, 2);
    unsigned count = 1;

    at += argument(command, at) >= 0; /* the clock */
    while (at < command->elements) {
        bool plain = argument(command, at) < 0;
        long header = labs(argument(command, at)), requests = header / 10, each = header % 10;
        count += write_result(numbers, requests * each, plain);
        at += 1 + (size_t)each * (plain ? 1 : requests > 1 ? 7 : 6);
    }
    evbuffer_add_printf(out, "*%u\r\n", count);
    evbuffer_add_buffer(out, numbers);
    evbuffer_free(numbers);
    send_reply(client, ":1790000000000000\r\n");
}

static void reply_to_call(struct fake_client *client, const redisReply *command)
{
    struct fake_redis *fake = client->fake;
    if (fake->reply)
        send_reply(client, fake->reply);
    else
        send_admitted(client, command);
}

static bool is(const redisReply *command, const char *name)
{
    return command->elements > 0 && strcasecmp(command->element[0]->str, name) == 0;
}

static void reply_to_setup(struct fake_client *client, const redisReply *command)
{
    struct fake_redis *fake = client->fake;

    if (fake->setup_error && is(command, fake->setup_command))
        send_reply(client, fake->setup_error);
    else if (is(command, "SCRIPT")) {
        fake->script_loads++;
        send_reply(client, "$40\r\n0123456789abcdef0123456789abcdef01234567\r\n");
    } else if (is(command, "ROLE"))
        send_reply(client, fake->role ? fake->role : "*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n");
    else if (is(command, "PING")) {
        fake->pings++;
        send_reply(client, fake->holds_pongs ? "" : "+PONG\r\n");
    } else
        send_reply(client, "+OK\r\n");
}

static void reply_normally(struct fake_client *client, const redisReply *command)
{
    if (is(command, "EVALSHA") || is(command, "EVAL"))
        reply_to_call(client, command);
    else
        reply_to_setup(client, command);
}

/* Returns false if the connection was closed. */
static bool handle_command(struct fake_client *client, const redisReply *command)
{
    struct fake_redis *fake = client->fake;
    bool call = is(command, "EVALSHA") || is(command, "EVAL");

    fake->calls += is(command, "EVALSHA");
    fake->evals += is(command, "EVAL");
    switch (call || !fake->only_calls ? fake->mode : FAKE_GOOD) {
    case FAKE_GOOD: reply_normally(client, command); break;
    case FAKE_HANG:
    case FAKE_DEAF: break;
    case FAKE_HALF:
        send_reply(client, "*5\r\n:1\r\n:2\r\n:");
        bufferevent_flush(client->stream, EV_WRITE, BEV_FLUSH);
        evbuffer_write(bufferevent_get_output(client->stream), bufferevent_getfd(client->stream));
        client_close(client);
        return false;
    case FAKE_GARBAGE: send_reply(client, "HTTP/1.1 400 Bad Request\r\n\r\n"); break;
    case FAKE_EXTRA:
        reply_normally(client, command);
        reply_normally(client, command);
        break;
    case FAKE_CLOSE: client_close(client); return false;
    case FAKE_HUGE: send_reply(client, "*1000000000\r\n:1\r\n"); break;
    }
    return true;
}

static void on_read(struct bufferevent *stream, void *arg)
{
    struct fake_client *client = arg;
    char bytes[65536];
    size_t n;
    void *command;
    bool alive = true;

    while ((n = bufferevent_read(stream, bytes, sizeof bytes)) > 0)
        redisReaderFeed(client->reader, bytes, n);
    while (alive && redisReaderGetReply(client->reader, &command) == REDIS_OK && command) {
        alive = handle_command(client, command);
        freeReplyObject(command);
    }
}

static void on_event(struct bufferevent *stream, short what, void *arg)
{
    (void)stream;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        client_close(arg);
}

static void on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int size, void *arg)
{
    struct fake_redis *fake = arg;
    struct fake_client *client = calloc(1, sizeof *client);
    (void)listener, (void)peer, (void)size;

    ck_assert_ptr_nonnull(client);
    fake->connections++;
    *client = (struct fake_client){fake->clients, fake, NULL, redisReaderCreate()};
    client->stream = bufferevent_socket_new(fake->base, fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(client->stream, on_read, NULL, on_event, client);
    bufferevent_enable(client->stream, fake->mode == FAKE_DEAF ? EV_WRITE : EV_READ | EV_WRITE);
    if (fake->mode == FAKE_DEAF)
        bufferevent_disable(client->stream, EV_READ);
    fake->clients = client;
}

void fake_redis_start(struct fake_redis *fake, struct event_base *base)
{
    *fake = (struct fake_redis){.base = base};
    test_clock_skip_waits(true);
    rig_make_directory(fake->directory);
    set_address(&fake->address, NULL, 0, fake->directory);
    fake->listener = evconnlistener_new_bind(base, on_accept, fake, LEV_OPT_CLOSE_ON_FREE, 64,
                                             &fake->address.any, (int)fake->address.length);
    ck_assert_ptr_nonnull(fake->listener);
}

void fake_redis_drop(struct fake_redis *fake)
{
    while (fake->clients)
        client_close(fake->clients);
}

void fake_redis_pong(struct fake_redis *fake)
{
    for (struct fake_client *client = fake->clients; client; client = client->next)
        send_reply(client, "+PONG\r\n");
}

void fake_redis_stop(struct fake_redis *fake)
{
    fake_redis_drop(fake);
    evconnlistener_free(fake->listener);
    rig_remove_directory(fake->directory);
}
