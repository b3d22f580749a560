/* postgres_link.c - see postgres_link.h for the states.
 *
 * libpq is used without its blocking calls:
 *
 * - PQconnectStart() receives addresses instead of host names.
 * - PQsetnonblocking() is set, and PQgetResult() is called only if PQisBusy() returns 0.
 * - The server cancels a slow query (statement_timeout). If the server does not respond, weir
 *   closes the connection: PQcancel() would block.
 * - Rows are read one at a time (PQsetSingleRowMode), so a query that does not use the id does
 *   not load a whole table into memory. */
#include "quota/postgres_link.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "config.h"
#include "policy/identity.h"

#ifdef HAVE_LIBPQ
#include "quota/postgres_row.h"
#include "quota/postgres_servers.h"

enum {
    POSTGRES_MAGIC = 0x50475351,
    CONNECT_US = 5000000, /* for all servers of one attempt together */
    RETRY_MIN_US = 200000,
    RETRY_MAX_US = 10000000,
    GRACE_US = 250000, /* extra time for the server to report its timeout */
    COMPLAIN_US = 60000000,
    ROWS_MAX = 1000,
    DETAIL_MAX = 300,
};

enum postgres_state { LINK_DOWN, LINK_CONNECTING, LINK_PREPARING, LINK_IDLE, LINK_BUSY };

enum down_cause { DOWN_NONE, DOWN_CONNECT, DOWN_LOST, DOWN_TIMEOUT, DOWN_QUERY };

static const char *const cause_text[] = {
    [DOWN_CONNECT] = "the connection failed",
    [DOWN_LOST] = "the connection was lost",
    [DOWN_TIMEOUT] = "the query timed out",
    [DOWN_QUERY] = "the query fails",
};

static const char *const cause_remedy[] = {
    [DOWN_CONNECT] = "check that PostgreSQL runs there, and quotas.postgres.connection",
    [DOWN_LOST] = "if this repeats, check the PostgreSQL log",
    [DOWN_TIMEOUT] = "check its load and that the query uses an index, or raise quotas.timeout",
    [DOWN_QUERY] = "check quotas.postgres.query and the privileges of this user",
};

struct postgres_link {
    uint32_t magic;
    struct event_base *base;
    const struct quota_settings *settings;
    struct postgres_watch watch;
    enum postgres_state state;
    struct quota_servers servers; /* the next attempt begins with the first one */
    PGconn *connection;
    struct event *io, *timer, *call; /* call: runs the watch callbacks from the loop */
    uint64_t retry_us;

    enum down_cause logged; /* the logged failure; DOWN_NONE: healthy */
    uint64_t down_since_us, complained_us;
    bool in_doubt; /* the query failed, and none has succeeded since */

    /* state of the query in flight */
    char id[IDENTITY_TEXT_MAX + 1];
    unsigned rows;
    struct quota_row row;
    bool failed; /* the server returned an error */
    bool refused_id;
    char detail[DETAIL_MAX];

    /* callbacks to run */
    bool tell_idle, tell_down, tell_done;
    enum postgres_result result;
};

bool postgres_is_there(void)
{
    return true;
}

static void link_connect(struct postgres_link *link);
static void on_io(evutil_socket_t fd, short what, void *arg);

static void tell_soon(struct postgres_link *link)
{
    event_active(link->call, EV_TIMEOUT, 1);
}

/* --- Log lines -------------------------------------------------------------------------------- */

/* Stores the first line of a libpq message. */
static void note_detail(struct postgres_link *link, const char *words)
{
    size_t n = words ? strcspn(words, "\n") : 0;
    snprintf(link->detail, sizeof link->detail, "%.*s",
             n > DETAIL_MAX - 1 ? DETAIL_MAX - 1 : (int)n, words ? words : "");
}

static void report_down(struct postgres_link *link, enum down_cause cause)
{
    if (link->logged == cause)
        return;
    if (link->logged == DOWN_NONE)
        link->down_since_us = clock_us();
    link->logged = cause;
    log_error("postgres %s: %s%s%s%s; cached quotas stay in effect, quotas.on_failure applies to "
              "other ids; %s",
              link->settings->server_text, cause_text[cause], link->detail[0] ? " (" : "",
              link->detail, link->detail[0] ? ")" : "", cause_remedy[cause]);
}

