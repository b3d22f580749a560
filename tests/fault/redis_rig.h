/* redis_rig.h - Redis servers for tests: a real one to start, stop and suspend, and a scripted one
 * with faults. Both listen on a Unix socket in their own directory. */
#ifndef WEIR_TESTS_REDIS_RIG_H
#define WEIR_TESTS_REDIS_RIG_H

#include <event2/event.h>
#include <hiredis/hiredis.h>
#include <sys/types.h>

#include "policy/policy.h"

/* --- A temporary directory, removed by rig_remove_directory() ---- */
void rig_make_directory(char directory[64]);
void rig_remove_directory(const char *directory);

/* --- Running the event loop ---- */

/* Runs the loop, and `after` after each iteration, until `done(context)` is true. Fails the test
 * after 20 s. */
void rig_run_until(struct event_base *base, void (*after)(void *), bool (*done)(void *),
                   void *context);

/* --- The real server ---- */
struct real_redis {
    char directory[64];
    char path[128];
    struct address address;
    pid_t pid;
};

/* Fails the test if redis-server is not installed. */
void real_redis_start(struct real_redis *redis);
void real_redis_prepare(struct real_redis *redis);     /* directory and address only */
void real_redis_start_again(struct real_redis *redis); /* same path, after a kill */
void real_redis_kill(struct real_redis *redis);
void real_redis_stop(struct real_redis *redis);
/* Sends a blocking command on a new connection. The caller frees the reply. */
redisReply *real_redis_command(const struct real_redis *redis, const char *command);
void real_redis_do(const struct real_redis *redis, const char *command);

/* --- The scripted server: runs in the test's own event loop ---- */
enum fake_mode {
    FAKE_GOOD,    /* +OK, a SHA, +PONG; calls: `reply` */
    FAKE_HANG,    /* reads, never replies */
    FAKE_HALF,    /* half of an array, then closes */
    FAKE_GARBAGE, /* bytes that are not a reply */
    FAKE_EXTRA,   /* the reply twice */
    FAKE_CLOSE,   /* closes on a call */
    FAKE_HUGE,    /* an array of a billion elements */
    FAKE_DEAF     /* accepts, never reads */
};

struct fake_redis {
    struct event_base *base;
    char directory[64];
    struct address address;
    struct evconnlistener *listener;
    enum fake_mode mode;
    bool only_calls;         /* `mode` applies to calls only: set-up succeeds */
    const char *reply;       /* raw reply to a call; NULL: the driver's, all admitted */
    const char *setup_error; /* raw reply to `setup_command` */
    const char *setup_command;
    const char *role; /* raw reply to ROLE */
    bool holds_pongs; /* PING gets its reply from fake_redis_pong() */
    unsigned calls, evals, connections, script_loads, pings;
    struct fake_client *clients;
};

/* Also calls test_clock_skip_waits(true): everything happens in this event loop. */
void fake_redis_start(struct fake_redis *fake, struct event_base *base);
void fake_redis_stop(struct fake_redis *fake);
/* Drops all connections. */
void fake_redis_drop(struct fake_redis *fake);
/* Sends one PONG on each connection. */
void fake_redis_pong(struct fake_redis *fake);

#endif
