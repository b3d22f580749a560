/* failure_log.c - what is recorded of failed requests: their log lines, and failures of servers. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "proxy/step.h"

/* Failures of the upstream or of weir: a bounded number of lines per cause and worker, with the
 * number of suppressed ones. Client errors: at level debug only. */
void exchange_log(const struct exchange *x, enum cause cause, const char *why)
{
    bool client_fault = cause_table[cause].fault == FAULT_CLIENT;
    uint64_t suppressed = 0;
    struct address address;
    char peer[ADDRESS_TEXT_MAX];

    if (client_fault
            ? log_threshold < LEVEL_DEBUG
            : !log_throttle_allows(&x->worker->log_throttle[cause], clock_us(), &suppressed))
        return;
    log_write(client_fault ? LEVEL_DEBUG : LEVEL_WARN, "request %.*s of %.*s%s%s: %s%s%s%s%s%s",
              (int)x->id_size, x->request_id, (int)x->identity_size, x->identity,
              x->identity_size ? " at " : "",
              address_format(address_of_peer(&x->downstream->origin->peer, &address), peer),
              cause_table[cause].text, why ? ": " : "", why ? why : "",
              x->upstream.link ? "; server " : "",
              x->upstream.link ? link_server_text(x->upstream.link) : "",
              log_throttle_more(suppressed).text);
}

void exchange_note_error(const struct exchange *x, enum cause cause)
{
    static const struct {
        enum cause cause;
        enum server_error error;
    } errors[] = {{CAUSE_RESPONSE_TIMEOUT, SERVER_ERROR_TIMEOUT},
                  {CAUSE_UPSTREAM_CLOSED, SERVER_ERROR_CLOSED},
                  {CAUSE_UPSTREAM_BAD, SERVER_ERROR_BAD_RESPONSE}};

    for (unsigned i = 0; i < COUNT_OF(errors); i++) {
        if (errors[i].cause == cause)
            server_stats_error(x->upstream.link, errors[i].error);
    }
    exchange_note_failure(x, cause_table[cause].text);
}

void exchange_note_failure(const struct exchange *x, const char *why)
{
    struct ip client = {0}; /* all clients without an address count as one */

    if (exchange_owes_content(x))
        return;
    if (x->has_client_ip)
        client = identity_group(&x->policy->identity, &x->client_ip).ip;
    upstream_note_failure(x->upstream.link, &client, why);
}
