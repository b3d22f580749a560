/* client_commands.c - weir inspect, weir reset and weir grant. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/values.h"
#include "cli/cli.h"
#include "clients/client_query.h"
#include "policy/identity_source.h"
#include "redis/blocking.h"
#include "redis/failure.h"
#include "redis/slot.h"
#include "script/compose.h"

enum { CONNECT_US = 2000000, LOOK_US = 10000000, RESET_US = 60000000, CELL_MAX = 600 };

/* A client query from the command line. */
struct client_command {
    struct policy *policy;
    struct identity identity;
    struct query *query;
    struct redis_blocking *redis;
    int where; /* cluster: the slot that the connection is for; negative: -1 - shard */
    char sha[41];
};

/* --- Redis ------------------------------------------------------------------------------------ */

/* Discards the policy's warnings; `weir check` prints them. */
static struct policy *load(const char *file, const char *lua_dir)
{
    char *text = NULL;
    size_t size;
    FILE *report = open_memstream(&text, &size);
    struct policy *policy = report ? policy_load(file, lua_dir, report) : NULL;

    if (policy && !(policy->driver = compose_driver(policy, lua_dir, report))) {
        policy_drop(policy);
        policy = NULL;
    }
    if (report)
        fclose(report);
    if (!policy && text)
        fputs(text, stderr);
    free(text);
    return policy;
}

/* Prints the error and, if it is a known reply of Redis, its remedy. */
static bool complain(const struct client_command *command, const char *why)
{
    const struct redis_settings *settings = &command->policy->redis;
    enum redis_failure failure = redis_failure_of(why);
    bool known = failure != REDIS_FAILURE_SCRIPT;

    fprintf(stderr, "weir: redis %s: %s%s%s\n", settings->address_text, why, known ? "; " : "",
            known ? redis_failure_remedy(failure, settings) : "");
    return false;
}

static bool dial(struct client_command *command)
{
    const struct redis_settings *settings = &command->policy->redis;
    char why[REDIS_WHY_MAX];
    unsigned parts;

    if (settings->embedded) {
        fputs("weir: redis.address is embedded: only the running weir can use that Redis; use its "
              "admin listener, /api/v1/clients/CLIENT\n",
              stderr);
        return false;
    }
    command->redis =
        command->where < 0
            ? redis_dial_part(settings, (unsigned)(-1 - command->where), &parts, CONNECT_US, why)
            : redis_dial_slot(settings, (unsigned)command->where, CONNECT_US, why);
    return command->redis || complain(command, why);
}

/* In a cluster, selects the node of the keys or the shard; closes the connection if it is for
 * another one. */
static void go_where(struct client_command *command, const char **argv, const size_t *sizes)
{
    struct slice keys = {argv[0], sizes[0]};
    int where = 0;

    if (command->policy->redis.cluster.count)
        where = slice_equal(keys, SLICE("0"))
                    ? -1 - (int)client_query_shard(command->query)
                    : (int)redis_slot_of((struct slice){argv[1], sizes[1]});
    if (command->redis && where != command->where) {
        redis_blocking_free(command->redis);
        command->redis = NULL;
    }
    command->where = where;
}

/* Finds the number of shards of the keys. False: an error was printed. */
static bool count_parts(struct client_command *command)
{
    char why[REDIS_WHY_MAX];
    unsigned parts = 1;
    struct redis_blocking *redis;

    if (!command->policy->redis.cluster.count)
        return true;
    if (!(redis = redis_dial_part(&command->policy->redis, 0, &parts, CONNECT_US, why)))
        return complain(command, why);
    redis_blocking_free(redis);
    client_query_set_shards(command->query, parts);
    return true;
}

static bool load_script(struct client_command *command)
{
    char *script = client_query_script(command->policy);
    const char *argv[] = {"SCRIPT", "LOAD", script};
    const struct redis_reply *reply =
        script ? redis_ask(command->redis, COUNT_OF(argv), argv, NULL) : NULL;
    bool good = reply && reply->type == RESP_STRING && reply->text.n == sizeof command->sha - 1;

    if (good)
        memcpy(command->sha, reply->text.p, sizeof command->sha);
    else
        complain(command, reply && reply->type == RESP_ERROR
                              ? reply->text.p
                              : redis_blocking_error(command->redis));
    free(script);
    return good;
}

