/* clients.c - see clients.h.
 *
 *   clients_answer() -> asking --pump: a call for each step of its inquiry--> answer
 *
 * All steps are taken in on_pump(), never from inside a callback of the link: so an asking ends in one place,
 * and the link is flushed where that is allowed. An asking whose time is up is answered at once; it stays
 * until the link has given back its call. */
#include "admin/clients.h"

#include <stdlib.h>
#include <sys/queue.h>
#include <time.h>

#include "admin/answer.h"
#include "admin/grant_body.h"
#include "base/clock.h"
#include "base/magic.h"
#include "limit/denials.h"
#include "limit/inquiry.h"
#include "limit/resets.h"
#include "store/redis_store.h"

enum { ASKING_MAGIC = 0x41534b47, SCAN_US = 2000000 };

struct asking {
    uint32_t magic;
    struct clients_desk *desk;
    struct evhttp_request *request; /* NULL: answered */
    enum inquiry_kind kind;
    struct identity identity;
    struct inquiry *inquiry;
    struct redis_call call;
    bool under_way; /* the link has the call */
    struct event *deadline;
    TAILQ_ENTRY(asking) entry;
};

struct clients_desk {
    struct event_base *base;
    struct policy *policy;
    char *script;
    struct redis_store *store; /* NULL until the first request */
    bool down;                 /* Redis is known to be away */
    struct event *pump;
    TAILQ_HEAD(askings, asking) askings;
    unsigned count;
};

/* --- The end of an asking ----------------------------------------------------------------------------- */

static void asking_free(struct asking *asking)
{
    TAILQ_REMOVE(&asking->desk->askings, asking, entry);
    asking->desk->count--;
    if (asking->deadline)
        event_free(asking->deadline);
    inquiry_free(asking->inquiry);
    MAGIC_WIPE(asking);
    free(asking);
}

/* Whoever asked knows now; the asking goes as soon as nobody else points at it. */
static void asking_end(struct asking *asking)
{
    asking->request = NULL;
    if (!asking->under_way)
        asking_free(asking);
}

static void asking_fail(struct asking *asking, const char *detail)
{
    if (asking->request)
        answer_problem(asking->request, 503, "Service Unavailable", detail);
    asking_end(asking);
}

/* --- What is answered --------------------------------------------------------------------------------- */

static void json_seconds(struct evbuffer *out, const char *name, int64_t us)
{
    evbuffer_add_printf(out, ",\"%s\":%.6f", name, (double)us / 1e6);
}

static void json_text(struct evbuffer *out, const char *name, const char *value)
{
    evbuffer_add_printf(out, ",\"%s\":", name);
    if (value)
        json_string(out, slice_of(value));
    else
        evbuffer_add_printf(out, "null");
}

static const char *json_bool(bool value)
{
    return value ? "true" : "false";
}

static void write_per(struct evbuffer *out, const struct limit *limit)
{
    static const char *const names[] = {"client", "ip", "route", "method", "host", "all", "header:"};

    evbuffer_add_printf(out, ",\"per\":[");
    for (unsigned i = 0; i < limit->per_count; i++) {
        char name[512];
        const char *header = limit->per[i].header;
        snprintf(name, sizeof name, "%s%s", names[limit->per[i].per], header ? header : "");
        evbuffer_add_printf(out, i ? "," : "");
        json_string(out, slice_of(name));
    }
    evbuffer_add_printf(out, "]");
}

static void write_row(struct evbuffer *out, const struct standing *row)
{
    evbuffer_add_printf(out, "{\"limit\":");
    json_string(out, slice_of(row->limit->name));
    write_per(out, row->limit);
    json_text(out, "key", row->key.p);
    evbuffer_add_printf(out, ",\"quota\":%lld,\"capacity\":%lld,\"remaining\":%lld", (long long)row->quota,
                        (long long)row->capacity, (long long)row->remaining);
    if (row->limit->kind == LIMIT_CONCURRENCY) { /* its period is a lease, and no client's business */
        json_text(out, "period_seconds", NULL);
        json_text(out, "resets_in_seconds", NULL);
    } else {
        json_seconds(out, "period_seconds", row->limit->period_us);
        json_seconds(out, "resets_in_seconds", row->reset_us);
    }
    if (row->failed)
        evbuffer_add_printf(out, ",\"script_fails\":true");
    evbuffer_add_printf(out, ",\"admits\":%s", json_bool(row->admits));
    if (row->retry_after_us < 0)
        json_text(out, "retry_after_seconds", NULL);
    else
        json_seconds(out, "retry_after_seconds", row->retry_after_us);
    evbuffer_add_printf(out, ",\"enforced\":%s}", json_bool(row->enforced));
}

