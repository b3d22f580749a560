/* redis_link_setup.c - set-up commands of a new connection: AUTH, CLIENT SETNAME, SELECT, SCRIPT
 * LOAD, ROLE. All are sent together; the link is ready with the last reply. */
#include <stdio.h>

#include "redis/redis_link_internal.h"

enum setup { SETUP_AUTH, SETUP_NAME, SETUP_SELECT, SETUP_SCRIPT, SETUP_ROLE };

static void setup_error(struct redis_link *link, enum setup step, const char *message)
{
    enum redis_failure cause = redis_failure_of(message);

    if ((step == SETUP_NAME || step == SETUP_ROLE) && cause != REDIS_FAILURE_CLIENTS &&
        cause != REDIS_FAILURE_PROTECTED) /* best effort: the user may lack the permission */
        return;
    if (step == SETUP_AUTH && cause == REDIS_FAILURE_SCRIPT)
        cause = REDIS_FAILURE_AUTH;
    if (step == SETUP_SELECT && cause == REDIS_FAILURE_SCRIPT)
        cause = REDIS_FAILURE_CONNECT; /* "ERR DB index is out of range" */
    redis_link_close(link, cause, message);
}

static void on_setup(redisAsyncContext *ac, void *r, void *arg)
{
    struct redis_link *link = redis_link_answered(ac, r);
    const struct redis_reply *reply = r;
    enum setup step = (enum setup)(intptr_t)arg;

    if (!reply || link->ac != ac)
        return;
    if (reply->type == RESP_ERROR)
        setup_error(link, step, reply->text.p);
    else if (step == SETUP_SCRIPT && (reply->type != RESP_STRING || reply->text.n != SHA_SIZE))
        redis_link_close(link, REDIS_FAILURE_REPLY, "SCRIPT LOAD did not return a SHA");
    else if (step == SETUP_SCRIPT)
        memcpy(link->sha, reply->text.p, SHA_SIZE);
    else if (step == SETUP_ROLE && redis_is_replica(reply))
        redis_link_close(link, REDIS_FAILURE_READONLY, "its role is replica");
    if (step == SETUP_ROLE && link->ac)
        redis_link_ready(link);
}

static bool setup_send(struct redis_link *link, enum setup step, int argc, const char **argv)
{
    size_t sizes[3];
    for (int i = 0; i < argc; i++)
        sizes[i] = strlen(argv[i]);
    if (step == SETUP_SCRIPT)
        sizes[2] = link->script.n;
    return redis_link_command(link, on_setup, (void *)(intptr_t)step, argc, argv, sizes);
}

static bool setup_login(struct redis_link *link)
{
    const struct redis_settings *s = link->settings;
    if (!s->password)
        return true;
    if (s->username)
        return setup_send(link, SETUP_AUTH, 3, (const char *[]){"AUTH", s->username, s->password});
    return setup_send(link, SETUP_AUTH, 2, (const char *[]){"AUTH", s->password});
}

static bool setup_database(struct redis_link *link)
{
    char number[24];
    if (link->settings->database == 0)
        return true;
    snprintf(number, sizeof number, "%u", link->settings->database);
    return setup_send(link, SETUP_SELECT, 2, (const char *[]){"SELECT", number});
}

bool redis_link_set_up(struct redis_link *link)
{
    return setup_login(link) &&
           setup_send(link, SETUP_NAME, 3, (const char *[]){"CLIENT", "SETNAME", "weir"}) &&
           setup_database(link) &&
           setup_send(link, SETUP_SCRIPT, 3, (const char *[]){"SCRIPT", "LOAD", link->script.p}) &&
           setup_send(link, SETUP_ROLE, 1, (const char *[]){"ROLE"});
}
