/* client_report.c - what weir inspect, weir reset and weir grant print. */
#include "cli/client_report.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/values.h"

enum { CELL_MAX = 600 };

enum { COLUMNS = 5 };
struct table_row {
    char cell[COLUMNS][CELL_MAX];
};

/* Returns the client's name for a terminal, until the next call. */
static const char *shown_name(const struct client_subject *subject)
{
    static char bytes[IDENTITY_TEXT_MAX + 1];
    struct text name = text_over(bytes, IDENTITY_TEXT_MAX);

    text_clean(&name, identity_text(&subject->identity));
    bytes[name.n] = 0;
    return bytes;
}

/* Writes the parts of `per`. If a key is given, writes the values of all parts but the first. */
static void write_per(struct text *out, const struct limit_status *row)
{
    const struct limit *limit = row->limit;

    if (row->is_of_descriptor) {
        text_literal(out, "descriptor");
        return;
    }
    text_put(out, slice_of(limit->per[0].written));
    if (row->rest.n) {
        text_literal(out, ", ");
        size_t start = out->n;
        text_clean(out, row->rest); /* clients choose values of headers */
        size_t end = out->n;
        out->n = start;
        for (size_t i = start; i < end; i++)
            if (!strchr("{}", out->p[i]))
                out->p[out->n++] = out->p[i];
        memset(out->p + out->n, 0, end - out->n);
        return;
    }
    for (unsigned i = 1; i < limit->per_count; i++)
        text_printf(out, ", each %s", limit->per[i].written);
}

/* The cells are zeroed before, so the text is NUL-terminated. */
static void fill_row(struct table_row *cells, const struct limit_status *row)
{
    struct text out[COLUMNS];

    for (unsigned i = 0; i < COLUMNS; i++)
        out[i] = text_over(cells->cell[i], CELL_MAX - 1);
    text_clean(&out[0], slice_of(row->limit->name));
    text_put(&out[0], row->enforced ? SLICE("") : SLICE(" (shadow)"));
    write_per(&out[1], row);
    bool in_flight =
        row->limit->kind == LIMIT_CONCURRENCY; /* its period is a lease, which clients do not see */
    text_i64(&out[2], row->quota);
    text_literal(&out[2], " in ");
    if (in_flight)
        text_literal(&out[2], "flight");
    else
        limit_period_write(&out[2], row->limit);
    if (row->failed)
        text_literal(&out[3], "? (its script fails)");
    else
        text_i64(&out[3], row->remaining);
    text_literal(&out[3], " of ");
    text_i64(&out[3], row->capacity);
    wait_write(&out[4], in_flight ? 0 : row->reset_us);
}

static void print_table(const struct table_row *rows, unsigned count)
{
    int width[COLUMNS] = {0};

    for (unsigned r = 0; r < count; r++)
        for (unsigned c = 0; c < COLUMNS; c++)
            if ((int)strlen(rows[r].cell[c]) > width[c])
                width[c] = (int)strlen(rows[r].cell[c]);
    for (unsigned r = 0; r < count; r++)
        for (unsigned c = 0; c < COLUMNS; c++)
            if (c + 1 < COLUMNS)
                printf("%-*s  ", width[c], rows[r].cell[c]);
            else
                printf("%s\n", rows[r].cell[c]);
}

static void print_standing(const struct client_result *result)
{
    unsigned count = result->status_count;
    struct table_row *rows = xcalloc((size_t)count + 1, sizeof *rows);

    rows[0] = (struct table_row){{"LIMIT", "COUNTED PER", "QUOTA", "REMAINING", "RESETS IN"}};
    for (unsigned i = 0; i < count; i++)
        fill_row(&rows[i + 1], &result->status[i]);
    print_table(rows, count + 1);
    free(rows);
}

