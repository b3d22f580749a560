/* metrics_tokens.c - metrics of tokens (identity.jwt). */
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "jwks/key_fetcher.h"
#include "policy/jwt.h"

/* Of keys by URL. A URL contains no quotes and backslashes. */
static void keys_by_url(struct evbuffer *out, const struct admin_view *view)
{
    const char *age = "weir_jwt_keys_age_seconds", *fetches = "weir_jwt_key_fetches_total";
    struct key_status status[KEY_URLS_MAX];
    unsigned count = key_fetcher_list(view->keys, status);

    if (count == 0)
        return;
    metric_head(out, age, "gauge", "Time since the keys of tokens were fetched, by URL.");
    for (unsigned i = 0; i < count; i++)
        if (status[i].has_keys)
            evbuffer_add_printf(out, "%s{url=\"%s\"} %.3f\n", age, status[i].url,
                                (double)status[i].age_us / 1e6);
    metric_head(out, fetches, "counter", "Fetches of keys of tokens, by URL and result.");
    for (unsigned i = 0; i < count; i++) {
        metric_labelled(out, fetches, status[i].fetches_good,
                        LABELS("url", status[i].url, "result", "good"));
        metric_labelled(out, fetches, status[i].fetches_failed,
                        LABELS("url", status[i].url, "result", "failed"));
    }
}

void metrics_write_tokens(struct evbuffer *out, const struct admin_view *view)
{
    const char *tokens = "weir_tokens_total", *faults = "weir_invalid_tokens_total";

    if (view->policy->identity.claim_count == 0)
        return;
    metric_head(out, tokens, "counter",
                "Requests with a valid token; verified: signature and claims were checked; cached: "
                "they were checked before.");
    metric_labelled(out, tokens, METRIC_SUM(view, worker_stats, tokens.verified),
                    LABELS("result", "verified"));
    metric_labelled(out, tokens, METRIC_SUM(view, worker_stats, tokens.cached),
                    LABELS("result", "cached"));
    metric_head(out, faults, "counter", "Requests with an invalid token, by reason.");
    for (unsigned f = JWT_GOOD + 1; f < JWT_FAULT_COUNT; f++)
        metric_labelled(out, faults, METRIC_SUM(view, worker_stats, tokens.invalid[f]),
                        LABELS("reason", jwt_fault_label[f]));
    keys_by_url(out, view);
}
