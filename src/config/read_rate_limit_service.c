/* read_rate_limit_service.c - section rate_limit_service: its listeners, its domains in the policy
 * and in files of envoyproxy/ratelimit, and their limits. read_descriptors.c reads the entries. */
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdlib.h>

#include "config/sections.h"
#include "policy/shipped_limiter.h"
#include "service/call_reader.h"

enum { DOMAIN_FILE_MAX = 16 << 20 }; /* bytes */

/* ---- limits ---------------------------------------------------------------------------------- */

enum { RATE_LIMIT_NAME_MAX = 255 }; /* bytes; more are cut */

/* Labels stand in quoted strings of response headers (RFC 9651 section 3.3.3). */
static char *label_of(struct loading *l, struct slice name)
{
    char *label = arena_text(l->arena, name);

    for (char *c = label; *c; c++)
        if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
            *c = '_';
    return label;
}

struct limit *rate_limit_new(struct loading *l, struct slice name, enum rate_limit_unit unit)
{
    struct limit *limit = arena_zeroed(l->arena, 1, sizeof *limit);

    while (name.n > RATE_LIMIT_NAME_MAX ||
           (name.n == RATE_LIMIT_NAME_MAX && ((unsigned char)name.p[name.n] & 0xc0) == 0x80))
        name.n--;
    *limit = l->policy->rate_limit_service.units[unit];
    limit->name = arena_text(l->arena, name);
    limit->label = label_of(l, name);
    return limit;
}

void rate_limit_add(struct loading *l, struct limit *limit)
{
    struct rate_limit_service *service = &l->policy->rate_limit_service;

    service->rate_limits = arena_grown(l->arena, service->rate_limits, service->rate_limit_count,
                                       sizeof *service->rate_limits);
    service->rate_limits[service->rate_limit_count++] = limit;
}

/* The hidden limits of the driver, one per unit. Windows are multiples of the unit since 1970. */
static void make_units(struct loading *l)
{
    static const char yaml[] = "{ script: fixed_window, limit: 1, period: 1s, align: clock }";
    const struct policy *policy = l->policy;
    struct limit *units = l->policy->rate_limit_service.units, made = {.name = NULL};

    limit_read(l, tree_read(&l->scratch, SLICE(yaml), l->report), &made);
    for (unsigned i = UNIT_SECOND; i < UNIT_COUNT; i++) {
        units[i] = made;
        units[i].index = units[i].base = policy->limit_count + policy->variant_count + i - 1;
        units[i].period_us = rate_limit_unit_us((enum rate_limit_unit)i);
        units[i].in_descriptors = true;
        units[i].rate_unit = i;
    }
}

/* ---- names of limits: keys and values of several entries may join to the same one ------------ */

struct named {
    struct limit *limit;
    unsigned order;
};

static int by_name(const void *left, const void *right)
{
    const struct named *a = left, *b = right;
    int order = strcmp(a->limit->name, b->limit->name);

    return order ? order : (a->order > b->order) - (a->order < b->order);
}

static void number_limit(struct loading *l, struct limit *limit, unsigned number)
{
    char bytes[RATE_LIMIT_NAME_MAX + 16];
    struct text name = text_over(bytes, sizeof bytes);

    text_printf(&name, "%s#%u", limit->name, number);
    limit->name = arena_text(l->arena, text_slice(&name));
    limit->label = label_of(l, text_slice(&name));
}

/* As with rules, the second limit of a name gets "#2". */
static void number_limits(struct loading *l)
{
    const struct rate_limit_service *service = &l->policy->rate_limit_service;
    struct named *all = arena_zeroed(&l->scratch, service->rate_limit_count, sizeof *all);
    unsigned first = 0;

    for (unsigned i = 0; i < service->rate_limit_count; i++)
        all[i] = (struct named){service->rate_limits[i], i};
    if (service->rate_limit_count)
        qsort(all, service->rate_limit_count, sizeof *all, by_name);
    const char *name = "";
    for (unsigned i = 0; i < service->rate_limit_count; i++)
        if (strcmp(all[i].limit->name, name) != 0) {
            name = all[i].limit->name;
            first = i;
        } else
            number_limit(l, all[i].limit, i - first + 1);
}