/* Sends EVALSHA SHA with these arguments. */
static const struct redis_reply *ask(struct client_command *command, int argc, const char **argv,
                                     const size_t *sizes)
{
    const char **words = xcalloc((size_t)argc + 2, sizeof *words);
    size_t *lengths = xcalloc((size_t)argc + 2, sizeof *lengths);

    words[0] = "EVALSHA", lengths[0] = strlen(words[0]);
    words[1] = command->sha, lengths[1] = strlen(command->sha);
    memcpy(words + 2, argv, (size_t)argc * sizeof *words);
    memcpy(lengths + 2, sizes, (size_t)argc * sizeof *lengths);
    const struct redis_reply *reply = redis_ask(command->redis, argc + 2, words, lengths);
    free(words);
    free(lengths);
    return reply;
}

static bool ask_all(struct client_command *command)
{
    const char **argv;
    const size_t *sizes;
    bool good = count_parts(command);
    int argc;

    while (good && client_query_next(command->query, &argc, &argv, &sizes)) {
        go_where(command, argv, sizes);
        if (!command->redis && !(dial(command) && load_script(command)))
            return false;
        const struct redis_reply *reply = ask(command, argc, argv, sizes);
        if (!reply || reply->type == RESP_ERROR)
            good = complain(command, reply ? reply->text.p : redis_blocking_error(command->redis));
        else if (!client_query_take(command->query, reply))
            good = complain(command, "a reply in an unexpected format");
    }
    return good;
}

/* --- Output ----------------------------------------------------------------------------------- */

enum { COLUMNS = 5 };
struct table_row {
    char cell[COLUMNS][CELL_MAX];
};

/* "12.3 s" up to two minutes, then hours, minutes and seconds. */
static void write_wait(struct text *out, int64_t us)
{
    int64_t s = us / 1000000 + (us % 1000000 != 0);

    if (us <= 0)
        text_char(out, '-');
    else if (s < 120)
        text_printf(out, "%.1f s", (double)us / 1e6);
    else if (s < 7200)
        text_printf(out, "%" PRId64 "m %02" PRId64 "s", s / 60, s % 60);
    else
        text_printf(out, "%" PRId64 "h %02" PRId64 "m", s / 3600, s % 3600 / 60);
}

/* Writes the parts of `per`. If a key is given, writes the values of all parts but the first. */
static void write_per(struct text *out, const struct limit_status *row)
{
    static const char *const names[] = {"client", "ip", "route", "method", "host", "all", "header"};
    const struct limit *limit = row->limit;

    text_put(out, slice_of(names[limit->per[0].per]));
    if (row->rest.n) {
        text_literal(out, ", ");
        for (size_t i = 0; i < row->rest.n; i++)
            if (!strchr("{}", row->rest.p[i]))
                text_char(out, row->rest.p[i]);
        return;
    }
    for (unsigned i = 1; i < limit->per_count; i++)
        text_printf(out, ", each %s",
                    limit->per[i].header ? limit->per[i].header : names[limit->per[i].per]);
}

