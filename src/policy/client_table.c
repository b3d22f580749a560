/* client_table.c - implements policy_client(). */
#include "policy/client_table.h"

#include "base/hash.h"
#include "policy/identity.h"
#include "policy/shipped_limiter.h"

enum { KEY_ID, KEY_RANGE, KEY_UNIX };

/* Lookup key: the text of an id, or an address prefix and its length. */
struct client_key {
    unsigned kind;
    struct slice bytes;
};

struct client_entry {
    struct client_entry *next; /* in the same hash chain */
    struct client_key key;
    const struct configured_client *client;
};

struct clients {
    struct arena *arena;
    struct hash_key hash_key;
    struct configured_client *all;
    unsigned count;
    struct client_entry **chains; /* the number of chains is a power of two */
    size_t mask;
    unsigned bits[129]; /* prefix lengths in use, longest first */
    unsigned bits_count;
    const struct configured_client *unix_peers;
};

enum { RANGE_KEY_SIZE = sizeof(struct ip) + 1 };

static struct client_key range_key(const struct ip *masked, unsigned bits,
                                   char room[static RANGE_KEY_SIZE])
{
    memcpy(room, masked->bytes, sizeof masked->bytes);
    room[sizeof masked->bytes] = (char)bits;
    return (struct client_key){KEY_RANGE, {room, RANGE_KEY_SIZE}};
}

struct clients *clients_new(struct arena *arena, unsigned count)
{
    struct clients *clients = arena_zeroed(arena, 1, sizeof *clients);
    size_t chains = 16;

    while (chains < count)
        chains *= 2;
    clients->arena = arena;
    clients->hash_key = hash_key_random();
    clients->all = arena_zeroed(arena, count, sizeof *clients->all);
    clients->chains = arena_zeroed(arena, chains, sizeof *clients->chains);
    clients->mask = chains - 1;
    return clients;
}

struct configured_client *clients_add(struct clients *clients)
{
    return &clients->all[clients->count++];
}

unsigned clients_count(const struct clients *clients)
{
    return clients->count;
}

const struct configured_client *clients_at(const struct clients *clients, unsigned index)
{
    return &clients->all[index];
}

static struct client_entry **client_chain(const struct clients *clients,
                                          const struct client_key *key)
{
    return &clients
                ->chains[(hash_slice(&clients->hash_key, key->bytes) + key->kind) & clients->mask];
}

static const struct configured_client *find_client(const struct clients *clients,
                                                   const struct client_key *key)
{
    for (const struct client_entry *entry = *client_chain(clients, key); entry; entry = entry->next)
        if (entry->key.kind == key->kind && slice_equal(entry->key.bytes, key->bytes))
            return entry->client;
    return NULL;
}

/* Indexes the client added last by `key`, whose bytes are in the arena. Returns an earlier one or
 * NULL. */
static const struct configured_client *enter(struct clients *clients, struct client_key key)
{
    const struct configured_client *earlier = find_client(clients, &key);
    if (earlier)
        return earlier;
    struct client_entry *entry = arena_zeroed(clients->arena, 1, sizeof *entry);
    struct client_entry **chain = client_chain(clients, &key);
    *entry = (struct client_entry){*chain, key, &clients->all[clients->count - 1]};
    *chain = entry;
    return NULL;
}

const struct configured_client *clients_enter_id(struct clients *clients, struct slice id)
{
    return enter(clients, (struct client_key){KEY_ID, {arena_text(clients->arena, id), id.n}});
}

/* Keeps `bits` sorted, longest first. */
static void note_bits(struct clients *clients, unsigned bits)
{
    unsigned at = 0;
    while (at < clients->bits_count && clients->bits[at] > bits)
        at++;
    if (at < clients->bits_count && clients->bits[at] == bits)
        return;
    memmove(&clients->bits[at + 1], &clients->bits[at], (clients->bits_count - at) * sizeof bits);
    clients->bits[at] = bits;
    clients->bits_count++;
}

const struct configured_client *clients_enter_range(struct clients *clients,
                                                    const struct ip_range *range)
{
    char *room = arena_zeroed(clients->arena, RANGE_KEY_SIZE, 1);
    note_bits(clients, range->bits);
    return enter(clients, range_key(&range->ip, range->bits, room));
}

