/* explanation.h - what weir does with one request, and why: for weir explain.
 *
 * explainer_explain() runs the request through the code that decides requests (proxy/dry_run.h). It
 * then evaluates again, one by one, the parts that have decided: identity sources, rules, readings
 * of the path. It decides nothing itself, except that limits whose state is not known have room.
 *
 * This directory owns the report. In reading order:
 *
 *   explanation.h, explanation.c  the run; explain_identity.c, explain_rules.c, explain_limits.c,
 *                                 explain_fields.c: the parts of an explanation
 *   explain_print.h               explain_text.c, explain_json.c: printing it;
 *                                 explain_descriptor.c: of a descriptor, by itself */
#ifndef WEIR_EXPLAIN_EXPLANATION_H
#define WEIR_EXPLAIN_EXPLANATION_H

#include "admin/client_query.h"
#include "base/arena.h"
#include "policy/rule_choice.h"
#include "proxy/dry_run.h"

/* A request over HTTP/1.1. */
struct explain_request {
    struct slice head; /* complete, as a client sends it */
    struct slice content;
    bool https; /* the client's connection uses TLS */
    struct address from;
    struct tls_certificate *certificate; /* counts as verified; NULL: none */
};

/* One source of identity.from. */
struct tried_source {
    const struct identity_from *from;
    enum source_result result;
    enum identity_token token; /* of a jwt source */
    enum content_state content;
    bool not_in_database; /* the database does not have this id */
    const char *why;      /* of a refusal or an invalid token (static text), or NULL */
};

struct tried_rule {
    const struct rule *rule;
    enum truth truth;
    struct rule_miss miss;
};

struct tried_reading {
    struct slice path;
    const struct rule
        *rule; /* that it selects; NULL: it is uncertain, or readings are not compared */
};

/* Where the numbers of the client's limits come from. */
enum limits_of { LIMITS_OF_POLICY, LIMITS_OF_ALLOW_LIST, LIMITS_OF_GRANT, LIMITS_OF_DATABASE };

struct explained_limit {
    struct planned_limit planned;
    int64_t capacity;          /* the largest cost that is ever admitted */
    bool has_room;             /* for this request */
    bool never;                /* the cost is above the capacity */
    bool is_known;             /* `state` was read from Redis */
    struct limit_status state; /* without its key */
};

/* Returns the units that remain for the request's priority, if `state` is known. */
int64_t explained_remaining(const struct explained_limit *limit);

/* A field that is removed from the request, or added to it. */
struct changed_field {
    struct slice name, value;
    const char *why; /* it is removed; NULL: it is replaced, or was added */
    bool generated;  /* `value` is not that of a running weir: its name, or a new id */
};

struct explanation {
    struct dry_run_result result;
    bool was_parsed;                 /* the members below are set */
    bool https_unserved;             /* HTTPS, and no listener uses TLS */
    bool certificate_unasked;        /* there is a certificate, and no listener requests one */
    bool certificate_missing;        /* there is none, and all listeners with TLS require one */
    const struct request_head *head; /* as received */
    size_t content_size;
    struct slice normal; /* form of the path; n == 0: it was not reached */
    const struct tried_reading *readings;
    unsigned reading_count; /* 0: all servers read the path alike */
    bool readings_compared, too_many_readings;

    const struct identity *identity;
    bool has_client;      /* the identity was determined */
    bool ip_from_header;  /* the address is that of client_ip_header */
    bool ip_header_given; /* the request has this header */
    const struct tried_source *sources;
    unsigned source_count;

    const struct tried_rule *rules;
    unsigned rule_count;
    const struct rule *rule; /* NULL: refused before */

    enum limits_of limits_of;
    const struct client_limits *client_limits; /* NULL: the limits as written */
    const struct priority *priority;           /* NULL: the policy has none */
    bool quota_unread;                         /* the database has more to say */
    int64_t grant_us;                          /* LIMITS_OF_GRANT: its remaining time */
    bool not_charged;                          /* CORS preflight */
    bool state_was_read;
    enum verdict verdict; /* of the limits, if they were reached */
    int rejected_by;      /* index in limits, or -1 */
    struct explained_limit limits[LIMITS_PER_RULE_MAX];
    unsigned limit_count;

    struct slice request_line; /* as forwarded; n == 0: it is not forwarded */
    const struct changed_field *removed, *added;
    unsigned removed_count, added_count;
    bool usage_is_added; /* the content gets stream_options.include_usage */
};

struct explainer;

/* Creates an explainer; holds `policy`. `reads_state`: reads the policy's Redis, which blocks. If
 * not, limits have room, and grants and the database are not read. NULL: no memory. */
struct explainer *explainer_new(struct policy *policy, bool reads_state);
void explainer_free(struct explainer *explainer);

/* Explains a request. The explanation is valid until the next call. NULL: Redis could not be read
 * (printed to standard error), or there is no memory. `request` must stay as long. */
const struct explanation *explainer_explain(struct explainer *explainer,
                                            const struct explain_request *request);

/* Returns whether the request is forwarded. */
static inline bool explanation_forwards(const struct explanation *e)
{
    return e->result.status == 0;
}

#endif
