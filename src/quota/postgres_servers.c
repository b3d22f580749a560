#include "config.h"

#ifdef HAVE_LIBPQ

#include <string.h>

#include "quota/postgres_servers.h"

/* Moves the first element of a comma-separated list to its end. */
static void list_rotate(char *list)
{
    char first[QUOTA_LIST_SIZE];
    size_t n = strcspn(list, ","), rest = strlen(list + n); /* rest: from the comma */

    if (rest == 0)
        return;
    memcpy(first, list, n);
    memmove(list, list + n + 1, rest - 1);
    list[rest - 1] = ',';
    memcpy(list + rest, first, n);
}

void postgres_servers_rotate(struct quota_servers *servers)
{
    list_rotate(servers->host);
    list_rotate(servers->hostaddr);
    list_rotate(servers->port);
}

PGconn *postgres_servers_connect(const struct quota_servers *servers,
                                 const struct quota_settings *settings)
{
    enum { LISTS = 3, SIZE = LISTS + QUOTA_PARAMETERS_MAX + 1 };
    const char *keywords[SIZE] = {"host", "hostaddr", "port"};
    const char *values[SIZE] = {servers->host, servers->hostaddr, servers->port};
    size_t n = settings->parameter_count * sizeof *keywords;

    memcpy(keywords + LISTS, settings->keywords, n);
    memcpy(values + LISTS, settings->values, n);
    return PQconnectStartParams(keywords, values, 0);
}

#endif