/* What the client is granted now; of the quota -1 is unlimited. */
static void write_grant(struct evbuffer *out, const struct asking *asking)
{
    int64_t quota, us;
    char text[32];

    if (!inquiry_granted(asking->inquiry, &quota, &us) || quota == GRANT_NONE) {
        json_text(out, "grant", NULL);
        return;
    }
    time_t until = (time_t)((clock_wall_us() + (uint64_t)us + 999999) / 1000000);
    struct tm tm;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&until, &tm));
    evbuffer_add_printf(out, ",\"grant\":{\"quota\":%lld", (long long)quota);
    json_text(out, "until", text);
    json_seconds(out, "ends_in_seconds", us);
    evbuffer_add_printf(out, "}");
}

static bool was_granted(const struct asking *asking)
{
    int64_t quota, us;
    return inquiry_granted(asking->inquiry, &quota, &us);
}

/* "database": null where it is not asked for this client, else what it said. */
static void write_row_of_database(struct evbuffer *out, const struct asking *asking)
{
    struct quota_row row;
    int64_t us;

    if (!inquiry_asks_database(asking->inquiry)) {
        json_text(out, "database", NULL);
        return;
    }
    bool cached = inquiry_row(asking->inquiry, &row, &us);
    evbuffer_add_printf(out, ",\"database\":{\"cached\":%s", json_bool(cached));
    if (cached) {
        evbuffer_add_printf(out, ",\"known\":%s", json_bool(row.present));
        if (row.present && row.quota != QUOTA_OF_ITS_OWN)
            evbuffer_add_printf(out, ",\"quota\":%lld", (long long)row.quota);
        else
            json_text(out, "quota", NULL);
        json_text(out, "plan", row.present && row.plan[0] ? row.plan : NULL);
        json_seconds(out, "expires_in_seconds", us);
    }
    evbuffer_add_printf(out, "}");
}

static void write_look(struct evbuffer *out, const struct asking *asking)
{
    const struct client_terms *terms = inquiry_client(asking->inquiry);
    const struct standing *rows;
    unsigned count = inquiry_rows(asking->inquiry, &rows);

    json_text(out, "terms", inquiry_terms(terms));
    json_text(out, "plan", terms && terms->plan ? terms->plan->name : NULL);
    json_text(out, "entry", terms ? terms->name : NULL);
    write_grant(out, asking);
    write_row_of_database(out, asking);
    evbuffer_add_printf(out, ",\"limits\":[");
    for (unsigned i = 0; i < count; i++) {
        evbuffer_add_printf(out, i ? "," : "");
        write_row(out, &rows[i]);
    }
    evbuffer_add_printf(out, "]");
}

static void asking_succeed(struct asking *asking)
{
    struct evbuffer *body;

    if (asking->kind == INQUIRY_RESET) { /* here at once; the other weirs hear of it */
        denials_forget_all();
        resets_note(identity_text(&asking->identity));
    }
    if (asking->kind == INQUIRY_GRANT && !was_granted(asking)) {
        asking_fail(asking, "there are as many grants as there may be: take others back, or let them end");
        return;
    }
    body = evbuffer_new();
    if (!body) {
        asking_fail(asking, "no memory");
        return;
    }
    evbuffer_add_printf(body, "{\"client\":");
    json_string(body, identity_text(&asking->identity));
    if (asking->kind == INQUIRY_LOOK)
        write_look(body, asking);
    else if (asking->kind == INQUIRY_GRANT)
        evbuffer_add_printf(body, ",\"published\":%s", json_bool(inquiry_told(asking->inquiry)));
    else
        evbuffer_add_printf(body, ",\"removed\":%llu,\"published\":%s",
                            (unsigned long long)inquiry_removed(asking->inquiry),
                            json_bool(inquiry_told(asking->inquiry)));
    if (asking->kind == INQUIRY_GRANT)
        write_grant(body, asking);
    else
        evbuffer_add_printf(body, ",\"complete\":%s", json_bool(inquiry_complete(asking->inquiry)));
    evbuffer_add_printf(body, "}\n");
    answer(asking->request, 200, "application/json", body);
    evbuffer_free(body);
    asking_end(asking);
}

