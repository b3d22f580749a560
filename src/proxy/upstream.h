/* upstream.h - a worker's connections to the servers of one upstream: chosen by least outstanding requests,
 * kept alive, pooled.
 *
 *   CONNECTING -> BUSY <-> POOLED -> CLOSED   the server closed it, sent what nobody asked for, or it was
 * idle for long PROBING --------^                         a server that was ejected accepts connections again
 *
 * A link belongs to one exchange (CONNECTING, BUSY), to its server (PROBING) or to the pool (POOLED).
 *
 * A server that refuses a connection is ejected: no request goes there while another server is left. It is probed
 * with a bare connection (and the TLS handshake), after 1 s and then ever more rarely, until one succeeds. A server to
 * which too many requests fail is ejected for a time (ejection.c). Which servers there are, and which of them pass their
 * health checks, is the endpoint set's to say. */
#ifndef WEIR_PROXY_UPSTREAM_H
#define WEIR_PROXY_UPSTREAM_H

#include "net/stream.h"
#include "proxy/cause.h"
#include "proxy/generation.h"

enum link_state { LINK_CONNECTING, LINK_PROBING, LINK_BUSY, LINK_POOLED, LINK_CLOSED };

struct server;

struct link {
    uint32_t magic;
    enum link_state state;
    bool reused;          /* it has served a request before */
    bool noted, failed;   /* the outcome of its request is counted; as a failure */
    uint64_t pooled_turn; /* the worker's loop iteration in which it was pooled last */
    uint64_t empty_turn;  /* in which it was found, while pooled, to hold nothing */
    struct worker *worker;
    struct server *server;
    struct exchange *exchange; /* CONNECTING, BUSY */
    struct stream stream;
    struct deadline deadline;
    size_t scanned;         /* of stream.in, by response_head_read */
    bool unread;            /* stream.in holds bytes that no head was looked for in */
    TAILQ_ENTRY(link) link; /* the server's pool, or the list of closed objects */
};

/* What has been tried for one exchange: servers are not asked twice. */
struct upstream_tries {
    uint64_t servers; /* bit by slot */
    bool counted;     /* the request, for the budget of retries */
};

/* A link for `exchange`: pooled (BUSY) unless `fresh`, or new (CONNECTING: upstream_connected() or
 * upstream_connect_failed() of the exchange follows, never from inside this call; BUSY when it connected at
 * once). NULL: there is no server, none is left to try, or none could be dialled;
 * `*cause` says which. */
struct link *upstream_take(struct exchange *exchange, bool fresh, struct upstream_tries *tries,
                           enum cause *cause);

/* The exchange is done with the link: `reusable` when both messages ended cleanly and the server will read
 * another request. */
void upstream_release(struct link *link, bool reusable);

/* Words for the log and for X: the server's address as written. */
const char *link_server_text(const struct link *link);

/* The server answered with this status. Statuses of upstreams.NAME.eject.status count as failures. */
void upstream_note_answer(struct link *link, uint16_t status);
/* The server took a request and gave no good answer. Too many of these eject it: see upstreams.NAME.eject. */
void upstream_note_failure(struct link *link, const char *why);

/* The connection has ended: had the server closed it before it received the request? Then it has not failed. */
bool upstream_closed_idle(const struct link *link);

/* May another server be asked in place of the one of `link`, by upstreams.NAME.retry.budget? Counts the retry and marks
 * the server as tried. */
bool upstream_retry_may(const struct link *link, struct upstream_tries *tries);

/* Every upstream has a server that is not known to be down. */
bool upstreams_ready(const struct generation *generation);
/* Takes over what has changed in the endpoint set, if anything has: once a loop iteration. */
void servers_refresh(struct generation *generation);

/* The deadlines of all links of a worker. */
void upstreams_init(struct worker *worker);
/* Frees the links that were closed in this turn. */
void upstreams_free_closed(struct worker *worker);

/* The pools of one generation. -1: no memory. */
int upstream_init(struct generation *generation);
/* Closes the pooled links and ends all probes; links in use stay. */
void upstream_retire(struct generation *generation);
void upstream_free(struct generation *generation);

#endif