const struct configured_client *clients_enter_unix(struct clients *clients)
{
    const struct configured_client *earlier = clients->unix_peers;
    if (!earlier)
        clients->unix_peers = &clients->all[clients->count - 1];
    return earlier;
}

static const struct configured_client *find_ip(const struct clients *clients, const struct ip *ip)
{
    char room[RANGE_KEY_SIZE];

    for (unsigned i = 0; i < clients->bits_count; i++) {
        if (clients->bits[i] < 96 && ip_is_v4(ip))
            break; /* only IPv6 ranges are left (as in ip_range_holds) */
        struct ip masked = ip_masked(ip, clients->bits[i]);
        struct client_key key = range_key(&masked, clients->bits[i], room);
        const struct configured_client *client = find_client(clients, &key);
        if (client)
            return client;
    }
    return NULL;
}

const struct client_limits *policy_client(const struct policy *policy,
                                          const struct identity *identity)
{
    const struct clients *clients = policy->clients;
    const struct configured_client *client;

    if (clients->count == 0)
        return NULL;
    if (identity->is_id) {
        client = find_client(clients, &(struct client_key){KEY_ID, identity_text(identity)});
    } else {
        client = identity->has_ip ? find_ip(clients, &identity->ip) : clients->unix_peers;
    }
    return client ? &client->client_limits : NULL;
}

static int64_t number_scaled(int64_t number, double factor)
{
    double value = (double)number * factor + 0.5;
    int64_t most = number > SMALL_LIMIT_MAX ? LIMIT_MAX : SMALL_LIMIT_MAX;
    return value < 1 ? 1 : value > (double)most ? most : (int64_t)value;
}

void limit_numbers_scale(struct limit_numbers *numbers, double factor)
{
    numbers->limit = number_scaled(numbers->limit, factor);
    numbers->burst = number_scaled(numbers->burst, factor);
}

/* Clients whose numbers are those of their plan share them with it. */
static bool has_own_numbers(const struct client_limits *limits)
{
    return limits->numbers && !(limits->plan && limits->plan->numbers == limits->numbers);
}

void clients_scale(struct clients *clients, unsigned limit, double factor)
{
    for (unsigned i = 0; i < clients->count; i++)
        if (has_own_numbers(&clients->all[i].client_limits))
            limit_numbers_scale(&clients->all[i].client_limits.numbers[limit], factor);
}

bool policy_blocks(const struct policy *policy, const struct identity *identity)
{
    const struct client_limits *limits =
        policy->blocks_clients ? policy_client(policy, identity) : NULL;
    return limits && limits->blocked;
}

struct limit_numbers client_numbers(const struct client_limits *client_limits,
                                    const struct limit *limit)
{
    struct limit_numbers numbers = limit_numbers_of(limit);

    if (client_limits && client_limits->numbers)
        numbers = client_limits->numbers[limit->index];
    if (client_limits && client_limits->each && limit_is_per_client(limit))
        numbers.limit = numbers.burst = limit_bounded(limit, client_limits->each);
    return numbers;
}

/* FNV-1a with the final mix of MurmurHash3. Unkeyed, because all instances must agree. A client
 * that chooses its own id can thus find one for which a partially enforced limit is not
 * enforced. */
static uint64_t choice(struct slice client, struct slice limit)
{
    uint64_t h = fnv_byte(fnv_text(FNV_START, client), 0); /* a zero byte between the two */

    h = fnv_text(h, limit);
    h = (h ^ h >> 33) * 0xff51afd7ed558ccd;
    h = (h ^ h >> 33) * 0xc4ceb9fe1a85ec53;
    return h ^ h >> 33;
}

bool limit_enforces_text(const struct limit *limit, struct slice client)
{
    if (limit->enforce == SHARE_WHOLE || limit->enforce == 0)
        return limit->enforce != 0;
    uint64_t h = choice(client, slice_of(limit->name)) >> 32;
    return (int64_t)(h * SHARE_WHOLE >> 32) < limit->enforce;
}

bool limit_enforces(const struct limit *limit, const struct identity *identity)
{
    return limit_enforces_text(limit, identity_text(identity));
}