/* ---- domains --------------------------------------------------------------------------------- */

/* A domain before it is read. */
struct domain_source {
    const struct node *node;  /* in the policy; NULL: of `files` */
    const struct node *names; /* the node that names the file */
    const char *path;         /* NULL: the policy itself */
};

struct domain_sources {
    struct domain_source *all;
    unsigned count;
};

/* Sets the limits that descriptors of the domain state themselves. */
static void make_stated(struct loading *l, struct rate_limit_domain *domain)
{
    char bytes[RATE_LIMIT_DOMAIN_MAX + 16];
    struct text name = text_over(bytes, sizeof bytes);

    text_printf(&name, "%s.(stated)", domain->name);
    for (unsigned i = UNIT_SECOND; i < UNIT_COUNT; i++)
        domain->stated[i] = *rate_limit_new(l, text_slice(&name), (enum rate_limit_unit)i);
}

/* Adds a domain. Returns NULL after reporting that its name is not valid. */
static struct rate_limit_domain *add_domain(struct loading *l, const struct node *node,
                                            struct slice name)
{
    struct rate_limit_service *service = &l->policy->rate_limit_service;

    if (name.n < 1 || name.n > RATE_LIMIT_DOMAIN_MAX) {
        mistake(l, node, "the name of the domain is %zu bytes long; expected 1 to %d", name.n,
                RATE_LIMIT_DOMAIN_MAX);
        return NULL;
    }
    for (unsigned i = 0; i < service->domain_count; i++)
        if (slice_equal(slice_of(service->domains[i].name), name)) {
            const struct rate_limit_domain *other = &service->domains[i];
            mistake(l, node, "domain %s is already defined in %s, line %u", QUOTE(name),
                    other->position_file ? other->position_file : l->report->file,
                    other->position.line);
            return NULL;
        }
    struct rate_limit_domain *domain = &service->domains[service->domain_count++];
    domain->name = arena_text(l->arena, name);
    domain->charge = service->charge;
    domain->position = node->position;
    domain->position_file = l->report->current;
    make_stated(l, domain);
    return domain;
}

static void refuse_keys_of_file(struct loading *l, const struct node *root)
{
    static const char *const keys[] = {"domain", "descriptors", NULL};
    struct suggestion meant;

    for (const struct node *child = root->first; child; child = child->next)
        if (index_of(child->key, word_at, keys, &meant) < 0)
            mistake_of_key(l, child, "unknown key %s; expected domain or descriptors%s",
                           QUOTE(child->key), DID_YOU_MEAN(&meant));
}

/* Reads the domain's name in a file; `expected`: of the policy, or p is NULL. Returns the name's
 * node, or NULL after reporting an error. */
static const struct node *name_in_file(struct loading *l, const struct node *root,
                                       struct slice expected)
{
    const struct node *name = node_find(root, "domain");

    if (!name)
        mistake(l, root, "domain is missing: the domain of the descriptors");
    else if (!name->broken && name->kind != NODE_SCALAR)
        mistake(l, name, "expected the name of a domain");
    else if (!name->broken && expected.p && !slice_equal(name->text, expected))
        mistake(l, name, "is domain %s, but the policy names this file for domain %s",
                QUOTE(name->text), QUOTE(expected));
    else if (!name->broken)
        return name;
    return NULL;
}

/* Reads the domain in a file. `domain`: of the policy; NULL: the file names it. */
static void read_tree(struct loading *l, const struct node *root, struct rate_limit_domain *domain)
{
    if (!expect_map(l, root, "a map with domain and descriptors"))
        return;
    refuse_keys_of_file(l, root);
    const struct node *name = name_in_file(l, root, slice_of(domain ? domain->name : NULL));
    const struct node *descriptors = node_find(root, "descriptors");
    if (name && !domain)
        domain = add_domain(l, name, name->text);
    if (name && domain && descriptors && !descriptors->broken)
        entries_read(l, descriptors, domain, NULL, &domain->top);
}