/* Prints the database's quota for an id that the policy does not name. */
static void print_row(const struct client_result *result)
{
    const struct quota_row *row = &result->row;
    char bytes[64];
    struct text text = text_over(bytes, sizeof bytes);

    if (!result->needs_database)
        return;
    if (!result->row_cached) {
        puts("quotas  not cached: the next request looks it up");
        return;
    }
    if (!row->present)
        fputs("quotas  no row for this id", stdout);
    else if (row->quota == QUOTA_OF_ITS_OWN)
        fputs(row->plan[0] ? "quotas  " : "quotas  a row without a quota", stdout);
    else if (row->quota < 0)
        fputs("quotas  unlimited", stdout);
    else
        printf("quotas  a quota of %" PRId64, row->quota);
    if (row->plan[0])
        printf("%splan %s", row->quota == QUOTA_OF_ITS_OWN ? "" : ", ", row->plan);
    wait_write(&text, result->row_us);
    if (result->row_us > 0)
        printf("; looked up again in %.*s\n", SLICE_ARG(text_slice(&text)));
    else
        puts("; expired: the next request looks it up");
}

static void print_grant(const struct client_result *result)
{
    char bytes[64];
    struct text text = text_over(bytes, sizeof bytes);

    if (!result->granted)
        return;
    wait_write(&text, result->us);
    if (result->quota == GRANT_UNLIMITED)
        printf("grant   unlimited, for %.*s more\n", SLICE_ARG(text_slice(&text)));
    else
        printf("grant   a quota of %" PRId64 ", for %.*s more\n", result->quota,
               SLICE_ARG(text_slice(&text)));
}

static void print_limits_in_force(const struct client_subject *subject)
{
    const struct client_limits *client_limits = client_query_limits(subject->query);

    printf("client  %s\nlimits  %s", shown_name(subject), client_query_limits_text(client_limits));
    if (client_limits && client_limits->plan)
        printf(" %s", client_limits->plan->name);
    if (client_limits && client_limits->name)
        printf(" (clients: %s)", client_limits->name);
    puts(subject->identity.listed == LISTED_BLOCKED ? "; this address is blocked (addresses.block)"
         : subject->identity.listed ? "; this address is never limited (addresses.allow)"
                                    : "");
}

static void print_warnings(const struct client_subject *subject)
{
    const char *warnings[CLIENT_QUERY_WARNINGS_MAX];
    unsigned count = client_query_warnings(subject->query, &subject->descriptor, warnings);

    for (unsigned i = 0; i < count; i++)
        fprintf(stderr, "weir: %s\n", warnings[i]);
}

int client_report_inspect(const struct client_subject *subject)
{
    const struct client_limits *client_limits = client_query_limits(subject->query);
    const struct client_result *result = client_query_result(subject->query);

    print_limits_in_force(subject);
    print_grant(result);
    print_row(result);
    if (client_limits && client_limits->quota != QUOTA_AS_WRITTEN)
        puts(client_limits->blocked ? "\nEvery request gets 403."
             : client_limits->quota == QUOTA_PROHIBITED
                 ? "\nEvery request that has an enforced limit is rejected."
                 : "\nNo limit counts this client.");
    else if (subject->descriptor.unlimited)
        puts("\nNo limits.");
    else if (result->status_count == 0)
        puts("\nThe policy has no limit that is counted per client.");
    else {
        putchar('\n');
        print_standing(result);
    }
    print_warnings(subject);
    return 0;
}

int client_report_reset(const struct client_subject *subject)
{
    const struct client_result *result = client_query_result(subject->query);

    printf("%s: %" PRIu64 " key%s removed\n", shown_name(subject), result->removed,
           result->removed == 1 ? "" : "s");
    print_warnings(subject);
    return result->cut ? 1 : 0;
}

int client_report_grant(const struct client_subject *subject)
{
    const struct client_result *result = client_query_result(subject->query);
    const char *client = shown_name(subject);

    if (!result->granted) {
        fprintf(stderr,
                "weir: there are already %d grants: revoke others, or wait until they end\n",
                GRANTS_MAX);
        return 1;
    }
    if (result->quota == GRANT_NONE)
        printf("%s: the grant is revoked\n", client);
    else {
        char bytes[64];
        struct text time = text_over(bytes, sizeof bytes);
        duration_write(&time, result->us);
        if (result->quota == GRANT_UNLIMITED)
            printf("%s: unlimited for %.*s\n", client, SLICE_ARG(text_slice(&time)));
        else
            printf("%s: a quota of %" PRId64 " for %.*s\n", client, result->quota,
                   SLICE_ARG(text_slice(&time)));
    }
    print_warnings(subject);
    return 0;
}