/* The cells are zeroed before, so the text is NUL-terminated. */
static void fill_row(struct table_row *cells, const struct limit_status *row)
{
    struct text out[COLUMNS];

    for (unsigned i = 0; i < COLUMNS; i++)
        out[i] = text_over(cells->cell[i], CELL_MAX - 1);
    text_put(&out[0], slice_of(row->limit->name));
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
    write_wait(&out[4], in_flight ? 0 : row->reset_us);
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

static void print_standing(const struct query *query)
{
    const struct limit_status *limit_status;
    unsigned count = client_query_rows(query, &limit_status);
    struct table_row *rows = xcalloc((size_t)count + 1, sizeof *rows);

    rows[0] = (struct table_row){{"LIMIT", "COUNTED PER", "QUOTA", "REMAINING", "RESETS IN"}};
    for (unsigned i = 0; i < count; i++)
        fill_row(&rows[i + 1], &limit_status[i]);
    print_table(rows, count + 1);
    free(rows);
}

/* Returns true if neither the policy nor the database has the id, and
 * identity.known_clients_only then counts the client by its address. */
static bool is_unknown_id(const struct client_command *command)
{
    struct quota_row row;
    int64_t us;

    return command->policy->identity.known_clients_only && command->identity.is_id &&
           !policy_client(command->policy, &command->identity) &&
           !(client_query_row(command->query, &row, &us) && row.present);
}

/* Prints the database's quota for an id that the policy does not name. */
static void print_row(const struct client_command *command)
{
    char bytes[64];
    struct text text = text_over(bytes, sizeof bytes);
    struct quota_row row;
    int64_t us;

    if (!client_query_asks_database(command->query))
        return;
    if (!client_query_row(command->query, &row, &us)) {
        puts("quotas  not cached: the next request looks it up");
        return;
    }
    if (!row.present)
        fputs("quotas  no row for this id", stdout);
    else if (row.quota == QUOTA_OF_ITS_OWN)
        fputs(row.plan[0] ? "quotas  " : "quotas  a row without a quota", stdout);
    else if (row.quota < 0)
        fputs("quotas  unlimited", stdout);
    else
        printf("quotas  a quota of %" PRId64, row.quota);
    if (row.plan[0])
        printf("%splan %s", row.quota == QUOTA_OF_ITS_OWN ? "" : ", ", row.plan);
    write_wait(&text, us);
    if (us > 0)
        printf("; looked up again in %.*s\n", SLICE_ARG(text_slice(&text)));
    else
        puts("; expired: the next request looks it up");
}

static void print_grant(const struct client_command *command)
{
    char bytes[64];
    struct text text = text_over(bytes, sizeof bytes);
    int64_t quota, us;

    if (!client_query_granted(command->query, &quota, &us))
        return;
    write_wait(&text, us);
    if (quota == GRANT_UNLIMITED)
        printf("grant   unlimited, for %.*s more\n", SLICE_ARG(text_slice(&text)));
    else
        printf("grant   a quota of %" PRId64 ", for %.*s more\n", quota,
               SLICE_ARG(text_slice(&text)));
}

static void print_limits_in_force(const struct client_command *command)
{
    const struct client_limits *client_limits = client_query_client(command->query);

    printf("client  %.*s\nterms   %s", SLICE_ARG(identity_text(&command->identity)),
           client_query_limits_text(client_limits));
    if (client_limits && client_limits->plan)
        printf(" %s", client_limits->plan->name);
    if (client_limits && client_limits->name)
        printf(" (clients: %s)", client_limits->name);
    if (command->identity.listed)
        fputs(command->identity.listed == LISTED_BLOCKED
                  ? "; this address is blocked (addresses.block)"
                  : "; this address is never limited (addresses.allow)",
              stdout);
    puts(is_unknown_id(command)
             ? "; an unknown id: with identity.known_clients_only it is counted by address"
             : "");
}

static int show(const struct client_command *command)
{
    const struct client_limits *client_limits = client_query_client(command->query);
    const struct limit_status *rows;

    print_limits_in_force(command);
    print_grant(command);
    print_row(command);
    if (client_limits && client_limits->quota != QUOTA_AS_WRITTEN)
        puts(client_limits->quota == QUOTA_PROHIBITED
                 ? "\nEvery request that has a limit is rejected."
                 : "\nNo limit counts this client.");
    else if (client_query_rows(command->query, &rows) == 0)
        puts("\nThe policy has no limit that is counted per client.");
    else {
        putchar('\n');
        print_standing(command->query);
    }
    if (!client_query_complete(command->query))
        puts("\nRedis has more keys than could be scanned: some limits counted per several "
             "attributes may be missing.");
    return 0;
}

static int report_reset(const struct client_command *command)
{
    uint64_t removed = client_query_removed(command->query);

    printf("%.*s: %" PRIu64 " key%s removed\n", SLICE_ARG(identity_text(&command->identity)),
           removed, removed == 1 ? "" : "s");
    if (!client_query_told(command->query))
        fputs("weir: Redis did not accept the message to the running weirs (is this user allowed "
              "to PUBLISH?): they may reject for up to one more second\n",
              stderr);
    if (client_query_complete(command->query))
        return 0;
    fputs("weir: Redis has more keys than could be scanned: some may remain; try again\n", stderr);
    return 1;
}

static int report_granted(const struct client_command *command)
{
    struct slice client = identity_text(&command->identity);
    int64_t quota, us;

    if (!client_query_granted(command->query, &quota, &us)) {
        fprintf(stderr,
                "weir: there are already %d grants: revoke others, or wait until they end\n",
                GRANTS_MAX);
        return 1;
    }
    if (quota == GRANT_NONE)
        printf("%.*s: the grant is revoked\n", SLICE_ARG(client));
    else {
        char bytes[64];
        struct text time = text_over(bytes, sizeof bytes);
        duration_write(&time, us);
        if (quota == GRANT_UNLIMITED)
            printf("%.*s: unlimited for %.*s\n", SLICE_ARG(client), SLICE_ARG(text_slice(&time)));
        else
            printf("%.*s: a quota of %" PRId64 " for %.*s\n", SLICE_ARG(client), quota,
                   SLICE_ARG(text_slice(&time)));
    }
    if (is_unknown_id(command))
        puts("an unknown id: with identity.known_clients_only it is counted by address, so this "
             "has no effect");
    if (!client_query_told(command->query))
        fputs("weir: Redis did not accept the message to the running weirs (is this user allowed "
              "to PUBLISH?): the grant may take some seconds to apply\n",
              stderr);
    return 0;
}

/* --- Commands --------------------------------------------------------------------------------- */

/* The command, the client, and a grant's quota and duration. */
struct order {
    enum client_query_kind kind;
    const char *client;
    int64_t quota, us;
};

static struct query *begin(const struct client_command *command, const struct order *order)
{
    if (order->kind == CLIENT_QUERY_GRANT)
        return client_query_new_grant(command->policy, &command->identity, order->quota, order->us);
    return client_query_new(command->policy, &command->identity, order->kind,
                            order->kind == CLIENT_QUERY_LOOK ? LOOK_US : RESET_US);
}

/* Warns of a probable mistake: an address without "ip:", an id that the policy does not read, or a
 * hash from a log. */
static void doubt(const struct client_command *command, const char *client)
{
    const struct identity_settings *identity = &command->policy->identity;
    const struct identity_source *source = identity_source_of(identity_text(&command->identity));
    bool is_read = false;
    struct ip ip;

    if (!source->is_id)
        return;
    for (unsigned i = 0; i < identity->from_count; i++)
        is_read |= identity->from[i].source == source;
    if (ip_parse(slice_of(client), &ip))
        fprintf(stderr, "weir: %s is interpreted as an id; the address is ip:%s\n", client, client);
    else if (!is_read)
        fprintf(stderr,
                "weir: no client has such an id by this policy, since identity.from names no %s; "
                "an address is "
                "ip:ADDRESS\n",
                source->description);
    else if (source->hashed && identity_is_hash(slice_of(client + strlen(source->prefix))))
        fprintf(stderr, "weir: %s is taken for a value; the hash in logs is %sh:HASH\n", client,
                source->prefix);
}

static int ask_about(struct client_command *command, const struct order *order)
{
    const char *why;

    if (!client_query_identity(command->policy, slice_of(order->client), &command->identity,
                               &why)) {
        fprintf(stderr, "weir: %s is not a client: %s\n", order->client, why);
        return 1;
    }
    doubt(command, order->client);
    command->query = begin(command, order);
    if (!command->query || !ask_all(command))
        return 1;
    return order->kind == CLIENT_QUERY_LOOK    ? show(command)
           : order->kind == CLIENT_QUERY_RESET ? report_reset(command)
                                               : report_granted(command);
}

static int run(const char *file, const char *lua_dir, const struct order *order)
{
    struct client_command command = {.policy = load(file, lua_dir)};
    int status = command.policy ? ask_about(&command, order) : 1;

    client_query_free(command.query);
    redis_blocking_free(command.redis);
    policy_drop(command.policy);
    return status;
}

int cli_inspect(const char *policy_file, const char *client, const char *lua_dir)
{
    return run(policy_file, lua_dir, &(struct order){.kind = CLIENT_QUERY_LOOK, .client = client});
}

int cli_reset(const char *policy_file, const char *client, const char *lua_dir)
{
    return run(policy_file, lua_dir, &(struct order){.kind = CLIENT_QUERY_RESET, .client = client});
}

int cli_grant(const char *policy_file, const char *client, const char *quota, const char *time,
              const char *lua_dir)
{
    struct order order = {.kind = CLIENT_QUERY_GRANT, .client = client};

    if (!grant_quota_read(slice_of(quota), &order.quota)) {
        fprintf(
            stderr,
            "weir: %s is not a quota: expected a whole number from 0 to %d, unlimited, or none\n",
            quota, GRANT_QUOTA_MAX);
        return 1;
    }
    if (!time && order.quota != GRANT_NONE) {
        fputs("weir: the duration is missing: add a duration from 1s to 30d after the quota, such "
              "as 1h\n",
              stderr);
        return 1;
    }
    if (time && order.quota == GRANT_NONE) {
        fputs("weir: none revokes the grant and takes no duration; remove it\n", stderr);
        return 1;
    }
    if (time && !grant_time_read(slice_of(time), &order.us)) {
        fprintf(stderr, "weir: %s is not a duration; expected 1s to 30d, such as 1h\n", time);
        return 1;
    }
    return run(policy_file, lua_dir, &order);
}
