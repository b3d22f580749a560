/* read_expect.c - `expect` and `cost` of a request. */
#include "base/values.h"
#include "scenario/read_internal.h"

const char *const expect_keys[EXPECT_COUNT + 1] = {
#define X(name, key, by_limit) [name] = key,
    EXPECTATIONS(X)
#undef X
        [EXPECT_COUNT] = NULL,
};

static const bool takes_limits[EXPECT_COUNT] = {
#define X(name, key, by_limit) [name] = by_limit,
    EXPECTATIONS(X)
#undef X
};

static const int64_t second_us = 1000000;

/* --- Names of the policy ---------------------------------------------------------------------- */

/* Returns the index of a name, or -1 after reporting an error at the node, or at its key. */
static int known_index(struct loading *l, const struct node *node, bool is_key, name_at *at,
                       const char *what)
{
    struct slice name = is_key ? node->key : node->text;
    struct suggestion meant;
    int index = index_of(name, at, l->policy, &meant);
    char bytes[288];
    struct text known = text_over(bytes, sizeof bytes);

    for (unsigned i = 0; index < 0 && !meant.best.n && at(l->policy, i); i++)
        text_printf(&known, "%s%s", i ? ", " : "; the policy has ", at(l->policy, i));
    if (index < 0)
        (is_key ? mistake_of_key : mistake)(l, node, "the policy has no %s %s%.*s%s", what,
                                            QUOTE(name), SLICE_ARG(text_slice(&known)),
                                            DID_YOU_MEAN(&meant));
    return index;
}

/* --- Values ----------------------------------------------------------------------------------- */

static bool read_expected_number(struct loading *l, const struct node *node, int64_t high,
                                 int64_t *number)
{
    const struct option option = {.path = "", .high = high};
    unsigned before = l->report->mistakes;

    type_number.read(l, &option, node, number);
    return l->report->mistakes == before;
}

/* Whole seconds, as response fields have them: 3, or 2m. `none`: there is no such field. */
static bool read_expected_seconds(struct loading *l, const struct node *node, int64_t *seconds)
{
    int64_t us;

    if (!expect_scalar(l, node, "seconds such as 3, a duration such as 2m, or none"))
        return false;
    if (slice_equal(node->text, SLICE("none"))) {
        *seconds = EXPECT_NONE;
        return true;
    }
    if (number_read(node->text, seconds) == VALUE_GOOD && *seconds >= 0)
        return true;
    if (duration_read(node->text, &us) == VALUE_GOOD && us % second_us == 0) {
        *seconds = us / second_us;
        return true;
    }
    mistake(l, node,
            "%s is not a number of seconds; expected one such as 3, a duration such as 2m, "
            "or none",
            QUOTE(node->text));
    return false;
}

static bool read_delay(struct loading *l, const struct node *node, int64_t *us)
{
    const struct option option = {.path = "", .high = HOURS(24 * 366)};
    unsigned before = l->report->mistakes;

    type_duration.read(l, &option, node, us);
    return l->report->mistakes == before;
}

/* Reads what is expected into `e`. Returns false after reporting an error. */
static bool read_expected(struct loading *l, const struct node *node, struct expectation *e)
{
    struct identity identity;
    int index;

    switch (e->kind) {
    case EXPECT_ADMITTED:
    case EXPECT_REJECTED: return read_expected_number(l, node, REPEAT_MAX, &e->number);
    case EXPECT_STATUS: return read_expected_number(l, node, STATUS_MAX, &e->number);
    case EXPECT_REMAINING:
        if (slice_equal(node->text, SLICE("none"))) {
            e->number = EXPECT_NONE;
            return true;
        }
        return read_expected_number(l, node, LIMIT_MAX, &e->number);
    case EXPECT_COST: return read_expected_number(l, node, LIMIT_MAX, &e->number);
    case EXPECT_RETRY_AFTER:
    case EXPECT_RESET: return read_expected_seconds(l, node, &e->number);
    case EXPECT_DELAY: return read_delay(l, node, &e->number);
    case EXPECT_REJECTED_BY:
        if ((index = known_index(l, node, false, limit_at, "limit")) >= 0)
            e->limit = &l->policy->limits[index];
        return index >= 0;
    case EXPECT_RULE:
        if ((index = known_index(l, node, false, rule_at, "rule")) >= 0)
            e->name = l->policy->rules[index].name;
        return index >= 0;
    case EXPECT_UPSTREAM:
        if ((index = known_index(l, node, false, upstream_at, "upstream")) >= 0)
            e->name = l->policy->upstreams[index].name;
        return index >= 0;
    case EXPECT_CLIENT:
        if (!client_is_good(l, node, &identity))
            return false;
        e->name = arena_text(l->arena, identity_text(&identity));
        return true;
    case EXPECT_COUNT: break;
    }
    return false;
}

