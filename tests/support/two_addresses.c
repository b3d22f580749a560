/* two_addresses.c - LD_PRELOAD library: getaddrinfo() returns 127.0.0.1 and 127.0.0.2 for every host
 * name. See tests/integration/test_redis_connecting.py. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stddef.h>

static struct sockaddr_in at[2];
static struct addrinfo list[2];

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    (void)name, (void)service, (void)hints;
    for (unsigned i = 0; i < 2; i++) {
        at[i] = (struct sockaddr_in){.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(INADDR_LOOPBACK + i)};
        list[i] = (struct addrinfo){.ai_family = AF_INET,
                                    .ai_socktype = SOCK_STREAM,
                                    .ai_addr = (struct sockaddr *)&at[i],
                                    .ai_addrlen = sizeof at[i],
                                    .ai_next = i == 0 ? &list[1] : NULL};
    }
    *found = list;
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    (void)found;
}
