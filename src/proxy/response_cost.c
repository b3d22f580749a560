#include "proxy/response_cost.h"

#include <stdlib.h>

#include "content/usage_reader.h"
#include "proxy/added_usage.h"

static void count_inspected(struct exchange *x, enum content_result result)
{
    counter_add(&x->worker->stats.content_inspected[CONTENT_OF_RESPONSE][result], 1);
}

/* ---- adjusting ------------------------------------------------------------------------------- */

/* Returns true if the response, or that there is none, means that the request cost nothing. */
static bool is_error(const struct exchange *x)
{
    if (x->response.progress == MESSAGE_HEAD)
        return !x->downstream->origin->decides;
    return x->record.status >= 400;
}

/* Returns the cost in the limit at `place`; -1: as charged. `whole`: the content was read to its
 * end, and is valid. */
static int64_t final_cost(const struct exchange *x, unsigned place, bool whole)
{
    const struct limit_cost *own = x->route.rule->limits[place]->own_cost;
    int64_t cost = x->stated[place];

    if (cost < 0 && own && x->cost.usage && own->usage.kind != USAGE_KIND_NONE) {
        cost = usage_reader_sum(x->cost.usage, &own->usage.usage);
        if (cost >= 0 && cost < x->reserves[place] && !whole)
            cost = x->reserves[place];
    }
    return limit_cost_final(own, cost, is_error(x));
}

static void adjust_to_response(struct exchange *x, unsigned status, bool whole)
{
    int64_t costs[LIMITS_PER_RULE_MAX];
    struct charge_outcome outcome = {
        .status = status, .cost = x->cost.stated_by_rule, .units = x->charged};

    if (x->route.rule->has_own_costs) {
        for (unsigned i = 0; i < x->route.rule->limit_count; i++)
            costs[i] = final_cost(x, i, whole);
        outcome.own_costs = costs;
    }
    limiter_adjust(&x->decision_request, &outcome);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Begins to read the content, if it can be read. */
static void begin_reading(struct exchange *x, const struct response_head *head,
                          const struct framing *framing)
{
    const struct rule *rule = x->route.rule;
    const struct field *type = fields_find(&head->fields, FIELD_CONTENT_TYPE);
    enum usage_type kind = type && !fields_repeat(&head->fields, FIELD_CONTENT_TYPE)
                               ? usage_type_of(type->value)
                               : USAGE_TYPE_NONE;

    if (framing->kind == FRAMING_NONE || kind == USAGE_TYPE_NONE) {
        count_inspected(x, CONTENT_NONE);
        return;
    }
    if (fields_name_coding(&head->fields)) {
        count_inspected(x, CONTENT_COMPRESSED);
        return;
    }
    x->cost.usage = malloc(usage_reader_size(rule->usage_paths));
    if (!x->cost.usage) {
        count_inspected(x, CONTENT_INCOMPLETE);
        return;
    }
    usage_reader_begin(x->cost.usage, rule->usage_paths, kind, rule->usage_in_array);
}

static void end_reading(struct exchange *x)
{
    static const enum content_result results[] = {[USAGE_READ] = CONTENT_READ,
                                                  [USAGE_MISSING] = CONTENT_NONE,
                                                  [USAGE_INVALID] = CONTENT_INVALID,
                                                  [USAGE_INCOMPLETE] = CONTENT_INCOMPLETE};
    enum usage_result result = usage_reader_end(x->cost.usage, x->response.progress == MESSAGE_END);

    count_inspected(x, results[result]);
    adjust_to_response(x, x->record.status, result == USAGE_READ);
    free(x->cost.usage);
    x->cost.usage = NULL;
}

/* ---- the request ----------------------------------------------------------------------------- */

void response_cost_expect(struct exchange *x)
{
    x->cost.stated_by_rule = -1;
    for (unsigned i = 0; x->route.rule->has_own_costs && i < x->route.rule->limit_count; i++)
        x->stated[i] = -1;
}

void response_cost_refund(struct exchange *x)
{
    limiter_refund(&x->decision_request, x->charged);
}

/* ---- the response ---------------------------------------------------------------------------- */

static void read_stated_costs(struct exchange *x, const struct response_head *head)
{
    const struct rule *rule = x->route.rule;

    x->cost.stated_by_rule = rule_stated_cost(rule, &head->fields);
    for (unsigned i = 0; rule->has_own_costs && i < rule->limit_count; i++) {
        const struct limit_cost *own = rule->limits[i]->own_cost;
        x->stated[i] = own ? cost_in_response(&head->fields, own->response_header) : -1;
    }
}

void response_cost_begin(struct exchange *x, const struct response_head *head,
                         const struct framing *framing)
{
    read_stated_costs(x, head);
    added_usage_begin(x, head, framing);
    if (x->decision_request.charge && x->route.rule->usage_paths)
        begin_reading(x, head, framing);
}

void response_cost_forwarded(struct exchange *x)
{
    if (!x->cost.usage)
        adjust_to_response(x, x->record.status, false);
}

void response_cost_read(struct exchange *x, const struct content_piece *piece)
{
    usage_reader_read(x->cost.usage, (struct slice){piece->bytes, piece->size});
    if (piece->last)
        end_reading(x);
}

/* True if the server may have acted on a request whose response the limits do not know: the client
 * left before it, or sent malformed content. */
static bool client_failed(const struct exchange *x)
{
    return cause_table[x->record.cause].fault == FAULT_CLIENT;
}

void response_cost_end(struct exchange *x)
{
    if (x->cost.usage && x->response.progress != MESSAGE_HEAD) {
        end_reading(x);
        return;
    }
    free(x->cost.usage); /* weir's own response replaces that of the server */
    x->cost.usage = NULL;
    response_cost_expect(x);
    if (x->decision_request.charge && x->route.rule->adjusts && !client_failed(x))
        adjust_to_response(x, 0, false);
    else
        limiter_keep_charge(&x->decision_request);
}
