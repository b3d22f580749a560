/* query.h - the values that servers may read for one parameter of a query string.
 *
 * Servers agree on "name=value" pairs separated by "&", percent-decoded once, with "+" for a space
 * (application/x-www-form-urlencoded, WHATWG URL Standard section 5). Some also
 *
 *   - separate pairs by ";" (HTML 4.01 appendix B.2.2)
 *   - take other names for the wanted one: see NAME_TWIN
 *   - decode twice
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
    char *room;         /* decoded name and value */
    size_t size;
};

struct query_value {
    struct slice text; /* decoded; valid until the next call */
    enum query_reading reading;
};

/* Starts reading the values of `name`. `query` is empty or begins with "?". `room` must hold a copy
 * of the query. */
struct query_reader query_reader(struct slice query, struct slice name, char *room, size_t size);

/* Sets the next value. Returns false after the last one. Time is linear in the query for all
 * values together. */
bool query_next(struct query_reader *reader, struct query_value *value);

#endif
