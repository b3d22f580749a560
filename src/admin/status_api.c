#include "admin/status_api.h"

#include <unistd.h>

#include "admin/answer.h"
#include "admin/problems.h"
#include "base/clock.h"
#include "config.h"
#include "redis/cluster.h"
#include "redis/sentinel.h"

static void put_problems(struct json_writer *json, const struct admin_view *view)
{
    char bytes[PROBLEM_TEXT_MAX];

    json_begin(json, "problems", '[');
    for (unsigned i = 0; i < PROBLEM_COUNT; i++) {
        struct text sentence = text_over(bytes, sizeof bytes - 1);
        if (!problem_exists(view, i, &sentence))
            continue;
        bytes[sentence.n] = 0;
        json_begin(json, NULL, '{');
        json_put_text(json, "name", problem_name(i));
        json_put_text(json, "text", bytes);
        json_end(json, '}');
    }
    json_end(json, ']');
}

void status_write_process(struct json_writer *json, const struct admin_view *view)
{
    json_put_text(json, "version", PACKAGE_VERSION);
    json_put_i64(json, "pid", getpid());
    json_put_text(json, "state", view->stopping ? "stopping" : "running");
    json_put_seconds(json, "uptime_seconds", (int64_t)(clock_us() - view->started_us));
    json_put_text(json, "policy_file", view->policy->file);
    put_problems(json, view);
}

static void write_topology(struct json_writer *json, const struct redis_settings *redis)
{
    char master[ADDRESS_TEXT_MAX];

    if (redis->sentinel.master) {
        redis_sentinel_master(master);
        json_put_text(json, "topology", "sentinel");
        json_put_text(json, "master", master);
    } else if (redis->cluster.count) {
        struct redis_cluster_report seen = redis_cluster_seen();
        json_put_text(json, "topology", "cluster");
        json_put_u64(json, "masters", seen.masters);
        json_put_u64(json, "slots", seen.slots);
    } else
        json_put_text(json, "topology", "single");
}

void status_write_redis(struct json_writer *json, const struct admin_view *view)
{
    const struct redis_settings *redis = &view->policy->redis;
    unsigned ready = 0, breaker[REDIS_BREAKER_OPEN + 1] = {0};

    for (unsigned w = 0; w < view->worker_count; w++) {
        ready += worker_redis_ready(view->workers[w]);
        breaker[worker_redis_breaker(view->workers[w])]++;
    }
    json_put_text(json, "address", redis->embedded ? "embedded" : redis->address_text);
    write_topology(json, redis);
    json_put_bool(json, "ready", ready);
    json_put_u64(json, "ready_workers", ready);
    json_begin(json, "breaker", '{');
    json_put_u64(json, "closed", breaker[REDIS_BREAKER_CLOSED]);
    json_put_u64(json, "half_open", breaker[REDIS_BREAKER_HALF_OPEN]);
    json_put_u64(json, "open", breaker[REDIS_BREAKER_OPEN]);
    json_end(json, '}');
}

/* A worker detects a failed server only when it uses it, so the server is reported down if any
 * worker has ejected it. */
static void write_endpoint(struct json_writer *json, const struct endpoint *endpoint,
                           bool is_checked)
{
    unsigned ejected = atomic_load_explicit(&endpoint->ejected, memory_order_relaxed);
    bool healthy = endpoint_is_healthy(endpoint), is_name = server_is_name(endpoint->settings);
    char address[ADDRESS_TEXT_MAX];

    json_begin(json, NULL, '{');
    json_put_text(json, "address",
                  is_name ? address_format(&endpoint->address, address) : endpoint->settings->text);
    if (is_name)
        json_put_text(json, "name", endpoint->settings->text);
    json_put_text(json, "state", healthy && !ejected ? "up" : "down");
    json_put_u64(json, "ejected_by_workers", ejected);
    if (is_checked)
        json_put_bool(json, "healthy", healthy);
    json_end(json, '}');
}

/* Writes the endpoints of one configured server; a host name may have none or several. */
static void write_server(struct json_writer *json, const struct upstream *upstream,
                         const struct upstream_server *server, struct endpoint *const *endpoints,
                         unsigned count)
{
    bool any = false;

    for (unsigned i = 0; i < count; i++)
        if (endpoints[i]->settings == server) {
            write_endpoint(json, endpoints[i], health_is_on(&upstream->health));
            any = true;
        }
    if (any || !server_is_name(server))
        return;
    json_begin(json, NULL, '{');
    json_put_null(json, "address");
    json_put_text(json, "name", server->text);
    json_put_text(json, "state", "unresolved");
    json_put_u64(json, "ejected_by_workers", 0);
    json_end(json, '}');
}

void status_write_upstreams(struct json_writer *json, const struct admin_view *view)
{
    json_begin(json, "upstreams", '[');
    for (unsigned i = 0; i < view->policy->upstream_count; i++) {
        const struct upstream *upstream = &view->policy->upstreams[i];
        struct endpoint *endpoints[ENDPOINTS_MAX];
        unsigned count = endpoint_set_list(view->endpoint_set, i, endpoints);

        json_begin(json, NULL, '{');
        json_put_text(json, "name", upstream->name);
        json_begin(json, "servers", '[');
        for (unsigned s = 0; s < upstream->server_count; s++)
            write_server(json, upstream, &upstream->servers[s], endpoints, count);
        for (unsigned m = 0; m < count; m++)
            endpoint_drop(endpoints[m]);
        json_end(json, ']');
        json_end(json, '}');
    }
    json_end(json, ']');
}

void status_answer(const struct admin_view *view, struct evhttp_request *request)
{
    struct text body;
    struct json_writer json = json_writer_growing(&body);

    json_begin(&json, NULL, '{');
    status_write_process(&json, view);
    json_put_u64(&json, "workers", view->worker_count);
    json_put_u64(&json, "rules", view->policy->rule_count - 1);
    json_put_u64(&json, "limits", view->policy->limit_count);
    json_put_u64(&json, "connections", METRIC_SUM(view, worker_stats, connections_open));
    json_put_u64(&json, "requests_active", METRIC_SUM(view, worker_stats, requests_active));
    if (policy_needs_redis(view->policy)) {
        json_begin(&json, "redis", '{');
        status_write_redis(&json, view);
        json_end(&json, '}');
    } else
        json_put_null(&json, "redis");
    status_write_upstreams(&json, view);
    json_end(&json, '}');
    answer_json(request, &body);
}
