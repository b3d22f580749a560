#include "admin/api.h"

#include <stdlib.h>
#include <unistd.h>

#include "admin/answer.h"
#include "base/clock.h"
#include "config.h"
#include "redis/cluster.h"
#include "redis/sentinel.h"

static const char clients_path[] = "/api/v1/clients/";

/* --- /api/v1/status --------------------------------------------------------------------------- */

static uint64_t sum_of(const struct admin_view *view, size_t offset)
{
    uint64_t sum = 0;
    for (unsigned w = 0; w < view->worker_count; w++)
        sum += counter_read((const counter_t *)((const char *)worker_stats(view->workers[w]) + offset));
    return sum;
}

static void write_process(struct evbuffer *out, const struct admin_view *view, bool stopping)
{
    evbuffer_add_printf(out,
                        "{\"version\":\"%s\",\"pid\":%ld,\"state\":\"%s\",\"uptime_seconds\":%.3f,"
                        "\"workers\":%u,\"policy_file\":",
                        PACKAGE_VERSION, (long)getpid(), stopping ? "stopping" : "running",
                        (double)(clock_us() - view->started_us) / 1e6, view->worker_count);
    json_string(out, slice_of(view->policy->file));
    evbuffer_add_printf(out, ",\"rules\":%u,\"limits\":%u,\"connections\":%llu,\"requests_active\":%llu",
                        view->policy->rule_count - 1, view->policy->limit_count,
                        (unsigned long long)sum_of(view, offsetof(struct worker_stats, connections_open)),
                        (unsigned long long)sum_of(view, offsetof(struct worker_stats, requests_active)));
}

static void write_redis(struct evbuffer *out, const struct admin_view *view)
{
    const struct redis_settings *redis = &view->policy->redis;
    char master[ADDRESS_TEXT_MAX];
    unsigned ready = 0, breaker[REDIS_BREAKER_OPEN + 1] = {0};

    if (!policy_needs_redis(view->policy)) {
        evbuffer_add_printf(out, ",\"redis\":null");
        return;
    }
    for (unsigned w = 0; w < view->worker_count; w++) {
        ready += worker_redis_ready(view->workers[w]);
        breaker[worker_redis_breaker(view->workers[w])]++;
    }
    evbuffer_add_printf(out, ",\"redis\":{\"address\":");
    json_string(out, slice_of(redis->embedded ? "embedded" : redis->address_text));
    if (redis->sentinel.master) {
        redis_sentinel_master(master);
        evbuffer_add_printf(out, ",\"topology\":\"sentinel\",\"master\":");
        json_string(out, slice_of(master));
    } else if (redis->cluster.count) {
        struct redis_cluster_report seen = redis_cluster_seen();
        evbuffer_add_printf(out, ",\"topology\":\"cluster\",\"masters\":%u,\"slots\":%u", seen.masters,
                            seen.slots);
    } else
        evbuffer_add_printf(out, ",\"topology\":\"single\"");
    evbuffer_add_printf(out, ",\"ready\":%s,\"ready_workers\":%u", ready ? "true" : "false", ready);
    evbuffer_add_printf(out, ",\"breaker\":{\"closed\":%u,\"half_open\":%u,\"open\":%u}}",
                        breaker[REDIS_BREAKER_CLOSED], breaker[REDIS_BREAKER_HALF_OPEN],
                        breaker[REDIS_BREAKER_OPEN]);
}

/* A worker detects a failed server only when it uses it, so the server is reported down if any
 * worker has ejected it. */
static void write_member(struct evbuffer *out, const struct endpoint *endpoint, bool is_checked)
{
    unsigned ejected = atomic_load_explicit(&endpoint->ejected, memory_order_relaxed);
    bool healthy = endpoint_is_healthy(endpoint), is_name = server_is_name(endpoint->settings);
    char address[ADDRESS_TEXT_MAX];

    evbuffer_add_printf(out, "{\"address\":");
    json_string(out,
                slice_of(is_name ? address_format(&endpoint->address, address) : endpoint->settings->text));
    if (is_name) {
        evbuffer_add_printf(out, ",\"name\":");
        json_string(out, slice_of(endpoint->settings->text));
    }
    evbuffer_add_printf(out, ",\"state\":\"%s\",\"ejected_by_workers\":%u",
                        healthy && !ejected ? "up" : "down", ejected);
    if (is_checked)
        evbuffer_add_printf(out, ",\"healthy\":%s", healthy ? "true" : "false");
    evbuffer_add_printf(out, "}");
}

