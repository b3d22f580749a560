/* query.h - the values that servers may read for one parameter of a query string.
 *
 * Servers agree on "name=value" pairs separated by "&", percent-decoded once, with "+" for a space
 * (application/x-www-form-urlencoded, WHATWG URL Standard section 5). Some also
 *
 *   - separate pairs by ";" (HTML 4.01 appendix B.2.2)
 *   - take other names for the wanted one: see NAME_TWIN
 *   - decode twice
 *   - end values at a NUL (C strings)
 *   - decode "%uXXXX" (ASP.NET)
 *
 * Each value is marked with who reads it. */
#ifndef WEIR_POLICY_QUERY_H
#define WEIR_POLICY_QUERY_H

#include "policy/pairs.h"

/* Who reads a value. */
enum query_reading {
    QUERY_ALL,    /* all servers */
    QUERY_OTHERS, /* some servers read it in place of the previous value */
    QUERY_SOME    /* some servers read it; for the others there is no such parameter */
};

struct query_reader {
    struct pairs rest;  /* between "&" */
    struct pairs part;  /* the last of them, split at ";" if it contains one */
    bool part_replaces; /* its first piece is another reading of the value of the whole pair */
    struct slice name;
    struct slice again; /* a decoded value to be decoded once more; n == 0: none */
    struct slice cut;   /* the last value up to its NUL, to be returned next; p NULL: none */
    char *room;         /* decoded name and value */
};

struct query_value {
    struct slice text; /* decoded; valid until the next call */
    enum query_reading reading;
};

/* Starts reading the values of `name`. `query` is empty or begins with "?". `room` must hold a copy
 * of the query. */
struct query_reader query_reader(struct slice query, struct slice name, char *room);

/* Sets the next value. Returns false after the last one. Time is linear in the query for all
 * values together. */
bool query_next(struct query_reader *reader, struct query_value *value);

enum {
    QUERY_STEPS = 8, /* of work, for each byte of the query that is read */
    QUERY_NAMES_KEPT = 8,
    QUERY_VALUES_KEPT = 256,
    QUERY_TEXT_KEPT = 64 << 10
};

/* A parameter whose values are kept. */
struct query_parameter {
    struct slice name;
    const struct query_value *values; /* NULL: there is no room for them */
    unsigned count;
    struct slice joined; /* the values with "," between them; valid if all are QUERY_ALL */
};

/* Parameters of one query. `count` is 0 at its start. */
struct query_cache {
    struct query_parameter parameters[QUERY_NAMES_KEPT];
    struct query_value values[QUERY_VALUES_KEPT];
    char text[QUERY_TEXT_KEPT];
    unsigned count, value_count;
    size_t text_size;
};

static inline void query_cache_clear(struct query_cache *cache)
{
    cache->count = cache->value_count = 0;
    cache->text_size = 0;
}

/* Returns the values of `name`, which are read at its first use. NULL: the caller reads them each
 * time, since there are more than the cache has room for. Adds QUERY_STEPS for each byte to
 * `*steps` if the query is or must be read. `name` must stay as long as the cache. */
const struct query_parameter *query_parameter(struct query_cache *cache, struct slice query,
                                              struct slice name, size_t *steps);

#endif
