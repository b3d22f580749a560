/* criteria.h - conditions of a rule on header fields, query parameters, the client and the scheme.
 *
 * A condition holds, does not hold, or depends on how the server reads the request. The last case
 * arises from repeated fields and parameters, of which servers use the first, the last or all, and
 * from query strings that servers split or decode differently. policy_match() refuses a request
 * whose rule depends on it, so that no client can choose between two rules. */
#ifndef WEIR_POLICY_CRITERIA_H
#define WEIR_POLICY_CRITERIA_H

#include "http/head.h"
#include "net/address.h"

enum {
    CRITERIA_PER_RULE_MAX = 18,  /* 8 fields, 8 parameters, client, scheme */
    CRITERION_NAMES_MAX = 8,     /* per rule: header fields; query parameters */
    CRITERION_VALUES_MAX = 32,   /* per name */
    CRITERION_VALUE_MAX = 256,   /* bytes */
    CRITERION_CLIENTS_MAX = 256, /* per rule */
    CRITERIA_MAX = 1024 * CRITERIA_PER_RULE_MAX,
};

enum criterion_kind { CRITERION_HEADER, CRITERION_QUERY, CRITERION_CLIENT, CRITERION_SCHEME };

/* A client: an id, an address range, or all peers on unix sockets. */
struct client_pattern {
    struct slice identity; /* as in struct identity, "id:partner"; n == 0: an address */
    bool unix_peers;
    struct ip_range range;
};

struct criterion {
    enum criterion_kind kind;
    unsigned index;         /* in policy->criteria */
    struct slice name;      /* of the field or parameter */
    struct slice *patterns; /* as written; any of them may match. "*" stands for any bytes */
    struct client_pattern *clients; /* CRITERION_CLIENT: the same in parsed form */
    unsigned count;                 /* of patterns */
};

enum truth { TRUTH_UNKNOWN, TRUTH_NO, TRUTH_MAYBE, TRUTH_YES };

struct identity;

/* The parts of a request that criteria read. */
struct criteria_request {
    const struct request_head *head;
    const struct identity *identity;
    bool https;       /* the client's connection uses TLS */
    bool query_doubt; /* a server may read part of the path as the query */
    char *room;       /* two times CRITERIA_ROOM bytes */
};

enum { CRITERIA_ROOM = 64 << 10 }; /* at least the largest head */

/* Returns TRUTH_NO, TRUTH_MAYBE or TRUTH_YES. */
enum truth criterion_truth(const struct criterion *criterion,
                           const struct criteria_request *request);

/* Returns true only if `a` holds for every request for which `b` holds; false if kind or name
 * differ. */
bool criterion_covers(const struct criterion *a, const struct criterion *b);

/* Returns true if both are the same condition. */
bool criterion_equal(const struct criterion *a, const struct criterion *b);

#endif
