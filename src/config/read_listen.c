/* read_listen.c - sections workers, listen and decisions. */
#include <sched.h>
#include <unistd.h>

#include "config/lint.h"
#include "config/sections.h"
#include "http2/session.h"
#include "net/tls.h"

/* ---- listen ---------------------------------------------------------------------------------- */

/* Returns the number of processors available to this process. */
static unsigned processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return (unsigned)CPU_COUNT(&set);
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}

static void read_workers(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    unsigned *workers = field;

    if (node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("auto"))) {
        unsigned most = (unsigned)option->high;
        *workers = processors() < most ? processors() : most;
    } else {
        type_count.read(l, option, node, field);
    }
}

static void print_workers(const struct printer *printer, const struct option *option,
                          const void *field)
{
    type_count.print(printer, option, field);
}

const struct option_type type_workers = {"number", read_workers, print_workers, false,
                                         sizeof(unsigned)};

/* --- listen --- */

static void load_certificate(struct loading *l, const struct node *node, struct tls_server *tls,
                             const struct certificate_files *files)
{
    char why[TLS_WHY_MAX];
    const char *path = neighbour_path(l, slice_of(files->certificate));
    enum tls_fault fault = tls_server_add(tls, path, neighbour_path(l, slice_of(files->key)), why);
    bool of_key = fault == TLS_BAD_KEY;
    struct tls_dates dates;

    if (fault == TLS_GOOD && tls_read_dates(path, &dates))
        certificate_check(l, node_find(node, "certificate"), &dates);

    if (fault != TLS_GOOD)
        mistake(l, node_find(node, of_key ? "key" : "certificate"), "%s %s",
                QUOTE(slice_of(of_key ? files->key : files->certificate)), why);
}

static void read_certificate(struct loading *l, const struct node *node,
                             struct listen_settings *listen)
{
    struct certificate_files *files = &listen->certificates[listen->certificate_count++];

    if (node->broken || !expect_map(l, node, "a map with certificate and key"))
        return;
    options_read(l, node, "listen[].tls", files);
    if (files->certificate && files->key)
        load_certificate(l, node, listen->tls, files);
}

/* Reads a map, or a list of maps. */
static void read_listen_tls(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct listen_settings *listen = field;
    unsigned count = node->kind == NODE_MAP ? 1 : list_count(node);

    if (node->null)
        return;
    if (node->kind == NODE_SCALAR || count < 1 || count > (unsigned)option->high) {
        mistake(l, node, "expected a map with certificate and key, or a list of 1 to %d of them",
                (int)option->high);
        return;
    }
    listen->certificates = arena_zeroed(l->arena, count, sizeof *listen->certificates);
    listen->tls = tls_server_new();
    if (!listen->tls)
        mistake(l, node, "no memory");
    else if (node->kind == NODE_MAP)
        read_certificate(l, node, listen);
    else
        for (const struct node *item = list_first(node); item; item = list_next(node, item))
            read_certificate(l, item, listen);
}

static void print_certificate(FILE *out, const void *field, unsigned index)
{
    const struct certificate_files *files =
        &((const struct listen_settings *)field)->certificates[index];

    fputs("{ certificate: ", out);
    print_scalar(out, slice_of(files->certificate));
    fputs(", key: ", out);
    print_scalar(out, slice_of(files->key));
    fputs(" }", out);
}

static void print_listen_tls(const struct printer *printer, const struct option *option,
                             const void *field)
{
    (void)option;
    print_items(printer, ((const struct listen_settings *)field)->certificate_count,
                print_certificate, field);
}

const struct option_type type_listen_tls = {"map, or list of maps", read_listen_tls,
                                            print_listen_tls, true, 0};

/* Reads "host:port", or a map with `address`. */
static void read_listener(struct loading *l, const struct option *option, const struct node *item,
                          struct listen_settings *listen)
{

    if (item->broken)
        return;
    listen->http2 = true;
    if (item->kind == NODE_MAP) {
        options_read(l, item, "listen[]", listen);
    } else if (expect_scalar(l, item, "an address, or a map with one"))
        type_address.read(l, option, item, &listen->address);
    if (listen->tls && listen->http2)
        tls_server_offer_http2(listen->tls);
}

