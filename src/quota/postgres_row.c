#include "config.h"

#ifdef HAVE_LIBPQ

#include <stdio.h>
#include <string.h>

#include "base/macros.h"
#include "quota/postgres_row.h"

bool postgres_error_is_about_id(const char *state)
{
    static const char *const codes[] = {"22P02", "22003", "22007", "22008",
                                        "22021", "22023", "22P05"};
    for (size_t i = 0; state && i < COUNT_OF(codes); i++)
        if (strcmp(state, codes[i]) == 0)
            return true;
    return false;
}

/* Finds the columns by name, else by position: quota first, plan second. -1: none. */
static void find_columns(const PGresult *result, int *quota, int *plan)
{
    int count = PQnfields(result);

    *quota = PQfnumber(result, "quota");
    *plan = PQfnumber(result, "plan");
    for (int i = 0; i < count && *quota < 0; i++)
        if (i != *plan)
            *quota = i;
    for (int i = 0; i < count && *plan < 0; i++)
        if (i != *quota)
            *plan = i;
}

static struct slice column_text(const PGresult *result, int column)
{
    return (struct slice){PQgetvalue(result, 0, column), (size_t)PQgetlength(result, 0, column)};
}

static void read_quota_column(const PGresult *result, int column, struct quota_row *row,
                              struct postgres_row_fault *fault)
{
    if (column < 0 || PQgetisnull(result, 0, column) ||
        quota_read(column_text(result, column), &row->quota))
        return;
    row->quota = QUOTA_OF_ITS_OWN;
    snprintf(fault->what, sizeof fault->what, "says \"%.60s\" in its column %.40s",
             PQgetvalue(result, 0, column), PQfname(result, column));
    fault->then = "expected a whole number or NULL; the limits as written apply to such clients";
}

static void read_plan(const PGresult *result, int column, struct quota_row *row,
                      struct postgres_row_fault *fault)
{
    if (column < 0 || PQgetisnull(result, 0, column))
        return;
    struct slice name = column_text(result, column);
    if (name.n <= QUOTA_PLAN_MAX) {
        memcpy(row->plan, name.p, name.n);
    } else if (!fault->then) {
        snprintf(fault->what, sizeof fault->what, "names a plan of more than 64 bytes");
        fault->then = "no plan applies to such clients";
    }
}

bool postgres_row_read(const PGresult *result, struct quota_row *row,
                       struct postgres_row_fault *fault)
{
    int quota, plan;

    *row = (struct quota_row){.present = true, .quota = QUOTA_OF_ITS_OWN};
    fault->then = NULL;
    find_columns(result, &quota, &plan);
    read_quota_column(result, quota, row, fault);
    read_plan(result, plan, row, fault);
    row->unusable = fault->then != NULL;
    return !row->unusable;
}

#endif
