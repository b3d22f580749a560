/* criteria.h - conditions of a rule on header fields, query parameters, the client and the scheme.
 *
 * A condition holds, does not hold, or depends on how the server reads the request. The last case
 * arises from repeated fields and parameters, of which servers use the first, the last or all, and
 * from query strings that servers split or decode differently. policy_match() refuses a request
 * whose rule depends on it, so that no client can choose between two rules. */
#ifndef WEIR_POLICY_CRITERIA_H
#define WEIR_POLICY_CRITERIA_H

#include "content/json_values.h"
#include "http/head.h"
#include "net/address.h"
#include "policy/query.h"

enum {
    CRITERIA_PER_RULE_MAX = 64,  /* at most 8 kinds, each with 8 names */
    CRITERION_NAMES_MAX = 8,     /* per rule and kind: header fields, query parameters */
    CRITERION_VALUES_MAX = 32,   /* per name */
    CRITERION_VALUE_MAX = 256,   /* bytes */
    CRITERION_CLIENTS_MAX = 256, /* per rule */
    CRITERIA_MAX = 1024 * CRITERIA_PER_RULE_MAX,
};

/* The work to match one request, over all rules and readings of the path: a step for each rule, and
 * for each byte of patterns and of the request that is looked at; QUERY_STEPS for each byte of the
 * query, each time that it is read: see query_parameter(). */
enum { MATCH_STEPS_MAX = 4000000 };

/* A client: an id, an address range, or all peers on unix sockets. */
struct client_pattern {
    struct slice identity; /* as in struct identity, "id:partner"; n == 0: an address */
    bool unix_peers;
    struct ip_range range;
};

struct criterion_kind;

struct criterion {
    const struct criterion_kind *kind;
    unsigned index;               /* in policy->criteria */
    struct slice name;            /* of the field or parameter; a path in JSON, as written */
    const struct json_path *path; /* the same, parsed; NULL: not of JSON */
    struct slice *patterns;       /* as written; any of them may match. "*" stands for any bytes */
    struct client_pattern *clients; /* of kinds of clients: the same in parsed form */
    unsigned count;                 /* of patterns */
};

enum truth { TRUTH_UNKNOWN, TRUTH_NO, TRUTH_MAYBE, TRUTH_YES };

struct identity;

/* What is known of the content of a request. */
enum content_state {
    CONTENT_ABSENT, /* there is none, or weir does not see it */
    CONTENT_UNREAD,
    CONTENT_UNSURE, /* no valid JSON object, compressed or too large */
    CONTENT_VALUES  /* `values` has the values of policy->match_paths */
};

struct content_facts {
    enum content_state state;
    bool decides; /* set if a rule depends on it, and it is not known or not certain */
    const struct json_values *values;
};

/* The request as received, with the identity that identity_of() has determined. A fact that only
 * criteria need is one member more; route_facts() in proxy/route.c sets it. */
struct request_facts {
    const struct request_head *head;
    const struct identity *identity;
    bool https;                    /* the client's connection uses TLS */
    struct content_facts *content; /* NULL: CONTENT_ABSENT */
};

/* The request as criteria read it. */
struct criteria_request {
    const struct request_facts *facts;
    bool query_doubt; /* a server may read part of the path as the query */
    char *room;       /* two times CRITERIA_ROOM bytes */
    struct query_cache *query;
    size_t *steps; /* see MATCH_STEPS_MAX */
};

enum { CRITERIA_ROOM = 64 << 10 }; /* at least the largest head */

/* A key of rules[].match. To add one, add its row in criteria.c. */
struct criterion_kind {
    const char *key;
    const char *map;        /* the map of names and values, in errors; NULL: there are no names */
    const char *value;      /* a value, in errors */
    bool names_ignore_case; /* names that differ in case alone are one */
    bool is_client;         /* values are clients; see struct client_pattern */
    bool is_chosen;         /* any client can send a request that meets the condition */
    bool is_json;           /* names are paths in JSON, see struct json_values */
    bool is_logged;         /* access logs contain what decides it */
    const char *(*name_fault)(struct slice name); /* why a name is invalid; NULL: it is valid */
    const char *(*value_fault)(struct slice value);
    /* Returns TRUTH_NO, TRUTH_MAYBE or TRUTH_YES. */
    enum truth (*truth)(const struct criterion *criterion, const struct criteria_request *request);
};

/* Returns the row of a key of rules[].match; NULL: none. */
const struct criterion_kind *criterion_kind(const char *key);

/* Returns a pattern of JSON without the mark that tells types apart. `*typed`: it is an integer or
 * a boolean, not a text. */
struct slice criterion_json_pattern(struct slice pattern, bool *typed);

/* Returns true if a pattern contains "*". */
bool criterion_has_star(const struct criterion *criterion);

/* Returns true only if `a` holds for every request for which `b` holds; false if kind or name
 * differ. */
bool criterion_covers(const struct criterion *a, const struct criterion *b);

/* Returns true if both are the same condition. */
bool criterion_equal(const struct criterion *a, const struct criterion *b);

#endif