static void report_up(struct postgres_link *link)
{
    if (link->logged != DOWN_NONE)
        log_info("postgres %s: available again after %.1f s; quotas are read",
                 link->settings->server_text, (double)(clock_us() - link->down_since_us) / 1e6);
    else
        log_debug("postgres %s: connected", link->settings->server_text);
    link->logged = DOWN_NONE;
    link->in_doubt = false;
}

/* Logs a problem with one result. Every query may cause it, so the log line is rate-limited. */
static void log_problem(struct postgres_link *link, const char *what, const char *then)
{
    uint64_t now = clock_us();

    if (link->complained_us && now - link->complained_us < COMPLAIN_US)
        return;
    link->complained_us = now;
    log_warn("postgres %s: for \"%s\", the query %s; %s", link->settings->server_text, link->id,
             what, then);
}

/* --- State changes ---------------------------------------------------------------------------- */

static void disconnect(struct postgres_link *link)
{
    event_del(link->io);
    event_del(link->timer);
    if (link->connection)
        PQfinish(link->connection); /* closes a non-blocking socket */
    link->connection = NULL;
    link->state = LINK_DOWN;
}

static void tell_done(struct postgres_link *link, enum postgres_result result)
{
    link->tell_done = true;
    link->result = result;
    tell_soon(link);
}

static void link_fail(struct postgres_link *link, enum down_cause cause)
{
    bool busy = link->state == LINK_BUSY, stood = link->state >= LINK_IDLE;

    disconnect(link);
    if (busy)
        tell_done(link, cause == DOWN_LOST ? POSTGRES_LOST : POSTGRES_FAILED);
    if (cause == DOWN_LOST && stood && link->logged == DOWN_NONE) {
        log_debug("postgres %s: the connection was lost (%s)", link->settings->server_text,
                  link->detail);
        /* the server may have restarted: the link is down only if reconnecting fails */
        event_timer_arm(link->timer, 0);
        return;
    }
    if (!stood || cause == DOWN_QUERY) /* the query may fail only there, as on a standby */
        postgres_servers_rotate(&link->servers);
    link->in_doubt |= cause == DOWN_TIMEOUT || cause == DOWN_QUERY;
    report_down(link, cause);
    link->tell_down = true;
    tell_soon(link);
    event_timer_back_off(link->timer, &link->retry_us, RETRY_MAX_US);
}

static void link_idle(struct postgres_link *link)
{
    link->state = LINK_IDLE;
    event_del(link->timer);
    link->tell_idle = true;
    tell_soon(link);
}

/* --- Results ---------------------------------------------------------------------------------- */

static void read_row(struct postgres_link *link, const PGresult *result)
{
    struct postgres_row_fault fault;

    if (!postgres_row_read(result, &link->row, &fault))
        log_problem(link, fault.what, fault.then);
}

static void take_error(struct postgres_link *link, const PGresult *result)
{
    const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);

    link->refused_id = postgres_error_is_about_id(state);
    link->failed = !link->refused_id;
    note_detail(link, PQresultErrorMessage(result));
    if (state && strcmp(state, "57014") == 0) /* query_canceled: statement_timeout */
        note_detail(link, "statement_timeout");
}

/* Returns false if the connection was closed. */
static bool take_result(struct postgres_link *link, const PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);

    if (link->state == LINK_PREPARING)
        return true; /* a pooler may refuse SET */
    if (status == PGRES_SINGLE_TUPLE) {
        if (link->rows++ == 0)
            read_row(link, result);
    } else if (status == PGRES_FATAL_ERROR || status == PGRES_NONFATAL_ERROR ||
               status == PGRES_BAD_RESPONSE) {
        take_error(link, result);
    } else if (status != PGRES_TUPLES_OK) {
        note_detail(link, "it returns no rows");
        link->failed = true;
        link_fail(link, DOWN_QUERY); /* COPY and similar results would continue */
        return false;
    }
    if (link->rows <= ROWS_MAX)
        return true;
    note_detail(link, "it returns more than 1000 rows for one id");
    link_fail(link, DOWN_QUERY);
    return false;
}

