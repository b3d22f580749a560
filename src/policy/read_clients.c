/* read_clients.c - clients: what is different for one of them. */
#include "policy/parts.h"
#include "policy/types.h"

bool client_has_quota(const void *client)
{
    return ((const struct client *)client)->quota != QUOTA_NOT_WRITTEN;
}

/* --- quota --- */

static void read_quota(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct client *client = field;

    client->quota = QUOTA_NOT_WRITTEN;
    if (node->null)
        return;
    if (node->kind == NODE_SCALAR &&
        (slice_equal(node->text, SLICE("unlimited")) || slice_equal(node->text, SLICE("-1"))))
        client->quota = -1;
    else if (node->kind == NODE_SCALAR && node->text.n && memchr("0123456789", node->text.p[0], 10))
        type_number.read(l, option, node, &client->quota);
    else
        mistake(l, node, "%s is no quota; expected 0, a number or unlimited",
                node->kind == NODE_SCALAR ? QUOTE(node->text) : "this");
}

static void print_quota(const struct printer *printer, const struct option *option, const void *field)
{
    const struct client *client = field;

    (void)option;
    if (client->quota < 0)
        fputs(" unlimited\n", printer->out);
    else
        fprintf(printer->out, " %lld\n", (long long)client->quota);
}

const struct option_type type_quota = {"quota", read_quota, print_quota, true};

/* --- numbers --- */

/* The limit as it holds for a client of whom only the quota is known. */
static struct limit_numbers numbers_by_quota(const struct client *client, const struct limit *limit)
{
    if (client->quota > 0 && limit_is_per_client(limit))
        return (struct limit_numbers){client->quota, client->quota};
    return (struct limit_numbers){limit->limit, limit->burst};
}

static bool is_different(const struct client *client, const struct limit *limit)
{
    struct limit_numbers plain = numbers_by_quota(client, limit);
    const struct limit_numbers *numbers = &client->terms.numbers[limit->index];
    return plain.limit != numbers->limit || plain.burst != numbers->burst;
}

bool client_has_limits(const void *field)
{
    const struct client *client = field;
    for (unsigned i = 0; client->terms.numbers && i < client->policy->limit_count; i++)
        if (is_different(client, &client->policy->limits[i]))
            return true;
    return false;
}

static void read_numbers(struct loading *l, const struct node *node, const struct limit *limit,
                         struct limit_numbers *numbers)
{
    struct limit_numbers written = {0, 0};
    const struct node *burst = node_find(node, "burst");

    options_read(l, node, "clients.ID.limits.NAME", &written);
    if (burst && !limit_has_burst(limit))
        mistake_of_key(l, burst, "%s has no burst; remove it", limit->script ? limit->script : "the limit");
    bool burst_is_limit = !limit_has_burst(limit) || numbers->burst == numbers->limit;
    if (written.limit)
        numbers->limit = written.limit;
    if (written.burst)
        numbers->burst = written.burst;
    else if (burst_is_limit)
        numbers->burst = numbers->limit;
    limit_check_numbers(l, node, limit, numbers);
}

static void read_client_limits(struct loading *l, const struct option *option, const struct node *node,
                               void *field)
{
    struct client *client = field;

    (void)option;
    client->limits = expect_map(l, node, "a map of limits by name") ? node : NULL;
}

static void print_client_limits(const struct printer *printer, const struct option *option, const void *field)
{
    const struct client *client = field;
    struct printer names = printer_below(printer), below = printer_below(&names);

    (void)option;
    fputc('\n', printer->out);
    for (unsigned i = 0; i < client->policy->limit_count; i++) {
        const struct limit *limit = &client->policy->limits[i];
        if (!is_different(client, limit))
            continue;
        print_key(&names, slice_of(limit->name));
        fprintf(names.out, "\n%*slimit: %lld\n", (int)below.indent, "",
                (long long)client->terms.numbers[i].limit);
        if (limit_has_burst(limit))
            fprintf(names.out, "%*sburst: %lld\n", (int)below.indent, "",
                    (long long)client->terms.numbers[i].burst);
    }
}

const struct option_type type_client_limits = {"map by name", read_client_limits, print_client_limits, true};

