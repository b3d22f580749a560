/* read_limit_cost.c - limits.NAME.cost: a number, or a map with the costs before and after the
 * response. */
#include "base/values.h"
#include "config/sections.h"

/* ---- weights --------------------------------------------------------------------------------- */

/* In 1 / USAGE_WEIGHT_ONE. */
static bool weight_of_node(struct loading *l, const struct node *node, int64_t *weight)
{
    static const char expected[] = "a weight from 0 to 1000000 with up to three decimals";

    if (!expect_scalar(l, node, expected))
        return false;
    if (decimal_read(node->text, 3, USAGE_WEIGHT_MAX, weight) == VALUE_GOOD)
        return true;
    mistake(l, node, "%s is not %s", QUOTE(node->text), expected);
    return false;
}

static void print_weight_value(FILE *out, int64_t weight)
{
    fprintf(out, "%lld", (long long)(weight / USAGE_WEIGHT_ONE));
    if (weight % USAGE_WEIGHT_ONE)
        fprintf(out, ".%03d", (int)(weight % USAGE_WEIGHT_ONE));
}

static void read_weight(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    (void)option;
    (void)weight_of_node(l, node, field);
}

static void print_weight(const struct printer *printer, const void *field)
{
    fputc(' ', printer->out);
    print_weight_value(printer->out, *(const int64_t *)field);
    fputc('\n', printer->out);
}

const struct option_type type_weight = {"number", read_weight, print_weight, false,
                                        sizeof(int64_t)};

/* ---- usage ----------------------------------------------------------------------------------- */

static const char *const format_names[] = {
    [USAGE_OPENAI] = "openai", [USAGE_ANTHROPIC] = "anthropic", [USAGE_GEMINI] = "gemini", NULL};
static const char usage_expected[] =
    "openai, anthropic, gemini, a list of paths, or a map of paths to weights";

static void read_format(struct loading *l, const struct node *node, struct usage_settings *usage)
{
    struct suggestion meant;
    int index = index_of(node->text, word_at, format_names, &meant);

    if (index < 0)
        mistake(l, node, "%s is unknown; expected %s%s", QUOTE(node->text), usage_expected,
                meant.best.n ? DID_YOU_MEAN(&meant) : "; write one path as [ PATH ]");
    else {
        usage->kind = USAGE_KIND_FORMAT;
        usage->format = (enum usage_format)index;
    }
}

/* Adds a path, whose text stands at `node`. */
static void add_path(struct loading *l, const struct node *node, struct slice text, int64_t weight,
                     struct usage_settings *usage)
{
    struct json_path path;
    struct slice kept = {arena_text(l->arena, text), text.n};
    const char *fault = json_path_parse(kept, &path);

    if (fault) {
        mistake(l, node, "%s is not a path: %s", QUOTE(text), fault);
        return;
    }
    for (unsigned i = 0; i < usage->usage.part_count; i++)
        if (json_path_equal(&usage->usage.parts[i].path, &path)) {
            mistake(l, node, "%s is listed twice", QUOTE(text));
            return;
        }
    if (!usage_add(&usage->usage, &path, weight))
        return; /* reported with the list */
    usage->paths[usage->count] = kept;
    usage->weights[usage->count++] = weight;
}

static void read_paths(struct loading *l, const struct node *node, struct usage_settings *usage)
{
    if (node->count < 1 || node->count > USAGE_PATHS_MAX) {
        mistake(l, node, "expected 1 to %d paths", USAGE_PATHS_MAX);
        return;
    }
    usage->kind = USAGE_KIND_PATHS;
    usage->weighted = node->kind == NODE_MAP;
    usage->paths = arena_zeroed(l->arena, node->count, sizeof *usage->paths);
    usage->weights = arena_zeroed(l->arena, node->count, sizeof *usage->weights);
    for (const struct node *item = node->first; item; item = item->next) {
        int64_t weight = USAGE_WEIGHT_ONE;
        if (item->broken || (usage->weighted ? !weight_of_node(l, item, &weight)
                                             : !expect_scalar(l, item, "a path")))
            continue;
        add_path(l, item, usage->weighted ? item->key : item->text, weight, usage);
    }
}

static void read_usage(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    (void)option;
    if (node->kind == NODE_SCALAR)
        read_format(l, node, field);
    else
        read_paths(l, node, field);
}

static void print_path(FILE *out, const void *field, unsigned i)
{
    const struct usage_settings *usage = field;

    print_scalar(out, usage->paths[i]);
    if (usage->weighted) {
        fputs(": ", out);
        print_weight_value(out, usage->weights[i]);
    }
}

