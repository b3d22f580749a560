#include "admin/chart_history.h"

#include <stdlib.h>

#include "admin/answer.h"
#include "base/clock.h"
#include "base/event_timer.h"
#include "base/json_writer.h"

/* The lines of the charts. Durations in seconds; -1: none in this second. */
enum line {
    ALL,
    REJECTED,
    REQUEST_P50,
    REQUEST_P99,
    REDIS_P50,
    REDIS_P99,
    CALLS,
    CALLS_OVER_LIMIT,
    LINES
};

struct sample {
    int64_t time_us; /* Unix time */
    float values[LINES];
};

struct counts {
    struct metric_requests by_rule;
    struct metric_calls calls;
    uint64_t requests[HISTOGRAM_BUCKETS + 1], redis[HISTOGRAM_BUCKETS + 1];
};

struct chart_history {
    const struct admin_view *view;
    struct event *timer;
    uint64_t at_us; /* of `before`; 0: none */
    struct counts before;
    unsigned count, next; /* samples, in a ring */
    struct sample samples[CHART_SAMPLES_MAX];
};

static const struct timeval a_second = {1, 0};

static void read_counts(const struct admin_view *view, struct counts *counts)
{
    *counts = (struct counts){.by_rule = metric_requests(view), .calls = metric_calls(view)};
    for (unsigned w = 0; w < view->worker_count; w++) {
        histogram_add_to(&worker_stats(view->workers[w])->request_duration, counts->requests);
        histogram_add_to(&worker_limiter_stats(view->workers[w])->redis_latency, counts->redis);
    }
}

static void put_percentiles(float *values, const uint64_t *before, const uint64_t *now)
{
    uint64_t counts[HISTOGRAM_BUCKETS + 1];

    for (unsigned i = 0; i <= HISTOGRAM_BUCKETS; i++)
        counts[i] = now[i] - before[i];
    values[0] = (float)percentile_seconds(counts, histogram_bounds_us, HISTOGRAM_BUCKETS, 0.5);
    values[1] = (float)percentile_seconds(counts, histogram_bounds_us, HISTOGRAM_BUCKETS, 0.99);
}

static float rate(uint64_t before, uint64_t now, double seconds)
{
    return (float)((double)(now - before) / seconds);
}

static void take_sample(struct chart_history *h)
{
    struct sample *sample = &h->samples[h->next];
    struct counts now;
    uint64_t now_us = clock_us();
    double seconds = (double)(now_us - h->at_us) / 1e6;

    read_counts(h->view, &now);
    if (h->at_us && seconds > 0) {
        sample->time_us = (int64_t)clock_wall_us();
        sample->values[ALL] = rate(h->before.by_rule.all, now.by_rule.all, seconds);
        sample->values[REJECTED] = rate(h->before.by_rule.rejected, now.by_rule.rejected, seconds);
        sample->values[CALLS] = rate(h->before.calls.all, now.calls.all, seconds);
        sample->values[CALLS_OVER_LIMIT] =
            rate(h->before.calls.over_limit, now.calls.over_limit, seconds);
        put_percentiles(&sample->values[REQUEST_P50], h->before.requests, now.requests);
        put_percentiles(&sample->values[REDIS_P50], h->before.redis, now.redis);
        h->next = (h->next + 1) % CHART_SAMPLES_MAX;
        h->count += h->count < CHART_SAMPLES_MAX;
    }
    h->before = now;
    h->at_us = now_us;
}

static void on_sample(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    take_sample(arg);
}

struct chart_history *chart_history_new(struct event_base *base, const struct admin_view *view)
{
    struct chart_history *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    h->view = view;
    h->timer = event_new(base, -1, EV_PERSIST, on_sample, h);
    if (!h->timer || event_add(h->timer, &a_second) != 0) {
        chart_history_free(h);
        return NULL;
    }
    take_sample(h);
    return h;
}

void chart_history_free(struct chart_history *h)
{
    if (!h)
        return;
    event_drop(h->timer);
    free(h);
}

static void write_sample(struct json_writer *json, const struct sample *sample)
{
    json_begin(json, NULL, '[');
    json_put_seconds(json, NULL, sample->time_us);
    for (unsigned i = 0; i < LINES; i++) {
        if (sample->values[i] < 0)
            json_put_null(json, NULL);
        else
            json_put_number(json, NULL, (double)sample->values[i]);
    }
    json_end(json, ']');
}

void chart_history_answer(const struct admin_view *view, struct evhttp_request *request)
{
    const struct chart_history *h = view->history;
    struct text body;
    struct json_writer json = json_writer_growing(&body);

    json_begin(&json, NULL, '{');
    json_begin(&json, "samples", '[');
    for (unsigned i = 0; i < h->count; i++)
        write_sample(&json,
                     &h->samples[(h->next + CHART_SAMPLES_MAX - h->count + i) % CHART_SAMPLES_MAX]);
    json_end(&json, ']');
    json_end(&json, '}');
    answer_json(request, &body);
}