static void read_domain_file(struct loading *l, const struct domain_source *source,
                             struct rate_limit_domain *domain)
{
    struct slice bytes;

    if (!named_file_read(l, source->names, &l->scratch, source->path, DOMAIN_FILE_MAX, &bytes))
        return;
    l->report->current = source->path;
    read_tree(l, tree_read(&l->scratch, bytes, l->report), domain);
    l->report->current = NULL;
}

static void read_domain(struct loading *l, const struct domain_source *source)
{
    const struct node *node = source->node;
    const struct node *file = node_find(node, "file"), *below = node_find(node, "descriptors");
    struct rate_limit_domain *domain = add_domain(l, node, node->key);

    if (!domain || !expect_map(l, node, "a map with descriptors or file"))
        return;
    options_read(l, node, "rate_limit_service.domains.NAME", domain);
    if (file && below)
        mistake_of_key(l, below, "the descriptors are in the file; remove one of the two");
    else if (below && !below->broken)
        entries_read(l, below, domain, NULL, &domain->top);
    else if (source->path)
        read_domain_file(l, source, domain);
}

/* ---- files ----------------------------------------------------------------------------------- */

static void add_source(struct loading *l, struct domain_sources *sources,
                       struct domain_source source)
{
    sources->all = arena_grown(&l->scratch, sources->all, sources->count, sizeof *sources->all);
    sources->all[sources->count++] = source;
}

static char *path_for_report(struct loading *l, const char *path)
{
    return arena_text(l->arena, slice_of(path));
}

/* The directory that glob() could not read; glob() passes no context to its callback. */
static _Thread_local struct {
    char path[PATH_MAX];
    int error;
} unreadable;

static int note_unreadable(const char *path, int error)
{
    snprintf(unreadable.path, sizeof unreadable.path, "%s", path);
    unreadable.error = error;
    return 1;
}

static void refuse_directory(struct loading *l, const struct node *item)
{
    mistake(l, item, "%s: directory %s cannot be read: %s; %s", QUOTE(item->text), unreadable.path,
            strerror(unreadable.error),
            unreadable.error == ENOENT ? "create it, or correct the path"
                                       : "weir needs permission to list it");
}

/* Adds the files that a pattern of `files` matches. */
static void add_files(struct loading *l, const struct node *item, struct domain_sources *sources)
{
    glob_t found;

    if (!expect_scalar(l, item, "a path such as ratelimit/*.yaml"))
        return;
    int result = glob(neighbour_path(l, item->text), 0, note_unreadable, &found);
    if (result == GLOB_NOSPACE)
        mistake(l, item, "no memory");
    else if (result == GLOB_ABORTED)
        refuse_directory(l, item);
    else if (result != 0)
        mistake(l, item, "%s matches no file", QUOTE(item->text));
    for (size_t i = 0; result == 0 && i < found.gl_pathc; i++)
        add_source(l, sources,
                   (struct domain_source){NULL, item, path_for_report(l, found.gl_pathv[i])});
    globfree(&found);
}

static void find_sources(struct loading *l, const struct node *section,
                         struct domain_sources *sources)
{
    const struct node *domains = node_find(section, "domains"),
                      *files = node_find(section, "files");

    for (const struct node *node = domains && domains->kind == NODE_MAP ? domains->first : NULL;
         node; node = node->next) {
        const struct node *file = node->kind == NODE_MAP ? node_find(node, "file") : NULL;
        bool named = file && !file->broken && file->kind == NODE_SCALAR && file->text.n;
        add_source(l, sources,
                   (struct domain_source){node, file,
                                          named ? path_for_report(l, neighbour_path(l, file->text))
                                                : NULL});
    }
    if (files && !files->broken && files->kind != NODE_MAP)
        EACH_ITEM (item, files)
            add_files(l, item, sources);
}

/* ---- the section ----------------------------------------------------------------------------- */

