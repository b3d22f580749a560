/* cluster_report.c - what the process knows of its cluster: counters, and the masters of the last
 * map. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "redis/cluster.h"
#include "redis/cluster_map.h"

static struct {
    pthread_mutex_t lock;
    struct redis_cluster_report report;
    char masters[1024]; /* masters of the last map */
    struct address of;  /* first node in the settings: identifies the cluster */
    struct address nodes[REDIS_CLUSTER_MAP_NODES_MAX];
    atomic_ulong moved, asked;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void list_masters(const struct redis_cluster_map *map, struct text *out)
{
    char text[ADDRESS_TEXT_MAX];

    for (unsigned i = 0; i < map->node_count; i++) {
        text_put(out, i ? SLICE(", ") : SLICE(""));
        text_put(out, slice_of(address_format(&map->nodes[i], text)));
    }
}

void redis_cluster_report_map(const struct redis_settings *settings,
                              const struct redis_cluster_map *map)
{
    char masters[sizeof seen.masters];
    struct text text = text_over(masters, sizeof masters - 1);

    list_masters(map, &text);
    masters[text.n] = 0;
    pthread_mutex_lock(&seen.lock);
    bool change = strcmp(seen.masters, masters) != 0 || seen.report.slots != map->slot_count;
    memcpy(seen.masters, masters, sizeof masters);
    seen.report.masters = map->node_count;
    seen.report.slots = map->slot_count;
    seen.report.maps++;
    memcpy(seen.nodes, map->nodes, map->node_count * sizeof map->nodes[0]);
    seen.of = settings->cluster.node[0].address;
    pthread_mutex_unlock(&seen.lock);
    if (change)
        log_at(map->slot_count == REDIS_SLOTS ? LEVEL_INFO : LEVEL_WARN,
               "redis %s: %u masters with %u of %d slots: %s", settings->address_text,
               map->node_count, map->slot_count, REDIS_SLOTS, masters);
}

void redis_cluster_report_redirect(bool asking)
{
    atomic_fetch_add_explicit(asking ? &seen.asked : &seen.moved, 1, memory_order_relaxed);
}

struct redis_cluster_report redis_cluster_seen(void)
{
    pthread_mutex_lock(&seen.lock);
    struct redis_cluster_report report = seen.report;
    pthread_mutex_unlock(&seen.lock);
    report.moved = atomic_load_explicit(&seen.moved, memory_order_relaxed);
    report.asked = atomic_load_explicit(&seen.asked, memory_order_relaxed);
    return report;
}

unsigned redis_cluster_nodes(const struct redis_settings *settings, unsigned number,
                             struct address *node)
{
    const struct address *of = &settings->cluster.node[0].address;

    pthread_mutex_lock(&seen.lock);
    unsigned count = address_same(&seen.of, of) ? seen.report.masters : 0;
    if (number < count)
        *node = seen.nodes[number];
    pthread_mutex_unlock(&seen.lock);
    return count;
}
