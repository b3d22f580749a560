/* connections.h - the open connections of all admin listeners. evhttp bounds neither their number,
 * nor the time in which a request arrives byte by byte, nor what it reads while the client does not
 * take a response. Main thread only.
 *
 * A connection closes its socket when it is freed (BEV_OPT_CLOSE_ON_FREE), not before: another one
 * could get the descriptor while events of this one still watch it. */
#ifndef WEIR_ADMIN_CONNECTIONS_H
#define WEIR_ADMIN_CONNECTIONS_H

#include <event2/bufferevent.h>
#include <event2/http.h>
#include <stdbool.h>

#include "base/macros.h"

/* At most so many; a new one then takes the place of the one that has waited for its next request
 * for the longest time. A request must arrive within ADMIN_REQUEST_US after the connection, or
 * after the response before it. A client that sends ADMIN_INPUT_MAX bytes ahead of the responses
 * is disconnected. */
enum {
    ADMIN_CONNECTIONS_MAX = 256,
    ADMIN_INPUT_MAX = 65536,
    ADMIN_REQUEST_US = 10000000,
    ADMIN_FINISH_US = 1000000,
};

/* Begins to check deadlines, every second. Returns false if out of memory. */
MUST_CHECK bool connections_start(struct event_base *base);
/* Runs the loop until all responses are sent, for at most ADMIN_FINISH_US. */
void connections_finish(struct event_base *base);
/* Call when evhttp has freed all connections. */
void connections_stop(void);

/* Adds a connection that evhttp will own. Holds a reference until evhttp has freed it. */
void connections_add(struct bufferevent *connection);
/* A request has arrived: its connection has no deadline until it is answered. */
void connections_begin_request(struct evhttp_request *request);
unsigned connections_count(void);
/* Closes the one that has waited for the longest time. */
void connections_displace(void);

#endif
