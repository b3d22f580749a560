#include "proxy/request_cost.h"

#include "base/macros.h"
#include "content/json_scanner.h"

enum { BYTES_PER_TOKEN = 4 }; /* of the estimate `reserve: auto` */

/* ---- values in the content ------------------------------------------------------------------- */

struct request_scan {
    struct json_scanner scanner;
    int64_t values[JSON_PATHS_MAX]; /* by path; -1: absent */
};

static void take_value(struct json_scanner *scanner, unsigned path,
                       const struct scanned_value *value)
{
    struct request_scan *scan = CONTAINER_OF(scanner, struct request_scan, scanner);

    if (value->kind == SCANNED_INTEGER)
        scan->values[path] = value->integer < 0 ? JSON_INTEGER_MAX : value->integer;
}

static bool is_compressed(const struct fields *fields)
{
    const struct field *field = fields_next_named(fields, SLICE("Content-Encoding"), NULL);

    return field && !slice_equal_nocase(field->value, SLICE("identity"));
}

static enum content_result scan_content(struct exchange *x, struct request_scan *scan)
{
    const struct json_paths *paths = x->route.rule->request_paths;

    for (unsigned i = 0; i < JSON_PATHS_MAX; i++)
        scan->values[i] = -1;
    if (x->request.kind == FRAMING_NONE || !paths)
        return CONTENT_NONE;
    if (x->request.ahead || x->request.progress != MESSAGE_END)
        return CONTENT_TOO_LARGE;
    if (is_compressed(&x->worker->incoming.head->fields))
        return CONTENT_COMPRESSED;
    json_scanner_begin(&scan->scanner, paths, take_value, text_over(NULL, 0));
    if (x->request.kept)
        (void)json_scanner_read(&scan->scanner, iobuf_slice(x->request.kept));
    if (json_scanner_end(&scan->scanner) == JSON_INVALID || !scan->scanner.is_object)
        return CONTENT_INVALID;
    return CONTENT_READ;
}

/* Returns the first value of the limit's paths; -1: there is none, or it is not certain which one
 * the server reads. */
static int64_t value_for(const struct limit_cost *own, const struct exchange *x,
                         const struct request_scan *scan)
{
    int64_t first = -1;

    for (unsigned i = 0; i < own->request_json.count; i++) {
        int at = json_paths_find(x->route.rule->request_paths, &own->request_json.paths[i]);
        if (scan->scanner.ambiguous >> at & 1)
            return -1;
        if (first < 0)
            first = scan->values[at];
    }
    return first;
}

/* ---- costs ----------------------------------------------------------------------------------- */

/* Returns the length of the content, as far as it is known before the decision. */
static uint64_t content_length(const struct exchange *x)
{
    const struct framing *framing = &x->worker->incoming.framing;

    return framing->kind == FRAMING_LENGTH ? framing->length : x->request.bytes;
}

static int64_t cost_before_response(const struct limit_cost *own, const struct exchange *x,
                                    int64_t value)
{
    int64_t cost = own->reserve, limit = own->max ? own->max : INT64_MAX;

    if (own->automatic && !x->downstream->origin->decides) {
        uint64_t bytes = content_length(x);
        cost =
            bytes / BYTES_PER_TOKEN > (uint64_t)limit ? limit : (int64_t)(bytes / BYTES_PER_TOKEN);
        cost += value > 0 ? value : 0;
    } else if (value >= 0)
        cost = value;
    cost = cost > limit ? limit : cost;
    return cost > 0 ? cost : 1;
}

bool request_cost_read(struct exchange *x, const char **why)
{
    const struct incoming *in = &x->worker->incoming;
    const struct rule *rule = x->route.rule;
    struct request_scan scan;
    enum content_result result = CONTENT_NONE;

    if (!rule_limit_costs(rule, in->identity.peer_trusted, &in->head->fields, x->reserves, why))
        return false;
    if (request_cost_needs_content(x)) {
        result = scan_content(x, &scan);
        counter_add(&x->worker->stats.content_inspected[CONTENT_OF_REQUEST][result], 1);
    }
    for (unsigned i = 0; i < rule->limit_count; i++) {
        const struct limit_cost *own = rule->limits[i]->own_cost;
        int64_t value = -1;
        if (!own || x->reserves[i])
            continue;
        if (result == CONTENT_READ)
            value = value_for(own, x, &scan);
        x->reserves[i] = cost_before_response(own, x, value);
    }
    return true;
}
