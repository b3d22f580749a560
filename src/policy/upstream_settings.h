/* upstream_settings.h - section upstreams: the servers behind weir. */
#ifndef WEIR_POLICY_UPSTREAM_SETTINGS_H
#define WEIR_POLICY_UPSTREAM_SETTINGS_H

#include "base/position.h"
#include "net/address.h"
#include "policy/client_tls.h"

struct upstream_server {
    struct address address; /* length 0: a host name, resolved at run time */
    char *text;             /* as written */
    char *host;             /* host name or IP address from `text`; NULL: unix socket */
    uint16_t port;
    unsigned row; /* counter row; set before workers receive the policy */
    struct position position;
};

enum { HEALTH_SERVICE_MAX = 255 };

struct upstream_health {
    char *path; /* requested with GET; NULL: none */
    char *grpc; /* service of a gRPC health check, may be empty; NULL: none */
    char *host; /* Host header; NULL: the server's address */
    uint64_t interval_us, timeout_us;
    unsigned healthy, unhealthy; /* consecutive results that change a server's state */
    uint64_t *statuses;          /* successful statuses, for statuses_hold() */
};

/* Returns whether servers are checked. */
static inline bool health_is_on(const struct upstream_health *health)
{
    return health->path || health->grpc;
}

/* Failures after which a request may be retried: bits of upstreams.NAME.retry.on, in the order of
 * its words. */
enum retry_on {
    RETRY_ON_CONNECT = 1,
    RETRY_ON_RESET = 2,
    RETRY_ON_TIMEOUT = 4,
    RETRY_ON_502 = 8,
    RETRY_ON_503 = 16,
    RETRY_ON_504 = 32
};

struct upstream_retry {
    unsigned on;         /* enum retry_on */
    unsigned tries;      /* maximum attempts per request, including the first */
    int64_t budget;      /* retries as a share of requests, in 1/SHARE_WHOLE */
    unsigned budget_min; /* additional retries per worker and RETRY_WINDOW_US */
};

enum { RETRY_WINDOW_US = 10 * 1000000 };

/* Outlier ejection. */
struct upstream_eject {
    unsigned failures;    /* consecutive failures; 0: never */
    int64_t failure_rate; /* share of requests within window_us, in 1/SHARE_WHOLE; 0: never */
    unsigned requests;    /* minimum per worker and server within window_us for failure_rate */
    uint64_t window_us, time_us;
    int64_t at_most;    /* maximum share of ejected servers, in 1/SHARE_WHOLE */
    uint64_t *statuses; /* statuses that count as failures, for statuses_hold() */
};

/* upstreams.NAME.protocol */
enum upstream_protocol {
    UPSTREAM_HTTP1,
    UPSTREAM_HTTP2,
    UPSTREAM_AUTO /* with TLS: as the server chooses by ALPN */
};

struct upstream {
    char *name;
    unsigned index; /* in policy->upstreams */
    struct upstream_server *servers;
    unsigned server_count; /* at least 1 */
    uint64_t connect_timeout_us, response_timeout_us;
    enum upstream_protocol protocol;
    bool forwarded;           /* send Forwarded (RFC 7239) */
    char *certificate_header; /* request header with the subject of the client's; NULL: none */
    struct client_tls tls;
    struct upstream_health health;
    struct upstream_retry retry;
    struct upstream_eject eject;
};

/* Returns true if the server is configured by host name. */
static inline bool server_is_name(const struct upstream_server *server)
{
    return server->address.length == 0;
}

/* Returns the Host for requests without one (HTTP/1.0): the address of the first server. */
static inline struct slice upstream_host(const struct upstream *upstream)
{
    const struct upstream_server *server = &upstream->servers[0];
    return address_is_unix(&server->address) ? SLICE("localhost") : slice_of(server->text);
}

#endif
