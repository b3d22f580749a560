/* read_clients.c - sections plans and clients: limits of client groups and single clients. */
#include "config/sections.h"
#include "policy/identity.h"
#include "policy/shipped_limiter.h"

bool client_has_quota(const void *client)
{
    return ((const struct configured_client *)client)->quota != QUOTA_NOT_WRITTEN;
}

/* --- quota --- */

static void read_client_quota(struct loading *l, const struct option *option,
                              const struct node *node, void *field)
{
    struct configured_client *client = field;

    client->quota = QUOTA_NOT_WRITTEN;
    if (node->null)
        return;
    if (node->kind == NODE_SCALAR &&
        (slice_equal(node->text, SLICE("unlimited")) || slice_equal(node->text, SLICE("-1"))))
        client->quota = -1;
    else if (node->kind == NODE_SCALAR && node->text.n && memchr("0123456789", node->text.p[0], 10))
        type_number.read(l, option, node, &client->quota);
    else
        mistake(l, node, "%s is not a quota; expected 0, a number or unlimited",
                node->kind == NODE_SCALAR ? QUOTE(node->text) : "this");
}

static void print_quota(const struct printer *printer, const void *field)
{
    const struct configured_client *client = field;

    if (client->quota < 0)
        fputs(" unlimited\n", printer->out);
    else
        fprintf(printer->out, " %lld\n", (long long)client->quota);
}

const struct option_type type_quota = {"quota", read_client_quota, print_quota, true, 0};

/* --- numbers --- */

static struct limit_numbers numbers_by_plan(const struct plan *plan, const struct limit *limit)
{
    return plan && plan->numbers ? plan->numbers[limit->index] : limit_numbers_of(limit);
}

/* Returns the client's numbers for the limit: from its quota, its plan, or the limit itself. */
static struct limit_numbers numbers_by_quota(const struct configured_client *client,
                                             const struct limit *limit)
{
    struct limit_numbers numbers = numbers_by_plan(client->client_limits.plan, limit);
    if (client->quota > 0 && limit_is_per_client(limit))
        numbers.limit = numbers.burst = limit_bounded(limit, client->quota);
    return numbers;
}

static bool differ(struct limit_numbers a, struct limit_numbers b)
{
    return a.limit != b.limit || a.burst != b.burst || a.variant != b.variant;
}

static bool is_different(const struct configured_client *client, const struct limit *limit)
{
    return differ(client->client_limits.numbers[limit->index], numbers_by_quota(client, limit));
}

bool client_has_limits(const void *field)
{
    const struct configured_client *client = field;
    for (unsigned i = 0; client->client_limits.numbers && i < client->policy->limit_count; i++)
        if (is_different(client, &client->policy->limits[i]))
            return true;
    return false;
}

/* Reads limit, period and burst as in the table's `section`. `numbers` holds the defaults. */
static void read_numbers(struct loading *l, const char *section, const struct node *node,
                         const struct limit *limit, struct limit_numbers *numbers)
{
    struct limit written = {.script = limit->script};
    const struct node *burst = node_find(node, "burst"), *period = node_find(node, "period");

    options_read(l, node, section, &written);
    if (burst && !limit_has_burst(limit))
        mistake_of_key(l, burst, "%s has no burst; remove it",
                       limit->script ? limit->script : "the limit");
    bool burst_is_limit = !limit_has_burst(limit) || numbers->burst == numbers->limit;
    if (written.limit)
        numbers->limit = written.limit;
    if (written.burst)
        numbers->burst = written.burst;
    else if (burst_is_limit)
        numbers->burst = numbers->limit;
    if (period && written.period_us)
        numbers->variant = limit_variant(l, period, limit, &written);
    limit_check_numbers(l, node, numbers->variant ? numbers->variant : limit, numbers);
}

/* Reads a map of limits by name into `numbers`, which is indexed by limit. */
static void read_all_numbers(struct loading *l, const char *section, const struct node *map,
                             struct limit_numbers *numbers)
{
    for (const struct node *child = map->first; child; child = child->next) {
        struct limit *limit = limit_named(l, child, true);
        if (!limit)
            continue;
        if (expect_map(l, child, "a map with limit, period and burst"))
            read_numbers(l, section, child, limit, &numbers[limit->index]);
        if (!limit_is_per_client(limit)) /* a shared counter, with different numbers per client */
            limit->lease_units = 0;
    }
}

/* `defaults`: the numbers without these. */
static void print_numbers(const struct printer *names, const struct limit *limit,
                          struct limit_numbers numbers, struct limit_numbers defaults)
{
    struct printer key = *names, below = printer_below(names);

