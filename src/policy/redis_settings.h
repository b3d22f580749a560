/* redis_settings.h - section redis: the Redis server that stores the counts. */
#ifndef WEIR_POLICY_REDIS_SETTINGS_H
#define WEIR_POLICY_REDIS_SETTINGS_H

#include "net/address.h"
#include "policy/client_tls.h"

enum on_failure { ON_FAILURE_LOCAL, ON_FAILURE_ALLOW, ON_FAILURE_DENY };

struct redis_nodes {
    struct redis_node {
        struct address address;
        char *text; /* as written */
    } * node;
    unsigned count;
};

struct redis_sentinel_settings {
    char *master; /* master name; NULL: no sentinels */
    struct redis_nodes nodes;
    char *username, *password; /* of the sentinels; NULL: none */
};

/* Parts of redis.address besides host and port, if it is a URL. */
struct redis_url {
    bool given, has_database;
    bool secure;               /* rediss: with TLS */
    char *username, *password; /* NULL: none */
    unsigned database;
};

struct redis_settings {
    struct redis_url url;
    struct address address; /* length 0: embedded, host name, sentinel or cluster */
    char *address_text;     /* as written, or its substitute in messages */
    char *host;             /* host name to resolve; NULL: not a host name */
    uint16_t port;
    bool embedded;
    struct redis_sentinel_settings sentinel;
    struct redis_nodes cluster; /* seed nodes; count 0: no cluster */
    char *username, *password;  /* NULL: none */
    char *password_file;        /* as written; NULL: none */
    struct client_tls tls;      /* to servers, sentinels and cluster nodes */
    unsigned database;
    char *key_prefix;
    uint64_t timeout_us;
    enum on_failure on_failure;
    /* weir instances sharing the limits; divides leases, and local limits while Redis is down */
    unsigned instances;
};

#endif
