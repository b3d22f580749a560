/* clients_api.c - see clients_api.h.
 *
 *   clients_answer() -> pending query --pump: one call per step of its client query--> response
 *
 * All steps run in on_pump(), never inside a callback of the connection. So a pending query ends
 * in one place, and the connection is flushed where that is allowed. A pending query that times
 * out is answered at once; it is freed when its call has returned. */
#include "admin/clients_api.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "admin/answer.h"
#include "admin/client_query.h"
#include "base/clock.h"
#include "base/event_timer.h"
#include "base/library_memory.h"
#include "base/magic.h"
#include "http/chars.h"
#include "limit/denials.h"
#include "limit/grants.h"
#include "limit/resets.h"
#include "redis/redis_client.h"

enum {
    PENDING_QUERY_MAGIC = 0x41534b47,
    SCAN_US = 2000000,
    CLIENT_NAME_MAX = 8192 /* bytes of a name in a path; values of cookies are hashed */
};

struct pending_query {
    uint32_t magic;
    struct clients_api *api;
    struct evhttp_request *request; /* NULL: response sent */
    struct client_order order;
    struct identity identity;
    struct query_descriptor descriptor;
    struct client_query *query;
    struct redis_call call;
    bool under_way; /* the connection has the call */
    struct event *deadline;
    TAILQ_ENTRY(pending_query) entry;
};

struct clients_api {
    struct event_base *base;
    struct policy *policy;
    char *script;
    struct redis_client *store; /* NULL until the first request */
    bool down;                  /* Redis is known to be down: */
    enum redis_failure cause;
    struct event *pump;
    TAILQ_HEAD(pending_queries, pending_query) pending;
    unsigned count;
};

/* --- End of a pending query ------------------------------------------------------------------- */

static void pending_query_free(struct pending_query *pending_query)
{
    TAILQ_REMOVE(&pending_query->api->pending, pending_query, entry);
    pending_query->api->count--;
    event_drop(pending_query->deadline);
    client_query_free(pending_query->query);
    MAGIC_WIPE(pending_query);
    free(pending_query);
}

/* The response was sent; frees the query unless its call is still in progress. */
static void pending_query_end(struct pending_query *pending_query)
{
    pending_query->request = NULL;
    if (!pending_query->under_way)
        pending_query_free(pending_query);
}

static void pending_query_fail(struct pending_query *pending_query, const char *detail)
{
    if (pending_query->request)
        answer_problem(pending_query->request, 503, detail);
    pending_query_end(pending_query);
}

/* --- Responses -------------------------------------------------------------------------------- */

/* Here, the grant is in effect before the response; others are notified. */
static void note_grant(const struct pending_query *pending_query)
{
    const struct grant one = {.client = identity_text(&pending_query->identity),
                              .quota = pending_query->order.quota,
                              .until_us = clock_us() + (uint64_t)pending_query->order.us};

    if (grants_note(&one)) /* else when it is read from Redis */
        denials_forget_all();
}

static void pending_query_succeed(struct pending_query *pending_query)
{
    enum client_query_kind kind = pending_query->order.kind;
    struct text body;

    if (kind == CLIENT_QUERY_RESET) { /* others are notified */
        denials_forget_all();
        resets_note(identity_text(&pending_query->identity));
    }
    if (kind == CLIENT_QUERY_GRANT && !client_query_result(pending_query->query)->granted) {
        pending_query_fail(
            pending_query,
            "the maximum number of grants is reached: revoke others, or wait until they end");
        return;
    }
    if (kind == CLIENT_QUERY_GRANT)
        note_grant(pending_query);
    client_body_write(&body, pending_query->query, kind, &pending_query->identity,
                      &pending_query->descriptor);
    answer_json(pending_query->request, &body);
    pending_query_end(pending_query);
}

/* --- Steps of a query ------------------------------------------------------------------------- */

static void pump_soon(struct clients_api *api)
{
    event_active(api->pump, EV_TIMEOUT, 1);
}

/* Fails the query because of Redis, with the cause and its remedy. */
static void pending_query_refuse(struct pending_query *pending_query, const char *what,
                                 enum redis_failure failure)
{
    char detail[320];

    snprintf(detail, sizeof detail, "%s: %s (%s); %s", what, redis_failure_text[failure],
             redis_failure_label[failure],
             redis_failure_remedy(failure, &pending_query->api->policy->redis));
    pending_query_fail(pending_query, detail);
}

static void on_query_reply(struct redis_call *call, const struct redis_reply *reply,
                           enum redis_failure failure)
{
    struct pending_query *pending_query = CONTAINER_OF(call, struct pending_query, call);