/* Writes the endpoints of one configured server; a host name may have none or several. */
static bool write_server(struct evbuffer *out, const struct upstream *upstream,
                         const struct upstream_server *server, struct endpoint *const *endpoints,
                         unsigned count, bool first)
{
    bool any = false;

    for (unsigned i = 0; i < count; i++) {
        if (endpoints[i]->settings != server)
            continue;
        evbuffer_add_printf(out, first ? "" : ",");
        write_member(out, endpoints[i], upstream->health.path != NULL);
        first = false;
        any = true;
    }
    if (!any && server_is_name(server)) {
        evbuffer_add_printf(out, "%s{\"address\":null,\"name\":", first ? "" : ",");
        json_string(out, slice_of(server->text));
        evbuffer_add_printf(out, ",\"state\":\"unresolved\",\"ejected_by_workers\":0}");
        first = false;
    }
    return first;
}

static void write_upstreams(struct evbuffer *out, const struct admin_view *view)
{
    evbuffer_add_printf(out, ",\"upstreams\":[");
    for (unsigned i = 0; i < view->policy->upstream_count; i++) {
        const struct upstream *upstream = &view->policy->upstreams[i];
        struct endpoint *endpoints[ENDPOINTS_MAX];
        unsigned count = endpoint_set_list(view->endpoint_set, i, endpoints);
        bool first = true;

        evbuffer_add_printf(out, "%s{\"name\":", i ? "," : "");
        json_string(out, slice_of(upstream->name));
        evbuffer_add_printf(out, ",\"servers\":[");
        for (unsigned s = 0; s < upstream->server_count; s++)
            first = write_server(out, upstream, &upstream->servers[s], endpoints, count, first);
        for (unsigned m = 0; m < count; m++)
            endpoint_drop(endpoints[m]);
        evbuffer_add_printf(out, "]}");
    }
    evbuffer_add_printf(out, "]}\n");
}

static void answer_status(const struct admin_view *view, bool stopping, struct evhttp_request *request)
{
    struct evbuffer *body = evbuffer_new();

    if (!body) {
        answer_problem(request, 500, "Internal Server Error", "no memory");
        return;
    }
    write_process(body, view, stopping);
    write_redis(body, view);
    write_upstreams(body, view);
    answer(request, 200, "application/json", body);
    evbuffer_free(body);
}

/* --- /api/v1/policy --------------------------------------------------------------------------- */

/* The policy as printed by `weir check`, as application/yaml (RFC 9512). */
static void answer_policy(const struct admin_view *view, struct evhttp_request *request)
{
    struct evbuffer *body = evbuffer_new();
    char *text = NULL;
    size_t size = 0;
    FILE *out = body ? open_memstream(&text, &size) : NULL;

    if (out) {
        policy_print(view->policy, out);
        fclose(out);
    }
    if (text && evbuffer_add(body, text, size) == 0)
        answer(request, 200, "application/yaml", body);
    else
        answer_problem(request, 500, "Internal Server Error", "no memory");
    free(text);
    if (body)
        evbuffer_free(body);
}

/* --- Dispatch --------------------------------------------------------------------------------- */

void api_answer(const struct admin_view *view, bool stopping, struct clients_api *api,
                struct evhttp_request *request)
{
    const char *text = evhttp_uri_get_path(evhttp_request_get_evhttp_uri(request));
    struct slice path = slice_of(text ? text : "");
    struct slice start = {clients_path, sizeof clients_path - 1};

    if (slice_starts_with(path, start))
        clients_answer(api, request, (struct slice){path.p + start.n, path.n - start.n});
    else if (slice_equal(path, SLICE("/api/v1/status"))) {
        if (answer_reads(request))
            answer_status(view, stopping, request);
    } else if (slice_equal(path, SLICE("/api/v1/policy"))) {
        if (answer_reads(request))
            answer_policy(view, request);
    } else
        answer_problem(request, 404, "Not Found",
                       "there are /api/v1/status, /api/v1/policy and /api/v1/clients/ID");
}