static bool was_too_slow(const struct postgres_link *link)
{
    return strcmp(link->detail, "statement_timeout") == 0;
}

/* The result is complete. */
static void finish_query(struct postgres_link *link)
{
    if (link->state == LINK_PREPARING) {
        if (!link->in_doubt) {
            link->retry_us = RETRY_MIN_US;
            report_up(link);
        }
        link_idle(link);
        return;
    }
    if (link->failed) {
        if (PQstatus(link->connection) == CONNECTION_BAD)
            link_fail(link, DOWN_LOST); /* the server sent the reason for closing */
        else
            link_fail(link, was_too_slow(link) ? DOWN_TIMEOUT : DOWN_QUERY);
        return;
    }
    if (link->rows > 1)
        log_problem(link, "returns several rows",
                    "the first row is used; add ORDER BY and LIMIT 1");
    if (link->logged != DOWN_NONE)
        report_up(link);
    link->retry_us = RETRY_MIN_US;
    tell_done(link, POSTGRES_ROW);
    link_idle(link);
}

static void read_results(struct postgres_link *link)
{
    while (link->state >= LINK_PREPARING && link->state != LINK_IDLE &&
           !PQisBusy(link->connection)) {
        PGresult *result = PQgetResult(link->connection);
        if (!result) {
            finish_query(link);
            return;
        }
        bool goes_on = take_result(link, result);
        PQclear(result);
        if (!goes_on)
            return;
    }
}

/* --- Socket ----------------------------------------------------------------------------------- */

static bool watch_socket(struct postgres_link *link, short what)
{
    int fd = PQsocket(link->connection);

    event_del(link->io);
    return fd >= 0 && event_assign(link->io, link->base, fd, what | EV_PERSIST, on_io, link) == 0 &&
           event_add(link->io, NULL) == 0;
}

static void flush_output(struct postgres_link *link)
{
    int left = PQflush(link->connection);

    if (left < 0 || !watch_socket(link, left ? EV_READ | EV_WRITE : EV_READ)) {
        note_detail(link, PQerrorMessage(link->connection));
        link_fail(link, DOWN_LOST);
    }
}

/* Sets statement_timeout: the server cancels slow queries, so none continues after weir has
 * given up. */
static void prepare_session(struct postgres_link *link)
{
    char set[64];

    link->state = LINK_PREPARING;
    snprintf(set, sizeof set, "SET statement_timeout = %llu",
             (unsigned long long)(link->settings->timeout_us / 1000));
    if (PQsetnonblocking(link->connection, 1) == 0 && PQsendQuery(link->connection, set))
        flush_output(link);
    else {
        note_detail(link, PQerrorMessage(link->connection));
        link_fail(link, DOWN_CONNECT);
    }
}

static void poll_connect(struct postgres_link *link)
{
    bool good = true;

    event_del(link->io); /* libpq may replace the socket */
    switch (PQconnectPoll(link->connection)) {
    case PGRES_POLLING_READING: good = watch_socket(link, EV_READ); break;
    case PGRES_POLLING_WRITING: good = watch_socket(link, EV_WRITE); break;
    case PGRES_POLLING_OK: prepare_session(link); break;
    default: good = false;
    }
    if (good)
        return;
    note_detail(link, PQerrorMessage(link->connection));
    link_fail(link, DOWN_CONNECT);
}

static void on_io(evutil_socket_t fd, short what, void *arg)
{
    struct postgres_link *link = arg;
    (void)fd;

    MAGIC_CHECK(link, POSTGRES_MAGIC);
    if (link->state == LINK_CONNECTING) {
        poll_connect(link);
        return;
    }
    if (what & EV_WRITE)
        flush_output(link);
    if (!(what & EV_READ) || !link->connection)
        return;
    if (PQconsumeInput(link->connection))
        read_results(link);
    else {
        note_detail(link, PQerrorMessage(link->connection));
        link_fail(link, DOWN_LOST);
    }
}