    print_key(&key, slice_of(limit->name));
    fprintf(names->out, "\n%*slimit: %lld\n", (int)below.indent, "", (long long)numbers.limit);
    if (numbers.variant != defaults.variant) {
        char bytes[32];
        struct text period = text_over(bytes, sizeof bytes);
        limit_period_write(&period, numbers.variant ? numbers.variant : limit);
        fprintf(names->out, "%*speriod: %.*s\n", (int)below.indent, "", (int)period.n, bytes);
    }
    if (limit_has_burst(limit))
        fprintf(names->out, "%*sburst: %lld\n", (int)below.indent, "", (long long)numbers.burst);
}

static void read_client_limits(struct loading *l, const struct option *option,
                               const struct node *node, void *field)
{
    struct configured_client *client = field;

    (void)option;
    client->limits = expect_map(l, node, "a map of limits by name") ? node : NULL;
}

static void print_client_limits(const struct printer *printer, const void *field)
{
    const struct configured_client *client = field;
    struct printer names = printer_below(printer);

    fputc('\n', printer->out);
    for (unsigned i = 0; i < client->policy->limit_count; i++) {
        const struct limit *limit = &client->policy->limits[i];
        if (is_different(client, limit))
            print_numbers(&names, limit, client->client_limits.numbers[i],
                          numbers_by_quota(client, limit));
    }
}

const struct option_type type_client_limits = {"map by name", read_client_limits,
                                               print_client_limits, true, 0};

static void work_out_numbers(struct loading *l, struct configured_client *client,
                             const struct node *node)
{
    const struct policy *policy = l->policy;
    bool any = client->limits && client->limits->count;
    struct limit_numbers *numbers;

    /* shared if the client has no numbers of its own */
    if (client->client_limits.plan)
        client->client_limits.numbers = client->client_limits.plan->numbers;
    if (!any && client->quota <= 0)
        return;
    if (any && (client->quota == 0 || client->quota == -1))
        mistake_of_key(l, client->limits,
                       "no limits apply to a client with quota: %s; remove one of the two",
                       client->quota ? "unlimited" : "0");
    client->client_limits.numbers = numbers =
        arena_zeroed(l->arena, policy->limit_count, sizeof *numbers);
    for (unsigned i = 0; i < policy->limit_count; i++) {
        numbers[i] = numbers_by_quota(client, &policy->limits[i]);
        if (client->quota > 0 && limit_is_per_client(&policy->limits[i]))
            limit_check_numbers(
                l, node, numbers[i].variant ? numbers[i].variant : &policy->limits[i], &numbers[i]);
    }
    if (any)
        read_all_numbers(l, "clients.ID.limits.NAME", client->limits, numbers);
}

/* --- plans --- */

static void read_plan_limits(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct plan *plan = field;

    (void)option;
    if (!expect_map(l, node, "a map of limits by name") || node->count == 0)
        return;
    plan->numbers = arena_zeroed(l->arena, l->policy->limit_count, sizeof *plan->numbers);
    for (unsigned i = 0; i < l->policy->limit_count; i++)
        plan->numbers[i] = limit_numbers_of(&l->policy->limits[i]);
    read_all_numbers(l, "plans.NAME.limits.NAME", node, plan->numbers);
}

static void read_plans(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    struct policy *policy = field;

    if (!expect_entries(l, option, node, "a map of plans by name", "plans"))
        return;
    policy->plans = arena_zeroed(l->arena, node->count, sizeof *policy->plans);
    for (const struct node *child = node->first; child; child = child->next) {
        struct plan *plan = &policy->plans[policy->plan_count++];
        plan->policy = policy;
        plan->name = arena_text(l->arena, child->key);
        plan->position = child->key_position;
        (void)name_is_good(l, child);
        if (expect_map(l, child, "a map with limits"))
            options_read(l, child, "plans.NAME", plan);
    }
}

bool plan_has_limits(const void *field)
{
    const struct plan *plan = field;

    for (unsigned i = 0; plan->numbers && i < plan->policy->limit_count; i++)
        if (differ(plan->numbers[i], limit_numbers_of(&plan->policy->limits[i])))
            return true;
    return false;
}

static void print_plan_limits(const struct printer *printer, const void *field)
{
    const struct plan *plan = field;
    struct printer names = printer_below(printer);

    fputc('\n', printer->out);
    for (unsigned i = 0; i < plan->policy->limit_count; i++) {
        const struct limit *limit = &plan->policy->limits[i];
        if (differ(plan->numbers[i], limit_numbers_of(limit)))
            print_numbers(&names, limit, plan->numbers[i], limit_numbers_of(limit));
    }
}

PRINT_MAP(print_plans, policy, plans, plan_count, "plans.NAME")

const struct option_type type_plans = {"map by name", read_plans, print_plans, true, 0};
const struct option_type type_plan_limits = {"map by name", read_plan_limits, print_plan_limits,
                                             true, 0};