    MAGIC_CHECK(pending_query, PENDING_QUERY_MAGIC);
    pending_query->under_way = false;
    if (!pending_query->request)
        pending_query_free(pending_query);
    else if (!reply)
        pending_query_refuse(pending_query, "Redis could not be queried", failure);
    else if (!client_query_take(pending_query->query, reply))
        pending_query_fail(pending_query, "Redis gave a reply in an unexpected format");
    else
        pump_soon(pending_query->api);
}

static void pending_query_step(struct pending_query *pending_query)
{
    struct clients_api *api = pending_query->api;
    const char **argv;
    const size_t *sizes;
    int argc;

    client_query_set_shards(pending_query->query, api->store ? redis_client_parts(api->store) : 1);
    if (!client_query_next(pending_query->query, &argc, &argv, &sizes)) {
        pending_query_succeed(pending_query);
        return;
    }
    if (api->down) {
        pending_query_refuse(pending_query, "Redis is unavailable", api->cause);
        return;
    }
    if (!redis_client_is_ready(api->store))
        return; /* waits until it is ready, or for the timeout */
    pending_query->call = (struct redis_call){.done = on_query_reply};
    bool one_part = redis_client_has_slots(api->store) &&
                    slice_equal((struct slice){argv[0], sizes[0]}, SLICE("0"));
    if (one_part ? redis_client_call_part(api->store, client_query_shard(pending_query->query),
                                          &pending_query->call, argc, argv, sizes)
                 : redis_client_call(api->store, &pending_query->call, argc, argv, sizes))
        pending_query->under_way = true;
    else if (redis_client_is_whole(api->store)) /* else waits for the node, or for the timeout */
        pending_query_fail(pending_query, "too many calls to Redis are waiting; try again");
}

static void on_pump(evutil_socket_t fd, short what, void *arg)
{
    struct clients_api *api = arg;
    struct pending_query *pending_query, *next;
    (void)fd, (void)what;

    for (pending_query = TAILQ_FIRST(&api->pending); pending_query; pending_query = next) {
        next = TAILQ_NEXT(pending_query, entry);
        if (pending_query->request && !pending_query->under_way)
            pending_query_step(pending_query);
    }
    if (api->store)
        redis_client_flush(api->store);
}

static void query_timed_out(evutil_socket_t fd, short what, void *arg)
{
    struct pending_query *pending_query = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(pending_query, PENDING_QUERY_MAGIC);
    if (pending_query->request)
        pending_query_fail(pending_query, "Redis did not reply in time");
}

/* --- The connection --------------------------------------------------------------------------- */

static void on_redis_back(void *context)
{
    struct clients_api *api = context;
    api->down = false;
    pump_soon(api);
}

static void on_not_ready(void *context, enum redis_failure cause)
{
    struct clients_api *api = context;
    api->down = true;
    api->cause = cause;
    pump_soon(api);
}

static bool open_link(struct clients_api *api)
{
    const struct redis_link_watch watch = {
        .ready = on_redis_back, .not_ready = on_not_ready, .context = api, .quiet = true};

    if (api->store)
        return true;
    if (!(api->script = client_query_script(api->policy)))
        return false;
    api->store = redis_client_new(api->base, &api->policy->redis, slice_of(api->script), &watch);
    if (api->store)
        return true;
    free(api->script);
    api->script = NULL;
    return false;
}

static void close_store(struct clients_api *api)
{
    struct pending_query *pending_query, *next;

    redis_client_free(api->store); /* completes every pending call */
    for (pending_query = TAILQ_FIRST(&api->pending); pending_query; pending_query = next) {
        next = TAILQ_NEXT(pending_query, entry);
        pending_query_fail(pending_query,
                           "the policy is being reloaded, or weir is stopping: try again");
    }
    free(api->script);
    api->store = NULL;
    api->script = NULL;
    api->down = false;
}

/* --- Requests --------------------------------------------------------------------------------- */

/* Decodes percent-encoding (RFC 3986 section 2.1). False: invalid, or longer than any client
 * name. */
static bool decode_name(struct slice encoded, struct text *out)
{
    for (size_t i = 0; i < encoded.n; i++) {
        if (encoded.p[i] != '%') {
            text_char(out, encoded.p[i]);
            continue;
        }
        int code = percent_code_at(encoded.p + i, encoded.p + encoded.n);
        if (code < 0)
            return false;
        text_char(out, (char)code);
        i += 2;
    }
    return !out->failed;
}

