#include "store/redis_talk.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <stdlib.h>

#include "base/magic.h"
#include "store/redis_guard.h"
#include "store/redis_socket.h"

enum {
    TALK_MAGIC = 0x54414c4b,
    UNREAD_MAX = 8 << 20, /* bytes of an unfinished answer: the map of a very large cluster */
};

struct redis_talk {
    uint32_t magic;
    struct address address;
    struct bufferevent *stream;
    redisReader *reader;
    struct redis_guard guard;
    struct redis_hearer hearer;
    bool logging_in; /* the next answer is AUTH's */
    bool hearing;    /* inside one of the hearer's functions */
    bool over;       /* freed from there */
    bool starting;   /* a connect that fails at once is told by what redis_talk_new returns */
    bool failed;
};

/* --- Hearing ------------------------------------------------------------------------------------------ */

static void talk_end(struct redis_talk *talk)
{
    if (talk->stream)
        bufferevent_free(talk->stream);
    if (talk->reader)
        redisReaderFree(talk->reader);
    MAGIC_WIPE(talk);
    free(talk);
}

static void lose(struct redis_talk *talk, const char *why)
{
    talk->hearing = true;
    bufferevent_disable(talk->stream, EV_READ | EV_WRITE);
    talk->hearer.lost(talk->hearer.context, why);
    talk->hearing = false;
}

static void pass_on(struct redis_talk *talk, const redisReply *reply)
{
    bool login = talk->logging_in;

    talk->logging_in = false;
    if (login && reply->type != REDIS_REPLY_ERROR)
        return;
    talk->hearing = true;
    talk->hearer.heard(talk->hearer.context, reply);
    talk->hearing = false;
}

static bool feed(struct redis_talk *talk, struct evbuffer *in)
{
    char bytes[4096];

    for (int n; (n = evbuffer_remove(in, bytes, sizeof bytes)) > 0;)
        if (redisReaderFeed(talk->reader, bytes, (size_t)n) != REDIS_OK)
            return false;
    return true;
}

static void on_read(struct bufferevent *stream, void *arg)
{
    struct redis_talk *talk = arg;
    void *reply = NULL;
    bool good;

    MAGIC_CHECK(talk, TALK_MAGIC);
    good = feed(talk, bufferevent_get_input(stream));
    while (good && !talk->over) {
        good = redisReaderGetReply(talk->reader, &reply) == REDIS_OK &&
               talk->reader->len - talk->reader->pos <= UNREAD_MAX;
        if (!reply)
            break;
        if (good)
            pass_on(talk, reply);
        freeReplyObject(reply);
    }
    if (!good && !talk->over)
        lose(talk, "an answer of the wrong shape");
    if (talk->over)
        talk_end(talk);
}

static void on_event(struct bufferevent *stream, short what, void *arg)
{
    struct redis_talk *talk = arg;

    MAGIC_CHECK(talk, TALK_MAGIC);
    if (what & BEV_EVENT_CONNECTED) {
        redis_socket_options(bufferevent_getfd(stream), &talk->address);
        return;
    }
    if (talk->starting) {
        talk->failed = true;
        return;
    }
    lose(talk, what & BEV_EVENT_EOF ? "it hung up" : evutil_socket_error_to_string(EVUTIL_SOCKET_ERROR()));
    if (talk->over)
        talk_end(talk);
}

/* --- Saying ------------------------------------------------------------------------------------------- */

bool redis_talk_say(struct redis_talk *talk, int argc, const char *const *argv)
{
    char *command;
    int size = redisFormatCommandArgv(&command, argc, (const char **)argv, NULL);

    if (size < 0)
        return false;
    bool good = bufferevent_write(talk->stream, command, (size_t)size) == 0;
    redisFreeCommand(command);
    return good;
}

static bool log_in(struct redis_talk *talk, const char *username, const char *password)
{
    if (!password)
        return true;
    talk->logging_in = true;
    return username ? redis_talk_say(talk, 3, (const char *[]){"AUTH", username, password})
                    : redis_talk_say(talk, 2, (const char *[]){"AUTH", password});
}

/* --- Birth and end ------------------------------------------------------------------------------------ */

static bool dial(struct redis_talk *talk, struct event_base *base)
{
    static const unsigned always = 1; /* messages come unasked */
    struct address *to = &talk->address;

    if (to->length == 0 || !(talk->stream = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE)) ||
        !(talk->reader = redisReaderCreate()))
        return false;
    redis_guard(&talk->guard, talk->reader, &always);
    bufferevent_setcb(talk->stream, on_read, NULL, on_event, talk);
    return bufferevent_enable(talk->stream, EV_READ | EV_WRITE) == 0 &&
           bufferevent_socket_connect(talk->stream, &to->any, (int)to->length) == 0;
}

struct redis_talk *redis_talk_new(struct event_base *base, const struct address *address,
                                  const char *username, const char *password,
                                  const struct redis_hearer *hearer)
{
    struct redis_talk *talk = calloc(1, sizeof *talk);

    if (!talk)
        return NULL;
    MAGIC_SET(talk, TALK_MAGIC);
    talk->address = *address;
    talk->hearer = *hearer;
    talk->starting = true;
    bool good = dial(talk, base) && log_in(talk, username, password) && !talk->failed;
    talk->starting = false;
    if (good)
        return talk;
    talk_end(talk);
    return NULL;
}

void redis_talk_free(struct redis_talk *talk)
{
    if (!talk)
        return;
    if (talk->hearing)
        talk->over = true;
    else
        talk_end(talk);
}