/* --- Its steps ---------------------------------------------------------------------------------------- */

static void pump_soon(struct clients_desk *desk)
{
    event_active(desk->pump, EV_TIMEOUT, 1);
}

static void on_answer(struct redis_call *call, const redisReply *reply, enum redis_failure failure)
{
    struct asking *asking = CONTAINER_OF(call, struct asking, call);
    char detail[128];

    MAGIC_CHECK(asking, ASKING_MAGIC);
    asking->under_way = false;
    if (!asking->request)
        asking_free(asking);
    else if (!reply) {
        snprintf(detail, sizeof detail, "Redis could not be asked: %s", redis_failure_label[failure]);
        asking_fail(asking, detail);
    } else if (!inquiry_take(asking->inquiry, reply))
        asking_fail(asking, "Redis gave an answer of the wrong shape");
    else
        pump_soon(asking->desk);
}

static void asking_step(struct asking *asking)
{
    struct clients_desk *desk = asking->desk;
    const char **argv;
    const size_t *sizes;
    int argc;

    inquiry_set_parts(asking->inquiry, desk->store ? redis_store_parts(desk->store) : 1);
    if (!inquiry_next(asking->inquiry, &argc, &argv, &sizes)) {
        asking_succeed(asking);
        return;
    }
    if (desk->down) {
        asking_fail(asking, "Redis is away");
        return;
    }
    if (!redis_store_is_ready(desk->store))
        return; /* until it is, or the deadline */
    asking->call = (struct redis_call){.done = on_answer};
    bool one_part =
        redis_store_has_slots(desk->store) && slice_equal((struct slice){argv[0], sizes[0]}, SLICE("0"));
    if (one_part ? redis_store_call_part(desk->store, inquiry_part(asking->inquiry), &asking->call, argc,
                                         argv, sizes)
                 : redis_store_call(desk->store, &asking->call, argc, argv, sizes))
        asking->under_way = true;
    else if (redis_store_is_whole(desk->store)) /* else until the node is there, or the deadline */
        asking_fail(asking, "Redis is busy");
}

static void on_pump(evutil_socket_t fd, short what, void *arg)
{
    struct clients_desk *desk = arg;
    struct asking *asking, *next;
    (void)fd, (void)what;

    for (asking = TAILQ_FIRST(&desk->askings); asking; asking = next) {
        next = TAILQ_NEXT(asking, entry);
        if (asking->request && !asking->under_way)
            asking_step(asking);
    }
    if (desk->store)
        redis_store_flush(desk->store);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct asking *asking = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(asking, ASKING_MAGIC);
    if (asking->request)
        asking_fail(asking, "Redis did not answer in time");
}

/* --- The link ----------------------------------------------------------------------------------------- */

static void on_ready(void *context)
{
    struct clients_desk *desk = context;
    desk->down = false;
    pump_soon(desk);
}

static void on_not_ready(void *context, enum redis_failure cause)
{
    struct clients_desk *desk = context;
    (void)cause;
    desk->down = true;
    pump_soon(desk);
}

static bool open_link(struct clients_desk *desk)
{
    const struct redis_link_watch watch = {.ready = on_ready, .not_ready = on_not_ready, .context = desk};

    if (desk->store)
        return true;
    if (!(desk->script = inquiry_script(desk->policy)))
        return false;
    desk->store = redis_store_new(desk->base, &desk->policy->redis, slice_of(desk->script), &watch);
    return true;
}

static void close_link(struct clients_desk *desk)
{
    struct asking *asking, *next;

    redis_store_free(desk->store); /* gives back every call */
    for (asking = TAILQ_FIRST(&desk->askings); asking; asking = next) {
        next = TAILQ_NEXT(asking, entry);
        asking_fail(asking, "the policy is being changed, or weir stops: try again");
    }
    free(desk->script);
    desk->store = NULL;
    desk->script = NULL;
    desk->down = false;
}

/* --- Requests ----------------------------------------------------------------------------------------- */

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* False: not percent-encoded as RFC 3986 section 2.1 has it, or longer than any client's name. */
static bool decode(struct slice encoded, struct text *out)
{
    for (size_t i = 0; i < encoded.n; i++) {
        if (encoded.p[i] != '%') {
            text_char(out, encoded.p[i]);
            continue;
        }
        if (encoded.n - i < 3 || hex(encoded.p[i + 1]) < 0 || hex(encoded.p[i + 2]) < 0)
            return false;
        text_char(out, (char)(hex(encoded.p[i + 1]) << 4 | hex(encoded.p[i + 2])));
        i += 2;
    }
    return !out->failed;
}

