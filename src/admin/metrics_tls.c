/* metrics_tls.c - failed handshakes by listener and reason. */
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "base/text.h"
#include "net/tls.h"

static const struct counter_table *failures_of(const struct worker *worker)
{
    return &worker_stats(worker)->handshake_failures;
}

/* A reload keeps the listeners and their order; one that has had TLS keeps it. */
void metrics_write_tls(struct evbuffer *out, const struct admin_view *view)
{
    static const char name[] = "weir_tls_handshake_failures_total";
    const struct policy *policy = view->policy;
    char bytes[ADDRESS_TEXT_MAX], label[2 * ADDRESS_TEXT_MAX];

    metric_head(out, name, "counter", "Failed TLS handshakes of clients, by listener and reason.");
    for (unsigned i = 0; i < policy->listen_count; i++) {
        struct text listener = text_over(label, sizeof label);
        if (!policy->listen[i].tls)
            continue;
        label_value(&listener, address_format(&policy->listen[i].address, bytes));
        for (unsigned f = 0; f < TLS_FAILURE_COUNT; f++)
            evbuffer_add_printf(out, "%s{listener=\"%.*s\",reason=\"%s\"} %llu\n", name,
                                SLICE_ARG(text_slice(&listener)), tls_failure_table[f].label,
                                (unsigned long long)metric_row_sum(view, failures_of, i, f));
    }
}