static void on_retry_or_timeout(evutil_socket_t fd, short what, void *arg)
{
    struct postgres_link *link = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(link, POSTGRES_MAGIC);
    link->detail[0] = 0;
    switch (link->state) {
    case LINK_DOWN: link_connect(link); break;
    case LINK_CONNECTING:
    case LINK_PREPARING:
        note_detail(link, "no reply during connection setup and login");
        link_fail(link, DOWN_CONNECT);
        break;
    case LINK_BUSY: link_fail(link, DOWN_TIMEOUT); break;
    case LINK_IDLE: break;
    }
}

static void ignore_notice(void *context, const PGresult *notice)
{
    (void)context, (void)notice; /* libpq's default writes it to stderr */
}

static void link_connect(struct postgres_link *link)
{
    link->state = LINK_CONNECTING;
    link->connection = postgres_servers_connect(&link->servers, link->settings);
    if (!link->connection || PQstatus(link->connection) == CONNECTION_BAD ||
        !watch_socket(link, EV_WRITE)) { /* as after PGRES_POLLING_WRITING */
        note_detail(link, link->connection ? PQerrorMessage(link->connection) : "no memory");
        link_fail(link, DOWN_CONNECT);
        return;
    }
    PQsetNoticeReceiver(link->connection, ignore_notice, NULL);
    event_timer_arm(link->timer, CONNECT_US);
}

/* --- Public functions ------------------------------------------------------------------------- */

static void on_call(evutil_socket_t fd, short what, void *arg)
{
    struct postgres_link *link = arg;
    bool done = link->tell_done, down = link->tell_down, idle = link->tell_idle;
    (void)fd, (void)what;

    MAGIC_CHECK(link, POSTGRES_MAGIC);
    link->tell_done = link->tell_down = link->tell_idle = false;
    if (down)
        link->watch.down(link->watch.context);
    if (done)
        link->watch.done(link->watch.context, link->result, &link->row);
    if (idle && link->state == LINK_IDLE)
        link->watch.idle(link->watch.context);
}

bool postgres_link_is_idle(const struct postgres_link *link)
{
    return link && link->state == LINK_IDLE && !link->tell_done;
}

bool postgres_link_is_down(const struct postgres_link *link)
{
    return !link || link->logged != DOWN_NONE;
}

void postgres_link_query(struct postgres_link *link, struct slice id)
{
    const char *values[1] = {link->id};

    memcpy(link->id, id.p, id.n);
    link->id[id.n] = 0;
    link->state = LINK_BUSY;
    link->rows = 0;
    link->row = (struct quota_row){.present = false};
    link->failed = link->refused_id = false;
    link->detail[0] = 0;
    event_timer_arm(link->timer, link->settings->timeout_us + GRACE_US);
    if (PQsendQueryParams(link->connection, link->settings->query, 1, NULL, values, NULL, NULL,
                          0) &&
        PQsetSingleRowMode(link->connection))
        flush_output(link);
    else {
        note_detail(link, PQerrorMessage(link->connection));
        link_fail(link, DOWN_LOST);
    }
}

struct postgres_link *postgres_link_new(struct event_base *base,
                                        const struct quota_settings *settings,
                                        const struct postgres_watch *watch)
{
    struct postgres_link *link = calloc(1, sizeof *link);

    if (!link)
        return NULL;
    MAGIC_SET(link, POSTGRES_MAGIC);
    link->base = base;
    link->settings = settings;
    link->servers = *settings->servers;
    link->watch = *watch;
    link->retry_us = RETRY_MIN_US;
    link->io = event_new(base, -1, 0, on_io, link);
    link->timer = evtimer_new(base, on_retry_or_timeout, link);
    link->call = event_new(base, -1, 0, on_call, link);
    if (!link->io || !link->timer || !link->call) {
        postgres_link_free(link);
        return NULL;
    }
    link_connect(link);
    return link;
}

void postgres_link_free(struct postgres_link *link)
{
    if (!link)
        return;
    disconnect(link);
    event_drop(link->io);
    event_drop(link->timer);
    event_drop(link->call);
    MAGIC_WIPE(link);
    free(link);
}

#endif