static void print_usage(const struct printer *printer, const void *field)
{
    const struct usage_settings *usage = field;

    if (usage->kind == USAGE_KIND_FORMAT) {
        fprintf(printer->out, " %s\n", format_names[usage->format]);
        return;
    }
    fputc(' ', printer->out);
    (usage->weighted ? print_map : print_list)(printer->out, usage->count, print_path, usage);
    fputc('\n', printer->out);
}

const struct option_type type_usage = {"format, list or map", read_usage, print_usage, false, 0};

/* ---- reserve and request_json ---------------------------------------------------------------- */

static void read_reserve(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct limit_cost *cost = field;

    cost->reserve = 1;
    cost->automatic = node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("auto"));
    if (!cost->automatic)
        type_number.read(l, option, node, &cost->reserve);
}

static void print_reserve(const struct printer *printer, const void *field)
{
    const struct limit_cost *cost = field;

    if (cost->automatic)
        fputs(" auto\n", printer->out);
    else
        type_number.print(printer, &cost->reserve);
}

const struct option_type type_reserve = {"number or auto", read_reserve, print_reserve, false, 0};

static void read_request_json(struct loading *l, const struct option *option,
                              const struct node *node, void *field)
{
    struct limit_cost *cost = field;

    if (!expect_items(l, option, node, "paths"))
        return;
    cost->request_json_texts =
        arena_zeroed(l->arena, list_count(node), sizeof *cost->request_json_texts);
    EACH_ITEM (item, node) {
        struct json_path path;
        if (!expect_scalar(l, item, "a path"))
            continue;
        struct slice kept = {keep_text(l, item), item->text.n};
        const char *fault = json_path_parse(kept, &path);
        if (fault)
            mistake(l, item, "%s is not a path: %s", QUOTE(item->text), fault);
        else if (json_paths_find(&cost->request_json, &path) >= 0)
            mistake(l, item, "%s is listed twice", QUOTE(item->text));
        else
            cost->request_json_texts[json_paths_add(&cost->request_json, &path)] = kept;
    }
}

static void print_request_path(FILE *out, const void *field, unsigned i)
{
    print_scalar(out, ((const struct limit_cost *)field)->request_json_texts[i]);
}

PRINT_ITEMS(print_request_json, limit_cost, request_json.count, print_request_path)

const struct option_type type_request_json = {"path or list", read_request_json, print_request_json,
                                              false, 0};

/* ---- the map --------------------------------------------------------------------------------- */

bool cost_is_of_openai(const void *cost)
{
    const struct usage_settings *usage = &((const struct limit_cost *)cost)->usage;
    return usage->kind == USAGE_KIND_FORMAT && usage->format == USAGE_OPENAI;
}

bool cost_has_weights(const void *cost)
{
    const struct usage_settings *usage = &((const struct limit_cost *)cost)->usage;
    return usage->kind == USAGE_KIND_FORMAT && usage->weighted;
}

bool cost_is_adjusted(const void *cost)
{
    return limit_cost_is_adjusted(cost);
}

bool cost_header_is_good(struct loading *l, const struct node *map, const char *key,
                         const char *name)
{
    const struct node *node = node_find(map, key);
    bool good = !name || slice_is_token(slice_of(name));
    if (!good)
        mistake(l, node, "%s is not a header name", QUOTE(node->text));
    return good && name;
}

void cost_check_max(struct loading *l, const struct node *map, const char *what,
                    const char *applies_to)
{
    const struct node *max = node_find(map, "max");

    if (what && !max)
        mistake(l, map, "max is missing: the upper bound for %s", what);
    if (max && !what && !node_find(map, "request_header"))
        mistake_of_key(l, max, "max applies to %s, or remove max", applies_to);
}

/* `header`: request_header is a header name. */
static void check_max(struct loading *l, const struct node *node, const struct limit_cost *cost,
                      bool header)
{
    const char *what = header                     ? cost->request_header
                       : cost->request_json.count ? "request_json"
                       : cost->automatic          ? "reserve: auto"
                                                  : NULL;

    if (what || cost->include_usage != INCLUDE_USAGE_ADD)
        cost_check_max(l, node, what,
                       "request_header, request_json, reserve: auto and include_usage: add; add "
                       "one of them");
    if (cost->max && cost->reserve > cost->max)
        mistake(l, node_find(node, "reserve"), "%lld is more than max", (long long)cost->reserve);
}

/* Sets the usage of a format with its weights. */
static void finish_usage(struct loading *l, const struct node *node, struct limit_cost *cost)
{
    const struct node *weights = node_find(node, "weights");
    struct usage_settings *usage = &cost->usage;

    if (usage->kind == USAGE_KIND_FORMAT) {
        usage->weighted = weights != NULL;
        usage_of_format(&usage->usage, usage->format,
                        usage->weighted ? &usage->format_weights : NULL);
    } else if (weights)
        mistake_of_key(l, weights,
                       "weights belong to a format; write usage: { PATH: WEIGHT }, or remove them");
}