static void refuse_second(struct loading *l, const struct node *item,
                          const struct listen_settings *listen, unsigned count)
{
    const struct address *last = &listen[count].address;
    char text[ADDRESS_TEXT_MAX];

    for (unsigned i = 0; i < count && last->length; i++)
        if (address_same(&listen[i].address, last) &&
            (address_is_unix(last) || last->v4.sin_port != 0)) {
            mistake(l, item, "%s is listed twice", address_format(last, text));
            return;
        }
}

static void read_listen(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    struct policy *policy = field;
    unsigned count = list_count(node);

    if (node->kind == NODE_MAP)
        mistake(l, node, "expected a list of addresses");
    else if (count < (unsigned)option->low || count > (unsigned)option->high)
        mistake(l, node, "has %u addresses; expected 1 to %d", count, (int)option->high);
    else
        policy->listen = arena_zeroed(l->arena, count, sizeof *policy->listen);
    if (!policy->listen)
        return;
    for (const struct node *item = list_first(node); item; item = list_next(node, item)) {
        read_listener(l, option, item, &policy->listen[policy->listen_count]);
        refuse_second(l, item, policy->listen, policy->listen_count);
        policy->listen_count++;
    }
}

/* Prints a map only if there is more than an address. */
static void print_listener(FILE *out, const void *listeners, unsigned index)
{
    const struct listen_settings *listen = (const struct listen_settings *)listeners + index;
    if (!listen->proxy_protocol && !listen->certificate_count && listen->http2) {
        print_address(out, &listen->address);
        return;
    }
    fputs("{ address: ", out);
    print_address(out, &listen->address);
    if (listen->proxy_protocol)
        fputs(", proxy_protocol: true", out);
    if (listen->certificate_count) {
        fputs(", tls: ", out);
        print_list(out, listen->certificate_count, print_certificate, listen);
    }
    if (!listen->http2)
        fputs(", http2: false", out);
    fputs(" }", out);
}

static void print_listen(const struct printer *printer, const struct option *option,
                         const void *field)
{
    const struct policy *policy = field;
    unsigned count = 0;

    (void)option;
    while (count < policy->listen_count && !policy->listen[count].decides)
        count++;
    print_items(printer, count, print_listener, policy->listen);
}

const struct option_type type_listen = {"list of addresses", read_listen, print_listen, false, 0};

/* ---- decisions: completes the section, and adds its listener to those of clients ------------- */

bool has_decisions(const void *policy)
{
    return ((const struct policy *)policy)->decisions.address.length > 0;
}

/* The default: proxies on this machine, and identity.trusted_proxies. */
static void trust_by_default(struct policy *policy)
{
    static const char *const loopback[] = {"127.0.0.0/8", "::1"};
    const struct identity_settings *proxies = &policy->identity;
    struct identity_settings *trusted = &policy->decisions.peers;
    const char *why;

    if (trusted->trusted_count || trusted->trust_unix)
        return;
    trusted->trusted = arena_zeroed(policy->arena, COUNT_OF(loopback) + proxies->trusted_count,
                                    sizeof *trusted->trusted);
    for (unsigned i = 0; i < COUNT_OF(loopback); i++)
        trusted->trusted_count +=
            ip_range_parse(slice_of(loopback[i]), &trusted->trusted[trusted->trusted_count], &why);
    for (unsigned i = 0; i < proxies->trusted_count; i++)
        trusted->trusted[trusted->trusted_count++] = proxies->trusted[i];
    trusted->trust_unix = true;
}

static void add_listener(struct loading *l, const struct node *node)
{
    struct policy *policy = l->policy;
    struct listen_settings *all =
        arena_zeroed(policy->arena, policy->listen_count + 1, sizeof *all);

    for (unsigned i = 0; i < policy->listen_count; i++) {
        all[i] = policy->listen[i];
        if (address_same(&all[i].address, &policy->decisions.address) &&
            (address_is_unix(&all[i].address) || all[i].address.v4.sin_port != 0))
            mistake(l, node, "is an address of listen as well; use another one");
    }
    all[policy->listen_count] =
        (struct listen_settings){.address = policy->decisions.address, .decides = true};
    policy->listen = all;
    policy->listen_count++;
}

void decisions_finish(struct loading *l)
{
    const struct node *section = node_find(l->root, "decisions");
    const struct node *listen = section ? node_find(section, "listen") : NULL;

    if (section && section->kind == NODE_MAP && !section->broken && !listen)
        mistake(l, section,
                "listen is missing: the address for other proxies, such as 127.0.0.1:9190");
    if (!has_decisions(l->policy))
        return;
    trust_by_default(l->policy);
    add_listener(l, listen);
}
