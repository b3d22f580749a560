#include "net/ip_counts.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"

/* Open addressing with linear probing under one lock: an accept costs a system call anyway. Twice as many
 * slots as entries. */
struct ip_counts {
    pthread_mutex_t lock;
    struct hash_key key;
    unsigned ipv6_prefix;
    unsigned entries, entries_max, mask;
    struct ip_count {
        struct ip ip;
        unsigned count; /* 0: free */
    } slots[];
};

struct ip_counts *ip_counts_new(unsigned entries_max, unsigned ipv6_prefix)
{
    unsigned size = 64;
    while (size < entries_max * 2)
        size *= 2;
    struct ip_counts *c = calloc(1, sizeof *c + size * sizeof c->slots[0]);
    if (!c)
        return NULL;
    pthread_mutex_init(&c->lock, NULL);
    c->key = hash_key_random();
    c->ipv6_prefix = ipv6_prefix;
    c->entries_max = entries_max;
    c->mask = size - 1;
    return c;
}

void ip_counts_free(struct ip_counts *c)
{
    if (!c)
        return;
    pthread_mutex_destroy(&c->lock);
    free(c);
}

static bool group_of(const struct ip_counts *c, const struct address *peer, struct ip *ip)
{
    if (!ip_of_address(peer, ip))
        return false;
    if (!ip_is_v4(ip))
        *ip = ip_masked(ip, c->ipv6_prefix);
    return true;
}

static unsigned home(const struct ip_counts *c, const struct ip *ip)
{
    return (unsigned)hash_slice(&c->key, (struct slice){(const char *)ip->bytes, 16}) & c->mask;
}

/* The address' slot, or the free one where it would go. */
static unsigned find(const struct ip_counts *c, const struct ip *ip)
{
    unsigned i = home(c, ip);
    while (c->slots[i].count && memcmp(&c->slots[i].ip, ip, sizeof *ip) != 0)
        i = (i + 1) & c->mask;
    return i;
}

/* Frees slot `i` and moves up what had to step aside for it, so that probing never meets a false gap. */
static void erase(struct ip_counts *c, unsigned i)
{
    c->entries--;
    for (unsigned j = (i + 1) & c->mask; c->slots[j].count; j = (j + 1) & c->mask) {
        unsigned from_home = (j - home(c, &c->slots[j].ip)) & c->mask;
        if (from_home >= ((j - i) & c->mask)) {
            c->slots[i] = c->slots[j];
            i = j;
        }
    }
    c->slots[i].count = 0;
}

bool ip_counts_enter(struct ip_counts *c, const struct address *peer, unsigned max)
{
    struct ip ip;
    if (!group_of(c, peer, &ip))
        return true;
    pthread_mutex_lock(&c->lock);
    struct ip_count *slot = &c->slots[find(c, &ip)];
    bool fits = slot->count ? max == 0 || slot->count < max : c->entries < c->entries_max;
    if (fits) {
        c->entries += slot->count == 0;
        slot->ip = ip;
        slot->count++;
    }
    pthread_mutex_unlock(&c->lock);
    return fits;
}

void ip_counts_leave(struct ip_counts *c, const struct address *peer)
{
    struct ip ip;
    if (!group_of(c, peer, &ip))
        return;
    pthread_mutex_lock(&c->lock);
    unsigned i = find(c, &ip);
    if (c->slots[i].count == 1)
        erase(c, i);
    else if (c->slots[i].count)
        c->slots[i].count--;
    pthread_mutex_unlock(&c->lock);
}
