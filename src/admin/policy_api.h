/* policy_api.h - /api/v1/policy: the policy in effect, as YAML or JSON. */
#ifndef WEIR_ADMIN_POLICY_API_H
#define WEIR_ADMIN_POLICY_API_H

#include <event2/http.h>

#include "admin/metrics.h"

/* Sends the policy as printed by `weir check`: as JSON if Accept names application/json, else as
 * application/yaml (RFC 9512). */
void policy_answer(const struct admin_view *view, struct evhttp_request *request);

#endif
