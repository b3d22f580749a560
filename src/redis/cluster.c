/* cluster.c - see cluster.h. cluster_map.c reads the map; cluster_report.c counts and logs. */
#include "redis/cluster.h"

#include <stdlib.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "redis/cluster_map.h"

enum {
    CLUSTER_MAGIC = 0x434c5553,
    NODE_MAGIC = 0x4e4f4445,
    REDIRECTS_MAX = 8, /* per call */
    PARKED_MAX = 1024, /* calls that wait for a link */
};

/* A server with a link: a master of the map, or the target of a redirection. */
struct cluster_node {
    uint32_t magic;
    struct redis_cluster *cluster;
    struct address address;
    struct redis_link *link;
    bool listed;     /* it is in the map */
    unsigned slots;  /* assigned to it */
    unsigned parked; /* calls that wait for its link */
    LIST_ENTRY(cluster_node) entry;
};
LIST_HEAD(node_list, cluster_node);

/* A call that waits for its node's link, with its arguments. */
struct parked {
    TAILQ_ENTRY(parked) entry;
    struct cluster_node *node;
    struct redis_call *call;
    bool asking;
    int argc;
    size_t size;
    char bytes[];
};
TAILQ_HEAD(parked_list, parked);

struct redis_cluster {
    uint32_t magic;
    struct event_base *base;
    const struct redis_settings *settings;
    struct slice script;
    struct redis_link_watch watch;
    struct redis_cluster_map_reader *reader;
    struct node_list nodes;
    unsigned node_count, ready_count;
    struct cluster_node *of_slot[REDIS_SLOTS]; /* NULL: no known node serves the slot */
    unsigned covered;                          /* assigned slots */
    bool whole;
    struct parked_list parked;
    unsigned parked_count;
    struct event *deadline; /* deadline of the oldest parked call: all have the same timeout */
    /* flushes calls that were passed on outside the caller's loop iteration */
    struct event *resume;
};

/* --- State of the cluster --------------------------------------------------------------------- */

/* Runs after every change of the map or of a link. While a slot or a link is missing, the map is
 * read five times per second. */
static void update_state(struct redis_cluster *c)
{
    const struct cluster_node *node;

    c->whole = c->covered == REDIS_SLOTS;
    c->ready_count = 0;
    for (node = LIST_FIRST(&c->nodes); node; node = LIST_NEXT(node, entry)) {
        c->ready_count += node->link && redis_link_is_ready(node->link);
        c->whole &= !node->listed || (node->link && redis_link_is_ready(node->link));
    }
    redis_cluster_map_reader_hurry(c->reader, !c->whole);
}

bool redis_cluster_is_ready(const struct redis_cluster *c)
{
    return c->ready_count > 0;
}

bool redis_cluster_is_whole(const struct redis_cluster *c)
{
    return c->whole;
}

/* --- Parked calls ----------------------------------------------------------------------------- */

static void arm_deadline(struct redis_cluster *c, const struct parked *first)
{
    uint64_t now = clock_us();

    if (!first)
        return;
    uint64_t at = first->call->sent_us + c->settings->timeout_us, us = at > now ? at - now : 0;
    event_timer_arm(c->deadline, us);
}

static void unpark(struct redis_cluster *c, struct parked *p)
{
    TAILQ_REMOVE(&c->parked, p, entry);
    c->parked_count--;
    p->node->parked--;
}

/* `done` must not call the cluster from inside: the caller iterates over the list. */
static void parked_fail(struct redis_cluster *c, struct parked *p, enum redis_failure failure)
{
    struct redis_call *call = p->call;

    unpark(c, p);
    free(p);
    call->done(call, NULL, failure);
}

