#include "redis/secure.h"

#include <stdio.h>

#include "base/macros.h"
#include "redis/socket.h"

/* Returns the node's host, in `room`, if it is a name. */
static const char *name_of_node(const struct redis_nodes *nodes, const struct address *address,
                                char room[static HOST_NAME_BYTES_MAX + 1])
{
    struct address unresolved;
    const char *why;
    struct slice host;
    uint16_t port;

    for (unsigned i = 0; i < nodes->count; i++)
        if (address_same(&nodes->node[i].address, address) &&
            address_split(slice_of(nodes->node[i].text), &unresolved, &host, &port, &why) &&
            !unresolved.length && host.n <= HOST_NAME_BYTES_MAX) {
            snprintf(room, HOST_NAME_BYTES_MAX + 1, "%.*s", SLICE_ARG(host));
            return room;
        }
    return NULL;
}

/* Writes the address without its port. */
static const char *ip_text(const struct address *address, char text[static ADDRESS_TEXT_MAX])
{
    address_format(address, text);
    *strrchr(text, ':') = 0;
    size_t n = strlen(text);
    if (text[0] != '[')
        return text;
    text[n - 1] = 0;
    return text + 1;
}

struct tls_pump *redis_secure(struct event_base *base, const struct redis_settings *settings,
                              const struct address *address, int fd, int *plain)
{
    char room[HOST_NAME_BYTES_MAX + 1], text[ADDRESS_TEXT_MAX];
    const char *name = settings->tls.server_name ? settings->tls.server_name : settings->host;

    if (!name)
        name = name_of_node(&settings->sentinel.nodes, address, room);
    if (!name)
        name = name_of_node(&settings->cluster, address, room);
    redis_socket_options(fd, address);
    return tls_pump_new(base, fd, DESCRIPTOR_FOR_REDIS, settings->tls.client,
                        name ? name : ip_text(address, text), plain);
}

enum redis_failure redis_secure_failure(const struct tls_pump *pump, bool timed_out,
                                        const char **detail)
{
    static const enum redis_failure causes[] = {
        [TLS_PROBLEM_OTHER] = REDIS_FAILURE_TLS,
        [TLS_PROBLEM_UNTRUSTED] = REDIS_FAILURE_TLS_UNTRUSTED,
        [TLS_PROBLEM_NAME] = REDIS_FAILURE_TLS_NAME,
        [TLS_PROBLEM_DATES] = REDIS_FAILURE_TLS_EXPIRED,
        [TLS_PROBLEM_NOT_TLS] = REDIS_FAILURE_TLS_MISSING,
    };
    enum tls_problem problem;
    const char *why;
    enum tls_pump_state state = pump ? tls_pump_state(pump, &problem, &why) : TLS_PUMP_OPEN;

    if (state == TLS_PUMP_NOT_CONNECTED || state == TLS_PUMP_FAILED)
        *detail = why;
    if (state == TLS_PUMP_HANDSHAKE && timed_out) {
        *detail = "a server without TLS does not answer it";
        return REDIS_FAILURE_TLS_TIMEOUT;
    }
    return state == TLS_PUMP_NOT_CONNECTED ? REDIS_FAILURE_CONNECT
           : state == TLS_PUMP_FAILED      ? causes[problem]
                                           : REDIS_OK_ANSWER;
}