/* False: answered. */
static bool read_client(const struct clients_desk *desk, struct evhttp_request *request, struct slice id,
                        struct identity *identity)
{
    char bytes[IDENTITY_TEXT_MAX];
    struct text name = text_over(bytes, sizeof bytes);
    const char *why = "the client's name is not percent-encoded, or too long";

    if (decode(id, &name) && inquiry_identity(desk->policy, text_slice(&name), identity, &why))
        return true;
    answer_problem(request, 400, "Bad Request", why);
    return false;
}

/* What is asked for, and the quota and the time of a grant. */
struct order {
    enum inquiry_kind kind;
    int64_t quota, us;
};

static struct asking *asking_new(struct clients_desk *desk, const struct identity *identity,
                                 const struct order *order)
{
    struct asking *asking = calloc(1, sizeof *asking);

    if (!asking)
        return NULL;
    MAGIC_SET(asking, ASKING_MAGIC);
    asking->desk = desk;
    asking->identity = *identity;
    asking->kind = order->kind;
    TAILQ_INSERT_TAIL(&desk->askings, asking, entry);
    desk->count++;
    asking->inquiry = order->kind == INQUIRY_GRANT
                          ? inquiry_new_grant(desk->policy, &asking->identity, order->quota, order->us)
                          : inquiry_new(desk->policy, &asking->identity, order->kind, SCAN_US);
    asking->deadline = evtimer_new(desk->base, on_deadline, asking);
    if (asking->inquiry && asking->deadline && open_link(desk))
        return asking;
    asking_free(asking);
    return NULL;
}

/* False: answered. */
static bool read_grant(struct evhttp_request *request, struct order *order)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    size_t size = evbuffer_get_length(body);
    char why[GRANT_WHY_MAX];

    if (grant_body_read((struct slice){(const char *)evbuffer_pullup(body, -1), size}, &order->quota,
                        &order->us, why))
        return true;
    answer_problem(request, 400, "Bad Request", why);
    return false;
}

/* False: answered. */
static bool read_order(struct evhttp_request *request, struct order *order)
{
    enum evhttp_cmd_type command = evhttp_request_get_command(request);

    order->kind = command == EVHTTP_REQ_DELETE ? INQUIRY_RESET
                  : command == EVHTTP_REQ_PUT  ? INQUIRY_GRANT
                                               : INQUIRY_LOOK;
    return order->kind != INQUIRY_GRANT || read_grant(request, order);
}

void clients_answer(struct clients_desk *desk, struct evhttp_request *request, struct slice id)
{
    static const struct timeval deadline = {CLIENTS_DEADLINE_US / 1000000, CLIENTS_DEADLINE_US % 1000000};
    static const unsigned methods = EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE;
    struct order order = {0};
    struct identity identity;
    struct asking *asking;

    if (!answer_methods(request, methods, "GET, HEAD, PUT, DELETE") ||
        !read_client(desk, request, id, &identity) || !read_order(request, &order))
        return;
    if (desk->count >= CLIENTS_ASKING_MAX || !(asking = asking_new(desk, &identity, &order))) {
        answer_problem(request, 503, "Service Unavailable", "too many such requests are under way");
        return;
    }
    asking->request = request;
    evtimer_add(asking->deadline, &deadline);
    pump_soon(desk);
}

/* --- Birth and end ------------------------------------------------------------------------------------ */

struct clients_desk *clients_desk_new(struct event_base *base, struct policy *policy)
{
    struct clients_desk *desk = calloc(1, sizeof *desk);

    if (!desk)
        return NULL;
    desk->base = base;
    TAILQ_INIT(&desk->askings);
    if (!(desk->pump = event_new(base, -1, 0, on_pump, desk))) {
        free(desk);
        return NULL;
    }
    desk->policy = policy_hold(policy);
    return desk;
}

void clients_desk_reload(struct clients_desk *desk, struct policy *policy)
{
    close_link(desk);
    policy_drop(desk->policy);
    desk->policy = policy_hold(policy);
}

void clients_desk_free(struct clients_desk *desk)
{
    if (!desk)
        return;
    close_link(desk);
    event_free(desk->pump);
    policy_drop(desk->policy);
    free(desk);
}