/* --- expect ----------------------------------------------------------------------------------- */

static struct expectation *expectation_new(struct loading *l, enum expect_kind kind,
                                           const struct node *node)
{
    struct expectation *e = arena_zeroed(l->arena, 1, sizeof *e);

    e->kind = kind;
    e->position = node->key.p ? node->key_position : node->position;
    return e;
}

/* Appends the expectations of one key: one, or one for each limit of a map. */
static struct expectation **read_expect_key(struct loading *l, enum expect_kind kind,
                                            const struct node *node, struct expectation **end)
{
    struct expectation *e;

    if (node->kind != NODE_MAP || !takes_limits[kind]) {
        e = expectation_new(l, kind, node);
        if (node->kind == NODE_SCALAR ? read_expected(l, node, e)
                                      : expect_scalar(l, node, "one value"))
            *end = e, end = &e->next;
        return end;
    }
    for (const struct node *child = node->first; child; child = child->next) {
        int index = child->broken ? -1 : known_index(l, child, true, limit_at, "limit");
        e = expectation_new(l, kind, child);
        if (index < 0 || !expect_scalar(l, child, "one value") || !read_expected(l, child, e))
            continue;
        e->limit = &l->policy->limits[index];
        *end = e, end = &e->next;
    }
    return end;
}

/* Returns the kind of a key, or EXPECT_COUNT after reporting an error. */
static enum expect_kind expect_kind_of(struct loading *l, const struct node *node)
{
    struct suggestion meant;
    int index = index_of(node->key, word_at, expect_keys, &meant);

    if (index >= 0)
        return (enum expect_kind)index;
    mistake_of_key(l, node, "unknown key %s%s", QUOTE(node->key),
                   meant.best.n ? DID_YOU_MEAN(&meant)
                                : "; expected admitted, rejected, rejected_by, status, rule, "
                                  "upstream, client, remaining, retry_after, reset, cost or delay");
    return EXPECT_COUNT;
}

static const char *expect_remedy(const struct node *node, struct suggestion_text *out)
{
    static const char *const words[] = {"admitted", "rejected", NULL};
    struct suggestion meant;

    (void)index_of(node->text, word_at, words, &meant);
    return suggestion_words(&meant, out);
}

static void read_expect(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct expectation **end = field;
    bool admitted = slice_equal(node->text, SLICE("admitted"));

    (void)option;
    if (node->kind == NODE_SCALAR && (admitted || slice_equal(node->text, SLICE("rejected")))) {
        *end = expectation_new(l, admitted ? EXPECT_ADMITTED : EXPECT_REJECTED, node);
        (*end)->number = EXPECT_ALL;
        return;
    }
    if (node->kind != NODE_MAP) {
        mistake(l, node,
                "expected admitted, rejected, or a map such as { rejected_by: LIMIT, "
                "retry_after: 3 }%s",
                expect_remedy(node, &(struct suggestion_text){{0}}));
        return;
    }
    for (const struct node *child = node->first; child; child = child->next) {
        enum expect_kind kind = child->broken ? EXPECT_COUNT : expect_kind_of(l, child);
        if (kind == EXPECT_COUNT)
            continue;
        if (child->null)
            mistake(l, child, "has no value; remove the key, or give one");
        else
            end = read_expect_key(l, kind, child, end);
    }
}

const struct option_type type_expect = {.name = "map", .read = read_expect};

/* --- cost ------------------------------------------------------------------------------------- */

static bool is_adjusted(const struct limit *limit)
{
    return limit->own_cost && limit_cost_is_adjusted(limit->own_cost);
}

static void add_cost(struct loading *l, const struct node *node, const struct limit *limit,
                     struct stated_cost **list)
{
    struct stated_cost *cost = arena_zeroed(l->arena, 1, sizeof *cost);

    if (!expect_scalar(l, node, "what the response states") ||
        !read_expected_number(l, node, LIMIT_MAX, &cost->cost))
        return;
    cost->limit = limit;
    cost->next = *list;
    *list = cost;
}

static void read_costs(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    (void)option;
    if (node->kind != NODE_MAP) {
        add_cost(l, node, NULL, field);
        return;
    }
    for (const struct node *child = node->first; child; child = child->next) {
        int index = child->broken ? -1 : known_index(l, child, true, limit_at, "limit");
        if (index < 0)
            continue;
        if (is_adjusted(&l->policy->limits[index]))
            add_cost(l, child, &l->policy->limits[index], field);
        else
            mistake_of_key(l, child,
                           "limit %s takes no cost of its own from the response; its cost has "
                           "neither response_header nor usage",
                           QUOTE(child->key));
    }
}

const struct option_type type_step_costs = {.name = "map", .read = read_costs};