/* False: a response was sent. */
static bool read_client_name(const struct clients_api *api, struct evhttp_request *request,
                             struct identity *identity, struct query_descriptor *descriptor)
{
    struct slice id = request_path(request);
    char bytes[CLIENT_NAME_MAX];
    struct text name = text_over(bytes, sizeof bytes);
    const char *why = "the client's name is not percent-encoded, or too long";

    id.p += strlen(CLIENTS_PATH), id.n -= strlen(CLIENTS_PATH);
    if (decode_name(id, &name) &&
        client_query_named(api->policy, text_slice(&name), identity, descriptor, &why))
        return true;
    answer_problem(request, 400, why);
    return false;
}

static struct pending_query *pending_query_new(struct clients_api *api,
                                               const struct identity *identity,
                                               const struct query_descriptor *descriptor,
                                               const struct client_order *order)
{
    struct pending_query *pending_query = calloc(1, sizeof *pending_query);

    if (!pending_query)
        return NULL;
    MAGIC_SET(pending_query, PENDING_QUERY_MAGIC);
    pending_query->api = api;
    pending_query->identity = *identity;
    pending_query->descriptor = *descriptor;
    pending_query->order = *order;
    TAILQ_INSERT_TAIL(&api->pending, pending_query, entry);
    api->count++;
    pending_query->query =
        client_query_new(api->policy, &pending_query->identity, &pending_query->descriptor, order);
    pending_query->deadline = evtimer_new(api->base, query_timed_out, pending_query);
    if (pending_query->query && pending_query->deadline && open_link(api))
        return pending_query;
    pending_query_free(pending_query);
    return NULL;
}

/* False: a response was sent. */
static bool read_grant(struct evhttp_request *request, struct client_order *order)
{
    struct evbuffer *body = evhttp_request_get_input_buffer(request);
    size_t size = evbuffer_get_length(body);
    char why[GRANT_WHY_MAX];

    (void)library_memory_failed_here();
    const char *bytes = (const char *)evbuffer_pullup(body, -1);
    if (grant_body_read((struct slice){bytes, size}, &order->quota, &order->us, why))
        return true;
    if ((size && !bytes) || library_memory_failed_here())
        answer_problem(request, 500, "no memory");
    else
        answer_problem(request, 400, why);
    return false;
}

/* False: a response was sent. */
static bool read_client_request(struct evhttp_request *request, struct client_order *order)
{
    enum evhttp_cmd_type command = evhttp_request_get_command(request);

    order->kind = command == EVHTTP_REQ_DELETE ? CLIENT_QUERY_RESET
                  : command == EVHTTP_REQ_PUT  ? CLIENT_QUERY_GRANT
                                               : CLIENT_QUERY_INSPECT;
    return order->kind != CLIENT_QUERY_GRANT || read_grant(request, order);
}

void clients_answer(const struct admin_view *view, struct evhttp_request *request)
{
    static const unsigned methods =
        EVHTTP_REQ_GET | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT | EVHTTP_REQ_DELETE;
    struct clients_api *api = view->clients;
    struct client_order order = {.timeout_us = SCAN_US};
    struct identity identity;
    struct query_descriptor descriptor;
    struct pending_query *pending_query;

    if (!answer_methods(request, methods, "GET, HEAD, PUT, DELETE") ||
        !read_client_name(api, request, &identity, &descriptor) ||
        !read_client_request(request, &order))
        return;
    bool full = api->count >= PENDING_QUERIES_MAX;
    if (full || !(pending_query = pending_query_new(api, &identity, &descriptor, &order))) {
        answer_problem(request, full ? 503 : 500,
                       full ? "too many such requests are in progress" : "no memory");
        return;
    }
    pending_query->request = request;
    event_timer_arm(pending_query->deadline, CLIENTS_DEADLINE_US);
    pump_soon(api);
}

/* --- Creation and destruction ----------------------------------------------------------------- */

struct clients_api *clients_api_new(struct event_base *base, struct policy *policy)
{
    struct clients_api *api = calloc(1, sizeof *api);

    if (!api)
        return NULL;
    api->base = base;
    TAILQ_INIT(&api->pending);
    if (!(api->pump = event_new(base, -1, 0, on_pump, api))) {
        free(api);
        return NULL;
    }
    api->policy = policy_hold(policy);
    return api;
}

void clients_api_reload(struct clients_api *api, struct policy *policy)
{
    close_store(api);
    policy_drop(api->policy);
    api->policy = policy_hold(policy);
}

void clients_api_free(struct clients_api *api)
{
    if (!api)
        return;
    close_store(api);
    event_free(api->pump);
    policy_drop(api->policy);
    free(api);
}
