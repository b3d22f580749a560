/* blocking.h - a blocking Redis connection: for the command line, and for checks before the
 * workers start. A running worker never uses it. */
#ifndef WEIR_REDIS_BLOCKING_H
#define WEIR_REDIS_BLOCKING_H

#include "policy/policy.h"
#include "redis/redis_reply.h"

enum { REDIS_WHY_MAX = 160 };

struct redis_blocking;

/* Connects, logs in and selects the database. Of several addresses of a name, the first one that
 * works and is no replica is used. `timeout_us` limits each step and each later command. Returns
 * NULL on error; `why` then holds the cause. The caller frees the result with
 * redis_blocking_free(). */
struct redis_blocking *redis_dial(const struct redis_settings *settings, uint64_t timeout_us,
                                  char why[static REDIS_WHY_MAX]);

/* The same as redis_dial(). In a cluster, redis_dial_slot() connects to the master of `slot`.
 * redis_dial_part() connects to master number `part` (from 0) and sets `*parts` to the number of
 * masters. */
struct redis_blocking *redis_dial_slot(const struct redis_settings *settings, unsigned slot,
                                       uint64_t timeout_us, char why[static REDIS_WHY_MAX]);
struct redis_blocking *redis_dial_part(const struct redis_settings *settings, unsigned part,
                                       unsigned *parts, uint64_t timeout_us,
                                       char why[static REDIS_WHY_MAX]);

/* NULL is allowed. */
void redis_blocking_free(struct redis_blocking *redis);

/* Sends a command and waits for its reply. `sizes` NULL: the arguments end with a NUL. The reply is
 * valid until the next command. Returns NULL if there is none: the connection cannot be used
 * further, and redis_blocking_error() is the cause. Before, that is empty. */
const struct redis_reply *redis_command(struct redis_blocking *redis, int argc,
                                        const char *const *argv, const size_t *sizes);

/* The two halves of redis_command(), for callers that check something else meanwhile. redis_await()
 * waits for at most `us`. */
enum redis_awaited { REDIS_AWAITED_REPLY, REDIS_AWAITED_NOTHING, REDIS_AWAITED_END };
MUST_CHECK bool redis_command_begin(struct redis_blocking *redis, int argc, const char *const *argv,
                                    const size_t *sizes);
enum redis_awaited redis_await(struct redis_blocking *redis, uint64_t us);
/* The reply that redis_await() has found. */
const struct redis_reply *redis_awaited_reply(const struct redis_blocking *redis);

const char *redis_blocking_error(const struct redis_blocking *redis);
const struct address *redis_blocking_address(const struct redis_blocking *redis);
/* In a cluster: a slot that the node serves. */
unsigned redis_blocking_slot(const struct redis_blocking *redis);

#endif
