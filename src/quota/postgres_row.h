/* postgres_row.h - the result of the quota query: one client's quota and plan. Only with libpq. */
#ifndef WEIR_QUOTA_POSTGRES_ROW_H
#define WEIR_QUOTA_POSTGRES_ROW_H

#include <libpq-fe.h>

#include "quota/quota_row.h"

/* A value that cannot be used, for the log: "for ID, the query WHAT; THEN". */
struct postgres_row_fault {
    char what[160];
    const char *then; /* NULL: none */
};

/* Reads the first row of `result`, which has one. The columns are found by the names quota and
 * plan, else by position: quota first. Returns false if a value cannot be used: `fault` then has
 * the first such value, the row is as if it were NULL, and `unusable` is set. */
bool postgres_row_read(const PGresult *result, struct quota_row *row,
                       struct postgres_row_fault *fault);

/* Returns true if an error with this SQLSTATE is caused by the query's parameter: text for a
 * number, text that decode() refuses, or invalid UTF-8. No row has such an id. `state` may be
 * NULL. */
bool postgres_error_is_about_id(const char *state);

#endif
