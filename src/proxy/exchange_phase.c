/* exchange_phase.c - the phases of an exchange and the transitions between them. exchange.c draws
 * them. */
#include "proxy/step.h"

#define TO(phase) (1u << (phase))

const uint16_t exchange_next_phases[] = {
    [PHASE_ROUTE] = TO(PHASE_KEYS) | TO(PHASE_QUOTA) | TO(PHASE_CONTENT) | TO(PHASE_LIMIT) |
                    TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_KEYS] = TO(PHASE_ROUTE) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_SERVICE] = TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_QUOTA] = TO(PHASE_CONTENT) | TO(PHASE_LIMIT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_CONTENT] = TO(PHASE_ROUTE) | TO(PHASE_LIMIT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_LIMIT] = TO(PHASE_HOLD) | TO(PHASE_CONNECT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_HOLD] = TO(PHASE_CONNECT) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_CONNECT] = TO(PHASE_CONNECT) | TO(PHASE_RELAY) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_RELAY] = TO(PHASE_CONNECT) | TO(PHASE_TUNNEL) | TO(PHASE_REPLY) | TO(PHASE_DONE),
    [PHASE_TUNNEL] = TO(PHASE_DONE),
    [PHASE_REPLY] = TO(PHASE_DONE),
    [PHASE_DONE] = 0,
};

static const char *const phase_name[] = {
    [PHASE_ROUTE] = "route",     [PHASE_KEYS] = "keys",   [PHASE_QUOTA] = "quota",
    [PHASE_CONTENT] = "content", [PHASE_LIMIT] = "limit", [PHASE_HOLD] = "hold",
    [PHASE_CONNECT] = "connect", [PHASE_RELAY] = "relay", [PHASE_TUNNEL] = "tunnel",
    [PHASE_REPLY] = "reply",     [PHASE_DONE] = "done",   [PHASE_SERVICE] = "service",
};

void exchange_log_transition(const struct exchange *x, enum phase next)
{
    log_debug("request %.*s: %s -> %s", (int)x->id_size, x->request_id, phase_name[x->phase],
              phase_name[next]);
}