static void read_cost_map(struct loading *l, const struct node *node, struct limit *limit)
{
    struct limit_cost *cost = arena_zeroed(l->arena, 1, sizeof *cost);

    if (limit->kind == LIMIT_CONCURRENCY && limit->script)
        mistake(l, node,
                "a request in flight costs one unit; remove the map, or use another "
                "script");
    if (node->count == 0)
        mistake(l, node,
                "is empty; expected a number, or a map with reserve, request_header, "
                "request_json, response_header or usage");
    options_read(l, node, "limits.NAME.cost", cost);
    (void)cost_header_is_good(l, node, "response_header", cost->response_header);
    bool header = cost_header_is_good(l, node, "request_header", cost->request_header);
    check_max(l, node, cost, header);
    finish_usage(l, node, cost);
    if (node_find(node, "on_error") && !limit_cost_is_adjusted(cost))
        mistake_of_key(l, node_find(node, "on_error"),
                       "on_error applies to usage and response_header; add one of them");
    if (node_find(node, "on_disconnect") && cost->usage.kind == USAGE_KIND_NONE)
        mistake_of_key(l, node_find(node, "on_disconnect"),
                       "on_disconnect applies to usage; add it, or remove on_disconnect");
    if (cost->include_usage == INCLUDE_USAGE_ADD && !cost_is_of_openai(cost))
        mistake_of_key(l, node_find(node, "include_usage"),
                       "only streams of OpenAI's API are asked for their usage; add usage: openai");
    limit->cost = cost->reserve;
    limit->own_cost = cost;
}

static void read_limit_cost(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct limit *limit = CONTAINER_OF(field, struct limit, cost);

    if (node->kind == NODE_MAP)
        read_cost_map(l, node, limit);
    else
        type_number.read(l, option, node, field);
}

static void print_limit_cost(const struct printer *printer, const void *field)
{
    const struct limit *limit =
        (const struct limit *)((const char *)field - offsetof(struct limit, cost));
    struct printer below = printer_below(printer);

    if (!limit->own_cost) {
        type_number.print(printer, field);
        return;
    }
    fputc('\n', printer->out);
    options_print(&below, "limits.NAME.cost", limit->own_cost);
}

const struct option_type type_limit_cost = {"number or map", read_limit_cost, print_limit_cost,
                                            false, sizeof(int64_t)};

/* ---- the rule -------------------------------------------------------------------------------- */

/* Adds a path to a set of the rule, which is created if it is missing. */
static void add_rule_path(struct loading *l, const struct node *item, struct json_paths **set,
                          const struct json_path *path, const char *message)
{
    if (!*set)
        *set = arena_zeroed(l->arena, 1, sizeof **set);
    if (json_paths_add(*set, path) < 0)
        mistake(l, item, "the limits of the rule read more than %d paths of %s", JSON_PATHS_MAX,
                message);
}

static void add_own_cost(struct loading *l, const struct node *item, struct rule *rule,
                         const struct limit_cost *cost)
{
    const struct usage *usage = &cost->usage.usage;

    rule->has_own_costs = true;
    rule->adjusts |= limit_cost_is_adjusted(cost);
    rule->drains |= cost->on_disconnect == ON_DISCONNECT_DRAIN;
    rule->adds_usage |= cost->include_usage == INCLUDE_USAGE_ADD;
    rule->reads_request |= cost->automatic || cost->request_json.count || rule->adds_usage;
    rule->usage_in_array |= usage->objects_in_array;
    for (unsigned i = 0; i < usage->part_count; i++)
        add_rule_path(l, item, &rule->usage_paths, &usage->parts[i].path, "a response");
    for (unsigned i = 0; i < cost->request_json.count; i++)
        add_rule_path(l, item, &rule->request_paths, &cost->request_json.paths[i], "a request");
}

void rule_add_contents(struct loading *l, const struct node *item, struct rule *rule,
                       const struct limit *limit)
{
    if (limit->own_cost)
        add_own_cost(l, item, rule, limit->own_cost);
    for (unsigned i = 0; i < limit->per_count; i++) {
        if (limit->per[i].per == PER_VALUE)
            rule->key_sources |= 1U << limit->per[i].value;
        if (limit->per[i].per != PER_JSON)
            continue;
        rule->reads_request = true;
        add_rule_path(l, item, &rule->request_paths, limit->per[i].json, "a request");
    }
}