static bool park(struct redis_cluster *c, struct cluster_node *node, struct redis_call *call,
                 int argc, struct slice arguments, bool asking)
{
    struct parked *p = c->parked_count < PARKED_MAX ? malloc(sizeof *p + arguments.n) : NULL;

    if (!p)
        return false;
    *p = (struct parked){
        .node = node, .call = call, .asking = asking, .argc = argc, .size = arguments.n};
    call->link = NULL;
    memcpy(p->bytes, arguments.p, arguments.n);
    TAILQ_INSERT_TAIL(&c->parked, p, entry);
    c->parked_count++;
    node->parked++;
    if (TAILQ_FIRST(&c->parked) == p)
        arm_deadline(c, p);
    return true;
}

static void parked_timed_out(evutil_socket_t fd, short what, void *arg)
{
    struct redis_cluster *c = arg;
    struct parked *p, *next;
    uint64_t now = clock_us();
    (void)fd, (void)what;

    MAGIC_CHECK(c, CLUSTER_MAGIC);
    for (p = TAILQ_FIRST(&c->parked); p && p->call->sent_us + c->settings->timeout_us <= now;
         p = next) {
        next = TAILQ_NEXT(p, entry);
        parked_fail(c, p, REDIS_FAILURE_TIMEOUT);
    }
    arm_deadline(c, p);
}

static void send_parked(struct redis_cluster *c, const struct cluster_node *node)
{
    struct parked *p, *next;

    for (p = TAILQ_FIRST(&c->parked); p; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->node != node)
            continue;
        if (!redis_link_pass(node->link, p->call, p->argc, (struct slice){p->bytes, p->size},
                             p->asking))
            return; /* no longer ready */
        unpark(c, p);
        free(p);
    }
    event_active(c->resume, EV_TIMEOUT, 1);
}

/* --- Nodes ------------------------------------------------------------------------------------ */

static struct cluster_node *node_of(void *pointer)
{
    struct cluster_node *node = pointer;
    MAGIC_CHECK(node, NODE_MAGIC);
    return node;
}

static void on_node_ready(void *context)
{
    struct cluster_node *node = node_of(context);
    struct redis_cluster *c = node->cluster;

    update_state(c);
    if (node->link)
        send_parked(c, node);
    if (c->watch.ready)
        c->watch.ready(c->watch.context);
}

static void on_node_not_ready(void *context, enum redis_failure cause)
{
    struct cluster_node *node = node_of(context);
    struct redis_cluster *c = node->cluster;

    update_state(c);
    if (c->watch.not_ready && c->ready_count == 0)
        c->watch.not_ready(c->watch.context, cause);
}

static bool on_redirected(void *context, struct redis_call *call, const char *error, int argc,
                          struct slice arguments);

static struct cluster_node *cluster_node_at(const struct redis_cluster *c,
                                            const struct address *address)
{
    struct cluster_node *node;

    for (node = LIST_FIRST(&c->nodes); node; node = LIST_NEXT(node, entry))
        if (address_same(&node->address, address))
            return node;
    return NULL;
}

/* Fails the node's parked and pending calls. Must not be called from inside its link's
 * callbacks. */
static void node_free(struct cluster_node *node)
{
    struct redis_cluster *c = node->cluster;
    struct parked *p, *next;

    LIST_REMOVE(node, entry);
    c->node_count--;
    redis_link_free(node->link);
    for (p = TAILQ_FIRST(&c->parked); p; p = next) {
        next = TAILQ_NEXT(p, entry);
        if (p->node == node)
            parked_fail(c, p, REDIS_FAILURE_DOWN);
    }
    MAGIC_WIPE(node);
    free(node);
}

/* Returns NULL if out of memory, or if there are too many nodes. */
static struct cluster_node *node_make(struct redis_cluster *c, const struct address *address)
{
    struct cluster_node *node =
        c->node_count < REDIS_CLUSTER_MAP_NODES_MAX ? calloc(1, sizeof *node) : NULL;

