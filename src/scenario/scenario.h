/* scenario.h - the data of a file of policy tests (`weir test`).
 *
 * This directory reads test files (read_*.c), runs their requests in virtual time on the engine of
 * `weir replay` (scenario_run.h), compares what came with what is expected (expectation.h), and
 * reports (scenario_report.c). test_command.h runs it all. It never contacts the Redis or the
 * servers of the policy. */
#ifndef WEIR_SCENARIO_SCENARIO_H
#define WEIR_SCENARIO_SCENARIO_H

#include "base/arena.h"
#include "policy/identity.h"
#include "quota/quota_row.h"

/* Keys of `expect`: name, key, whether it takes a map by limit */
#define EXPECTATIONS(X)                                                                            \
    X(EXPECT_ADMITTED, "admitted", false)                                                          \
    X(EXPECT_REJECTED, "rejected", false)                                                          \
    X(EXPECT_REJECTED_BY, "rejected_by", false)                                                    \
    X(EXPECT_STATUS, "status", false)                                                              \
    X(EXPECT_RULE, "rule", false)                                                                  \
    X(EXPECT_UPSTREAM, "upstream", false)                                                          \
    X(EXPECT_CLIENT, "client", false)                                                              \
    X(EXPECT_REMAINING, "remaining", true)                                                         \
    X(EXPECT_RETRY_AFTER, "retry_after", false)                                                    \
    X(EXPECT_RESET, "reset", true)                                                                 \
    X(EXPECT_COST, "cost", true)                                                                   \
    X(EXPECT_DELAY, "delay", false)

enum expect_kind {
#define X(name, key, by_limit) name,
    EXPECTATIONS(X)
#undef X
        EXPECT_COUNT
};

extern const char *const expect_keys[EXPECT_COUNT + 1]; /* the last one is NULL */

enum { EXPECT_ALL = -1, EXPECT_NONE = -2 };

/* One expectation about a request or, with `repeat`, about the last one. */
struct expectation {
    enum expect_kind kind;
    struct position position;
    const struct limit *limit; /* of a number; NULL: the one that response fields show */
    /* admitted, rejected: of the repeats, or EXPECT_ALL; retry_after, reset: seconds; delay: µs;
     * EXPECT_NONE: there is no such number */
    int64_t number;
    const char *name; /* of the limit, rule, upstream or client, as in the policy */
    struct expectation *next;
};

/* A cost that the response states. */
struct stated_cost {
    const struct limit *limit; /* NULL: the rule's, and of all limits that take theirs from it */
    int64_t cost;
    struct stated_cost *next;
};

/* An entry of `requests`: a request, with its repeats, or only a wait. */
struct scenario_step {
    struct position position;
    bool is_request;
    int64_t wait_us;  /* before it */
    int64_t repeat;   /* number of requests */
    int64_t every_us; /* from one repeat to the next */
    struct slice method, path, query, host, field_lines, content, claims, address, client;
    unsigned field_count;
    bool has_type;   /* `headers` has Content-Type */
    unsigned https;  /* 1: the client uses TLS */
    unsigned status; /* of the response */
    int64_t duration_us;
    struct stated_cost *costs;
    struct expectation *expected;
    struct slice target; /* path and query */
    struct scenario_step *next;
};

/* A row of the quota database. */
struct scenario_quota {
    struct identity identity;
    struct quota_row row;
    unsigned line; /* of its key */
    struct scenario_quota *next;
};

/* A test. */
struct scenario {
    char *name;
    struct position position;
    int64_t start_us;     /* Unix time */
    struct slice address; /* of the peer of requests without one */
    struct scenario_step *steps;
    struct scenario_quota *quotas;
    struct scenario *next;
};

struct scenario_file {
    const char *path;
    struct policy *policy;    /* the file owns a reference */
    struct scenario defaults; /* of all tests */
    struct scenario *scenarios;
    unsigned count;
    struct arena arena; /* holds all of the above but the policy */
};

/* Reads a test file and its policy. `policy_file` replaces the one that the file names; NULL: none.
 * Prints errors as "FILE:LINE:COLUMN: ..." to standard error. Returns false if there is any.
 * scenario_file_free() is due in both cases. */
MUST_CHECK bool scenario_file_read(struct scenario_file *file, const char *policy_file,
                                   const char *lua_dir);
void scenario_file_free(struct scenario_file *file);

/* Returns the limit of the policy that a limit, or a variant of it, is. */
static inline bool limit_is(const struct limit *limit, const struct limit *wanted)
{
    return limit->base == wanted->index;
}

#endif
