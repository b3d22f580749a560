/* read_redis.c - section redis: the server, sentinels or cluster that stores usage counts. */
#include "config/sections.h"

/* --- one server --- */

/* Stores a host name unresolved; the resolver looks it up at run time. */
static bool read_redis_name(struct loading *l, const struct node *node,
                            struct redis_settings *redis)
{
    struct slice host;
    const char *why;

    if (!address_split(node->text, &redis->address, &host, &redis->port, &why) || host.n == 0 ||
        redis->address.length || redis->port == 0)
        return false;
    redis->host = arena_text(l->arena, host);
    return true;
}

static void read_redis_address(struct loading *l, const struct option *option,
                               const struct node *node, void *field)
{
    struct redis_settings *redis = field;
    struct node position = *node;

    (void)option;
    if (!expect_scalar(l, node, "host:port, unix:/path, redis://... or embedded"))
        return;
    if (redis_url_is_one(node->text) && !redis_url_read(l, node, &redis->url, &position.text)) {
        redis->url.given = false;
        return;
    }
    node = &position;
    redis->embedded = slice_equal(node->text, SLICE("embedded"));
    redis->address_text = keep_text(l, node);
    if (!redis->embedded && !read_redis_name(l, node, redis))
        (void)destination_read(l, node, &redis->address);
}

const struct option_type type_redis_address = {"address", read_redis_address, print_text, false, 0};

bool redis_has_address(const void *policy)
{
    const struct redis_settings *redis = &((const struct policy *)policy)->redis;
    return !redis->sentinel.master && !redis->cluster.count;
}

/* --- sentinels --- */

/* Used instead of redis.address, which is read earlier. */
static void read_sentinel(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    struct redis_settings *redis = &((struct policy *)field)->redis;

    if (node->null || !expect_map(l, node, "a map with master and nodes"))
        return;
    if (node->parent && node_find(node->parent, "address")) {
        mistake(l, node, "conflicts with redis.address; remove one of them");
        return;
    }
    options_read(l, node, option->path, field);
    redis->address = (struct address){.length = 0};
    redis->host = NULL;
    redis->address_text = redis->sentinel.master;
}

const struct option_type type_sentinel = {"map", read_sentinel, print_section, false, 0};

static void read_redis_nodes(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct redis_nodes *nodes = field;
    unsigned count = list_count(node);

    if (!expect_items(l, option, node, "addresses"))
        return;
    nodes->node = arena_zeroed(l->arena, count, sizeof *nodes->node);
    EACH_ITEM (item, node) {
        struct redis_node *entry = &nodes->node[nodes->count];
        if (!expect_scalar(l, item, "host:port"))
            continue;
        entry->text = keep_text(l, item);
        nodes->count += destination_read(l, item, &entry->address);
    }
}

static void print_redis_node(FILE *out, const void *nodes, unsigned index)
{
    print_scalar(out, slice_of(((const struct redis_nodes *)nodes)->node[index].text));
}

PRINT_ITEMS(print_redis_nodes, redis_nodes, count, print_redis_node)

const struct option_type type_redis_nodes = {"list of addresses", read_redis_nodes,
                                             print_redis_nodes, false, 0};

/* --- cluster --- */

/* Used instead of redis.address and redis.sentinel, which are read earlier. */
static void read_cluster(struct loading *l, const struct option *option, const struct node *node,
                         void *field)
{
    struct redis_settings *redis = field;

    if (node->null)
        return;
    if (node_find(node->parent, "address") || redis->sentinel.master) {
        mistake(l, node, "conflicts with redis.%s; remove one of them",
                redis->sentinel.master ? "sentinel" : "address");
        return;
    }
    read_redis_nodes(l, option, node, &redis->cluster);
    redis->address = (struct address){.length = 0};
    redis->host = NULL;
    redis->address_text = arena_text(l->arena, SLICE("cluster"));
}

const struct option_type type_cluster = {"list of addresses", read_cluster, print_redis_nodes,
                                         false, 0};

/* --- password --- */

static void read_password_file(struct loading *l, const struct option *option,
                               const struct node *node, void *field)
{
    struct redis_settings *redis = field;
    struct slice password;

    if (!node->null && redis->password) {
        mistake(l, node, "conflicts with redis.password; remove one of them");
        return;
    }
    if (!secret_file_read(l, option, node, "password", &password))
        return;
    redis->password = arena_text(l->arena, password);
    redis->password_file = keep_text(l, node);
}

const struct option_type type_password_file = {"path", read_password_file, print_text, true, 0};

/* --- keys --- */

/* Rejects braces, which would change the hash tag of Redis Cluster, and characters such as blanks
 * and quotes, which need escaping in tools. */
static void read_key_prefix(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    if (ascii_fits(l, option, node, " {}\"'\\",
                   "visible ASCII without braces, quotes and backslashes"))
        *(char **)field = keep_text(l, node);
}

const struct option_type type_key_prefix = {"text", read_key_prefix, print_text, false,
                                            sizeof(char *)};