    if (!node)
        return NULL;
    MAGIC_SET(node, NODE_MAGIC);
    node->cluster = c;
    node->address = *address;
    LIST_INSERT_HEAD(&c->nodes, node, entry);
    c->node_count++;
    const struct redis_link_watch watch = {.ready = on_node_ready,
                                           .not_ready = on_node_not_ready,
                                           .redirected = on_redirected,
                                           .quiet = c->watch.quiet,
                                           .context = node};
    node->link = redis_link_new(c->base, c->settings, address, c->script, &watch);
    if (node->link)
        return node;
    node_free(node);
    return NULL;
}

/* --- Slot map --------------------------------------------------------------------------------- */

static void assign(struct redis_cluster *c, unsigned slot, struct cluster_node *node)
{
    struct cluster_node *before = c->of_slot[slot];

    c->covered += (node != NULL) - (before != NULL);
    if (before)
        before->slots--;
    if (node)
        node->slots++;
    c->of_slot[slot] = node;
}

/* Frees nodes that are not in the map and have no calls. A redirection may name a node before
 * the map does. */
static void drop_unlisted(struct redis_cluster *c)
{
    struct cluster_node *node, *next;

    for (node = LIST_FIRST(&c->nodes); node; node = next) {
        next = LIST_NEXT(node, entry);
        if (!node->listed && node->parked == 0 && redis_link_pending(node->link) == 0)
            node_free(node);
    }
}

static void on_map(void *context, const struct redis_cluster_map *map)
{
    struct redis_cluster *c = context;
    struct cluster_node *nodes[REDIS_CLUSTER_MAP_NODES_MAX], *node;

    MAGIC_CHECK(c, CLUSTER_MAGIC);
    for (node = LIST_FIRST(&c->nodes); node; node = LIST_NEXT(node, entry))
        node->listed = false;
    for (unsigned i = 0; i < map->node_count; i++) {
        nodes[i] = cluster_node_at(c, &map->nodes[i]);
        if (!nodes[i])
            nodes[i] = node_make(c, &map->nodes[i]);
        if (nodes[i])
            nodes[i]->listed = true;
    }
    for (unsigned slot = 0; slot < REDIS_SLOTS; slot++)
        assign(c, slot, map->of_slot[slot] ? nodes[map->of_slot[slot] - 1] : NULL);
    drop_unlisted(c);
    redis_cluster_report_map(c->settings, map);
    update_state(c);
}

/* --- Calls and redirections ------------------------------------------------------------------- */

static bool pass(struct redis_cluster *c, struct cluster_node *node, struct redis_call *call,
                 int argc, struct slice arguments, bool asking)
{
    if (!redis_link_is_ready(node->link))
        return park(c, node, call, argc, arguments, asking);
    event_active(c->resume, EV_TIMEOUT, 1);
    return redis_link_pass(node->link, call, argc, arguments, asking);
}

static bool on_redirected(void *context, struct redis_call *call, const char *error, int argc,
                          struct slice arguments)
{
    struct cluster_node *from = node_of(context), *to;
    struct redis_cluster *c = from->cluster;
    struct address address;
    unsigned slot;
    bool asking;

    /* the node may be partitioned from the others, which may have elected another master */
    if (redis_error_is(error, "CLUSTERDOWN")) {
        redis_cluster_map_reader_want(c->reader);
        return false;
    }
    if (!redis_redirect_read(error, &from->address, &asking, &slot, &address))
        return false;
    if (!(to = cluster_node_at(c, &address)) && !(to = node_make(c, &address)))
        return false;
    if (!asking) {
        assign(c, slot, to);
        redis_cluster_map_reader_want(c->reader);
    }
    if (++call->redirects > REDIRECTS_MAX || clock_us() - call->sent_us > c->settings->timeout_us)
        return false;
    redis_cluster_report_redirect(asking);
    return pass(c, to, call, argc, arguments, asking);
}

bool redis_cluster_call(struct redis_cluster *c, unsigned slot, struct redis_call *call, int argc,
                        const char **argv, const size_t *argv_sizes)
{
    struct cluster_node *node = c->of_slot[slot];

    call->redirects = 0;
    return node && redis_link_call(node->link, call, argc, argv, argv_sizes);
}

