#include "store/redis_blocking.h"

#include <stdlib.h>

static redisContext *dial(const struct address *address, struct timeval patience)
{
    char text[ADDRESS_TEXT_MAX], *port;

    if (address_is_unix(address))
        return redisConnectUnixWithTimeout(address->local.sun_path, patience);
    address_format(address, text);
    port = strrchr(text, ':');
    *port++ = 0;
    if (text[0] == '[') { /* "[::1" without its last bracket */
        port[-2] = 0;
        return redisConnectWithTimeout(text + 1, atoi(port), patience);
    }
    return redisConnectWithTimeout(text, atoi(port), patience);
}

/* Takes the reply. False: `why` was set. */
static bool went_well(const redisContext *redis, redisReply *reply, char *why)
{
    bool good = reply && reply->type != REDIS_REPLY_ERROR;

    if (!good)
        snprintf(why, REDIS_WHY_MAX, "%s", reply ? reply->str : redis->errstr);
    freeReplyObject(reply);
    return good;
}

static bool log_in(redisContext *redis, const struct redis_settings *s, char *why)
{
    if (!s->password)
        return true;
    return went_well(redis,
                     s->username ? redisCommand(redis, "AUTH %s %s", s->username, s->password)
                                 : redisCommand(redis, "AUTH %s", s->password),
                     why);
}

static bool select_database(redisContext *redis, const struct redis_settings *s, char *why)
{
    return s->database == 0 || went_well(redis, redisCommand(redis, "SELECT %u", s->database), why);
}

redisContext *redis_dial(const struct redis_settings *settings, uint64_t patience_us,
                         char why[static REDIS_WHY_MAX])
{
    struct timeval patience = {(time_t)(patience_us / 1000000), (suseconds_t)(patience_us % 1000000)};
    redisContext *redis = settings->address.length ? dial(&settings->address, patience) : NULL;

    snprintf(why, REDIS_WHY_MAX, "%s", redis ? redis->errstr : "no address, or no memory");
    if (redis && !redis->err && redisSetTimeout(redis, patience) == REDIS_OK &&
        log_in(redis, settings, why) && select_database(redis, settings, why))
        return redis;
    if (redis)
        redisFree(redis);
    return NULL;
}
