/* postgres_servers.h - the servers of the quota database, and the order in which they are tried.
 * Only with libpq. */
#ifndef WEIR_QUOTA_POSTGRES_SERVERS_H
#define WEIR_QUOTA_POSTGRES_SERVERS_H

#include <libpq-fe.h>

#include "policy/client_limits.h"

/* Moves the first server to the end. Changes nothing if there is only one. */
void postgres_servers_rotate(struct quota_servers *servers);

/* Starts to connect to the first of the servers, as PQconnectStart(). libpq tries the next server
 * if one cannot be reached. If one does not respond, or closes the connection, it does not. */
PGconn *postgres_servers_connect(const struct quota_servers *servers,
                                 const struct quota_settings *settings);

#endif