static void read_plan(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    struct configured_client *client = field;

    (void)option;
    if (node->null || !expect_scalar(l, node, "a plan's name"))
        return;
    int index = policy_index(l, node, false, plan_at, "plan");
    if (index >= 0)
        client->client_limits.plan = &l->policy->plans[index];
}

static void print_plan(const struct printer *printer, const void *field)
{
    print_scalar_value(
        printer, slice_of(((const struct configured_client *)field)->client_limits.plan->name));
}

const struct option_type type_plan = {"name", read_plan, print_plan, true, 0};

/* --- one client --- */

bool client_name_read(struct loading *l, const struct node *node, bool is_key,
                      struct client_pattern *pattern)
{
    struct slice text = is_key ? node->key : node->text, address = {text.p + 3, text.n - 3};
    struct identity identity;
    const char *why;
    bool good;

    *pattern = (struct client_pattern){.identity = SLICE_NONE};
    if (slice_equal(text, SLICE("ip:unix")))
        good = pattern->unix_peers = true;
    else if (slice_starts_with(text, SLICE("ip:")))
        good = ip_range_parse(address, &pattern->range, &why);
    else if ((good = identity_parse(&l->policy->identity, text, &identity, &why)))
        pattern->identity =
            (struct slice){arena_text(l->arena, identity_text(&identity)), identity.size};
    if (!good)
        (is_key ? mistake_of_key : mistake)(l, node, "%s is not a client: %s", QUOTE(text), why);
    return good;
}

char *client_printed_name(struct loading *l, struct slice text,
                          const struct client_pattern *pattern)
{
    char bytes[IDENTITY_TEXT_MAX];
    struct text name = text_over(bytes, sizeof bytes);

    if (pattern->identity.n)
        identity_write_name(&name, pattern->identity);
    return arena_text(l->arena, pattern->identity.n ? text_slice(&name) : text);
}

static void enter_client(struct loading *l, const struct node *node,
                         const struct client_pattern *pattern)
{
    struct clients *clients = l->policy->clients;
    const struct configured_client *earlier =
        pattern->identity.n   ? clients_enter_id(clients, pattern->identity)
        : pattern->unix_peers ? clients_enter_unix(clients)
                              : clients_enter_range(clients, &pattern->range);

    if (earlier)
        mistake_of_key(l, node, "%s is the same %s as %s at line %u", QUOTE(node->key),
                       pattern->identity.n ? "client" : "address",
                       QUOTE(slice_of(earlier->client_limits.name)),
                       earlier->client_limits.position.line);
}

static void read_client(struct loading *l, const struct node *node)
{
    struct client_pattern pattern;

    if (node->broken || !client_name_read(l, node, true, &pattern) ||
        !expect_map(l, node, "a map with plan, quota or limits, such as { quota: 30 }"))
        return;
    struct configured_client *client = clients_add(l->policy->clients);
    client->policy = l->policy;
    client->client_limits.name = client_printed_name(l, node->key, &pattern);
    client->client_limits.position = node->key_position;
    options_read(l, node, "clients.ID", client);
    client->client_limits.quota = client->quota == 0    ? QUOTA_PROHIBITED
                                  : client->quota == -1 ? QUOTA_UNLIMITED
                                                        : QUOTA_AS_WRITTEN;
    if (client->blocked) {
        client->client_limits.blocked = l->policy->blocks_clients = true;
        client->client_limits.quota = QUOTA_PROHIBITED;
        if (client->quota != QUOTA_NOT_WRITTEN || client->client_limits.plan ||
            (client->limits && client->limits->count))
            mistake_of_key(l, node,
                           "no limits apply to a blocked client; remove plan, quota and limits");
    }
    enter_client(l, node, &pattern);
    work_out_numbers(l, client, node);
}

static void read_clients(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct policy *policy = field;
    bool good = expect_entries(l, option, node, "a map of clients by id or address", "clients");

    policy->clients = clients_new(l->arena, good ? node->count : 0);
    for (const struct node *child = good ? node->first : NULL; child; child = child->next)
        read_client(l, child);
}

/* --- printing --- */

static void print_clients(const struct printer *printer, const void *field)
{
    const struct policy *policy = field;
    struct printer names = printer_below(printer);

    fputs(clients_count(policy->clients) ? "\n" : " {}\n", printer->out);
    for (unsigned i = 0; i < clients_count(policy->clients); i++) {
        const struct configured_client *client = clients_at(policy->clients, i);
        print_entry(&names, slice_of(client->client_limits.name), "clients.ID", client);
    }
}

const struct option_type type_clients = {"map by id", read_clients, print_clients, true, 0};
