/* metrics_tls.c - failed handshakes by listener and reason. */
#include "admin/admin_socket.h"
#include "admin/metrics.h"
#include "admin/metrics_text.h"
#include "base/text.h"
#include "net/tls.h"

static uint64_t of_clients(const struct admin_view *view, unsigned index, unsigned failure)
{
    return metric_row_sum(view, TABLE_HANDSHAKE_FAILURES, index, failure);
}

static uint64_t of_admin(const struct admin_view *view, unsigned index, unsigned failure)
{
    (void)view;
    return admin_socket_failures(index, failure);
}

static const char name[] = "weir_tls_handshake_failures_total";

static void write_listener(struct evbuffer *out, const struct admin_view *view,
                           const struct address *address, unsigned index,
                           uint64_t (*count)(const struct admin_view *, unsigned, unsigned))
{
    char listener[ADDRESS_TEXT_MAX];

    address_format(address, listener);
    for (unsigned f = 0; f < TLS_FAILURE_COUNT; f++)
        metric_labelled(out, name, count(view, index, f),
                        LABELS("listener", listener, "reason", tls_failure_table[f].label));
}

/* A reload keeps the listeners and their order. */
void metrics_write_tls(struct evbuffer *out, const struct admin_view *view)
{
    const struct policy *policy = view->policy;

    metric_head(out, name, "counter", "Failed TLS handshakes of clients, by listener and reason.");
    for (unsigned i = 0; i < policy->listen_count; i++)
        if (policy->listen[i].tls)
            write_listener(out, view, &policy->listen[i].address, i, of_clients);
    for (unsigned i = 0; i < policy->admin_count; i++)
        if (policy->admin[i].tls)
            write_listener(out, view, &policy->admin[i].address, i, of_admin);
}