static void read_domains_later(struct loading *l, const struct option *option,
                               const struct node *node, void *field)
{
    (void)field;
    (void)expect_entries(l, option, node, "a map of domains by name", "domains");
}

PRINT_MAP(print_domains, rate_limit_service, domains, domain_count,
          "rate_limit_service.domains.NAME")

/* service_finish() reads the domains, since they use limits. */
const struct option_type type_rate_limit_domains = {"map by name", read_domains_later,
                                                    print_domains, true, 0};

static void read_files_later(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    (void)field;
    (void)expect_items(l, option, node, "paths");
}

/* The domains of files are printed among the others. */
const struct option_type type_rate_limit_files = {"list of paths", read_files_later, NULL, true, 0};

static void read_service_listen(struct loading *l, const struct option *option,
                                const struct node *node, void *field)
{
    struct rate_limit_service *service = field;

    listeners_read(l, option, node, &service->listen, &service->listen_count);
    const struct node *item = list_first(node);
    for (unsigned i = 0; i < service->listen_count; i++, item = list_next(node, item)) {
        service->listen[i].serves_limits = true;
        if (service->listen[i].proxy_protocol)
            mistake(l, node_find(item, "proxy_protocol"),
                    "is not supported here: callers connect directly");
        if (!service->listen[i].http2 && item->kind == NODE_MAP)
            mistake(l, node_find(item, "http2"), "gRPC needs HTTP/2; remove http2: false");
    }
}

static void print_service_listen(const struct printer *printer, const void *field)
{
    const struct rate_limit_service *service = field;

    listeners_print(printer, service->listen, service->listen_count);
}

const struct option_type type_service_listen = {"list of addresses", read_service_listen,
                                                print_service_listen, false, 0};

static void finish_settings(struct loading *l, const struct node *section)
{
    struct policy *policy = l->policy;
    struct rate_limit_service *service = &policy->rate_limit_service;

    service->has_headers = node_find(section, "headers") != NULL;
    if (!service->has_headers)
        service->headers = policy->headers;
    peers_trust_by_default(policy, &service->peers);
    if (service->is_alone)
        policy->listen_count = 0; /* the default of `listen` */
    const struct node *listen = node_find(section, "listen");
    const struct node *item = list_first(listen);
    for (unsigned i = 0; i < service->listen_count; i++, item = list_next(listen, item)) {
        listener_add(l, item, &service->listen[i]);
        service->listen[i].tls = NULL; /* policy->listen holds the reference */
    }
}

void service_begin(struct loading *l)
{
    struct rate_limit_service *service = &l->policy->rate_limit_service;
    bool is_map = l->root->kind == NODE_MAP;

    service->is_set = is_map && node_find(l->root, "rate_limit_service");
    service->is_alone = service->is_set && !node_find(l->root, "listen") &&
                        !node_find(l->root, "decisions") && !node_find(l->root, "upstreams");
}

void service_finish(struct loading *l)
{
    struct rate_limit_service *service = &l->policy->rate_limit_service;
    const struct node *section = node_find(l->root, "rate_limit_service");
    struct domain_sources sources = {NULL, 0};

    if (!section || section->broken || section->kind != NODE_MAP)
        return;
    if (!service_has_protobuf())
        mistake(
            l, section,
            "this weir was built without protobuf-c, so it cannot read calls; build it with the "
            "Debian packages libprotobuf-c-dev and protobuf-c-compiler");
    finish_settings(l, section);
    service->hash_key = hash_key_random();
    make_units(l);
    find_sources(l, section, &sources);
    if (!node_find(section, "domains") && !node_find(section, "files"))
        mistake(l, section, "domains is missing: the domains and their descriptors; or files");
    service->domains = arena_zeroed(l->arena, sources.count, sizeof *service->domains);
    for (unsigned i = 0; i < sources.count; i++)
        if (sources.all[i].node)
            read_domain(l, &sources.all[i]);
        else
            read_domain_file(l, &sources.all[i], NULL);
    rate_limit_domains_index(service, l->arena);
    number_limits(l);
}