static void work_out_numbers(struct loading *l, struct client *client, const struct node *node)
{
    const struct policy *policy = l->policy;
    bool any = client->limits && client->limits->count;

    if (!any && client->quota <= 0)
        return;
    if (any && (client->quota == 0 || client->quota == -1))
        mistake_of_key(l, client->limits, "a client with quota: %s meets no limits; remove one of the two",
                       client->quota ? "unlimited" : "0");
    client->terms.numbers = pool_zeroed(l->pool, policy->limit_count, sizeof *client->terms.numbers);
    for (unsigned i = 0; i < policy->limit_count; i++) {
        client->terms.numbers[i] = numbers_by_quota(client, &policy->limits[i]);
        if (client->quota > 0 && limit_is_per_client(&policy->limits[i]))
            limit_check_numbers(l, node, &policy->limits[i], &client->terms.numbers[i]);
    }
    for (const struct node *child = any ? client->limits->first : NULL; child; child = child->next) {
        const struct limit *limit = limit_named(policy, child->key);
        if (!limit)
            limit_unknown(l, child, child->key, true);
        else if (!child->broken && expect_map(l, child, "a map with limit and burst"))
            read_numbers(l, child, limit, &client->terms.numbers[limit->index]);
    }
}

/* --- one client --- */

static void enter_client(struct loading *l, const struct node *node)
{
    struct clients *clients = l->policy->clients;
    struct slice name = node->key, address = {name.p + 3, name.n - 3};
    const struct client *earlier = NULL;
    struct ip_range range;
    const char *why;

    if (!slice_starts_with(name, SLICE("ip:"))) {
        earlier = clients_enter_id(clients, name);
    } else if (slice_equal(address, SLICE("unix"))) {
        earlier = clients_enter_unix(clients);
    } else if (ip_range_parse(address, &range, &why)) {
        earlier = clients_enter_range(clients, &range);
    } else {
        mistake_of_key(l, node, "%s: %s", QUOTE(name), why);
    }
    if (earlier)
        mistake_of_key(l, node, "%s is the same address as %s at line %u", QUOTE(name),
                       QUOTE(slice_of(earlier->terms.name)), earlier->terms.place.line);
}

static bool id_is_good(struct loading *l, const struct node *node)
{
    bool good = node->key.n >= 1 && node->key.n <= CLIENT_ID_MAX;
    for (size_t i = 0; i < node->key.n; i++)
        good &= (unsigned char)node->key.p[i] >= 0x20 && node->key.p[i] != 0x7f;
    if (!good)
        mistake_of_key(l, node, "%s is no client's id; expected 1 to %d bytes without control bytes",
                       QUOTE(node->key), CLIENT_ID_MAX);
    return good;
}

static void read_client(struct loading *l, const struct node *node)
{
    if (node->broken || !id_is_good(l, node) || !expect_map(l, node, "a map with quota or limits"))
        return;
    struct client *client = clients_add(l->policy->clients);
    client->policy = l->policy;
    client->terms.name = pool_text(l->pool, node->key);
    client->terms.place = node->key_place;
    options_read(l, node, "clients.ID", client);
    client->terms.quota = client->quota == 0    ? QUOTA_PROHIBITED
                          : client->quota == -1 ? QUOTA_UNLIMITED
                                                : QUOTA_AS_WRITTEN;
    enter_client(l, node);
    work_out_numbers(l, client, node);
}

static void read_clients(struct loading *l, const struct option *option, const struct node *node, void *field)
{
    struct policy *policy = field;
    bool good = expect_map(l, node, "a map of clients by id or address");

    if (good && node->count > (unsigned)option->high) {
        mistake(l, node, "has %u clients; expected at most %d", node->count, (int)option->high);
        good = false;
    }
    policy->clients = clients_new(l->pool, good ? node->count : 0);
    for (const struct node *child = good ? node->first : NULL; child; child = child->next)
        read_client(l, child);
}

/* --- printing --- */

static void print_clients(const struct printer *printer, const struct option *option, const void *field)
{
    const struct policy *policy = field;
    struct printer names = printer_below(printer);

    (void)option;
    fputs(clients_count(policy->clients) ? "\n" : " {}\n", printer->out);
    for (unsigned i = 0; i < clients_count(policy->clients); i++) {
        const struct client *client = clients_at(policy->clients, i);
        print_key(&names, slice_of(client->terms.name));
        fputc('\n', printer->out);
        struct printer below = printer_below(&names);
        options_print(&below, "clients.ID", client);
    }
}

const struct option_type type_clients = {"map by id", read_clients, print_clients, true};