const struct redis_link *redis_cluster_link(const struct redis_cluster *c, unsigned slot)
{
    return c->of_slot[slot] ? c->of_slot[slot]->link : NULL;
}

enum redis_failure redis_cluster_cause(const struct redis_cluster *c)
{
    enum redis_failure cause = redis_cluster_map_reader_cause(c->reader);

    return cause == REDIS_OK_ANSWER ? REDIS_FAILURE_CLUSTER : cause;
}

bool redis_cluster_has_room(const struct redis_cluster *c, unsigned slot)
{
    return !c->of_slot[slot] || redis_link_has_room(c->of_slot[slot]->link);
}

enum redis_breaker redis_cluster_breaker(const struct redis_cluster *c)
{
    enum redis_breaker worst =
        c->covered == REDIS_SLOTS ? REDIS_BREAKER_CLOSED : REDIS_BREAKER_OPEN;
    const struct cluster_node *node;

    for (node = LIST_FIRST(&c->nodes); node; node = LIST_NEXT(node, entry))
        if (node->listed && node->link && redis_link_breaker(node->link) > worst)
            worst = redis_link_breaker(node->link);
    return worst;
}

void redis_cluster_flush(struct redis_cluster *c)
{
    struct cluster_node *node;

    for (node = LIST_FIRST(&c->nodes); node; node = LIST_NEXT(node, entry))
        redis_link_flush(node->link);
}

void redis_cluster_read(struct redis_cluster *c)
{
    struct cluster_node *node;

    for (node = LIST_FIRST(&c->nodes); node; node = LIST_NEXT(node, entry))
        redis_link_read(node->link);
}

static void flush_resumed(evutil_socket_t fd, short what, void *arg)
{
    struct redis_cluster *c = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(c, CLUSTER_MAGIC);
    redis_cluster_flush(c);
}

bool redis_cluster_master(const struct redis_cluster *c, unsigned number, unsigned *slot)
{
    const struct cluster_node *node;
    unsigned at = 0;

    for (node = LIST_FIRST(&c->nodes); node; node = LIST_NEXT(node, entry))
        if (node->listed && node->slots && at++ == number)
            for (*slot = 0; *slot < REDIS_SLOTS; ++*slot)
                if (c->of_slot[*slot] == node)
                    return true;
    return false;
}

/* --- Create and free -------------------------------------------------------------------------- */

struct redis_cluster *redis_cluster_new(struct event_base *base,
                                        const struct redis_settings *settings, struct slice script,
                                        const struct redis_link_watch *watch)
{
    struct redis_cluster *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    MAGIC_SET(c, CLUSTER_MAGIC);
    c->base = base;
    c->settings = settings;
    c->script = script;
    if (watch)
        c->watch = *watch;
    LIST_INIT(&c->nodes);
    TAILQ_INIT(&c->parked);
    c->deadline = evtimer_new(base, parked_timed_out, c);
    c->resume = event_new(base, -1, 0, flush_resumed, c);
    c->reader = redis_cluster_map_reader_new(base, settings, on_map, c);
    if (c->deadline && c->resume && c->reader)
        return c;
    redis_cluster_free(c);
    return NULL;
}

void redis_cluster_free(struct redis_cluster *c)
{
    struct parked *p, *next;
    struct cluster_node *node;

    if (!c)
        return;
    c->watch = (struct redis_link_watch){.ready = NULL};
    c->ready_count = 0;
    for (p = TAILQ_FIRST(&c->parked); p; p = next) {
        next = TAILQ_NEXT(p, entry);
        parked_fail(c, p, REDIS_FAILURE_DOWN);
    }
    for (unsigned slot = 0; slot < REDIS_SLOTS; slot++)
        c->of_slot[slot] = NULL;
    while ((node = LIST_FIRST(&c->nodes)))
        node_free(node);
    redis_cluster_map_reader_free(c->reader);
    event_drop(c->deadline);
    event_drop(c->resume);
    MAGIC_WIPE(c);
    free(c);
}
