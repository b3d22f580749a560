#include "net/ip_counts.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/hash.h"

enum { STRIPES = 64 };

/* Open addressing with linear probing; twice as many slots as entries. */
struct count_stripe {
    _Alignas(64) pthread_mutex_t lock;
    unsigned entries;
    struct ip_count {
        struct ip ip;
        unsigned count; /* 0: the slot is free */
    } * slots;
};

/* An address belongs to one stripe, so its count is exact. Workers that accept at the same time
 * rarely contend for the same lock. */
struct ip_counts {
    struct count_stripe stripes[STRIPES];
    struct hash_key key;
    unsigned bits_v4, bits_v6;  /* of 128, that a group shares */
    unsigned entries_max, mask; /* per stripe */
    struct ip_count slots[];
};

/* Returns the number of entries per stripe. The hash is keyed, so entries are distributed randomly:
 * a stripe has room for the mean plus 10 standard deviations of a Poisson distribution. */
static unsigned stripe_entries(unsigned entries_max)
{
    unsigned mean = entries_max / STRIPES + 1, root = 1;

    while (root * root < mean)
        root++;
    return mean + 10 * root;
}

struct ip_counts *ip_counts_new(unsigned entries_max, unsigned ipv4_prefix, unsigned ipv6_prefix)
{
    unsigned size = 32, entries = stripe_entries(entries_max);
    while (size < entries * 2)
        size *= 2;
    size_t bytes = sizeof(struct ip_counts) + (size_t)STRIPES * size * sizeof(struct ip_count);
    struct ip_counts *c = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!c)
        return NULL;
    memset(c, 0, bytes);
    for (unsigned i = 0; i < STRIPES; i++) {
        pthread_mutex_init(&c->stripes[i].lock, NULL);
        c->stripes[i].slots = c->slots + (size_t)i * size;
    }
    c->key = hash_key_random();
    c->bits_v4 = 96 + ipv4_prefix;
    c->bits_v6 = ipv6_prefix;
    c->entries_max = entries;
    c->mask = size - 1;
    return c;
}

void ip_counts_free(struct ip_counts *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < STRIPES; i++)
        pthread_mutex_destroy(&c->stripes[i].lock);
    free(c);
}

static bool peer_group(const struct ip_counts *c, const struct address *peer, struct ip *ip)
{
    if (!ip_of_address(peer, ip))
        return false;
    *ip = ip_masked(ip, ip_is_v4(ip) ? c->bits_v4 : c->bits_v6);
    return true;
}

static uint64_t hash_of(const struct ip_counts *c, const struct ip *ip)
{
    return hash_slice(&c->key, (struct slice){(const char *)ip->bytes, 16});
}

static struct count_stripe *stripe_of(struct ip_counts *c, const struct ip *ip)
{
    return &c->stripes[hash_of(c, ip) >> 32 & (STRIPES - 1)];
}

static unsigned home(const struct ip_counts *c, const struct ip *ip)
{
    return (unsigned)hash_of(c, ip) & c->mask;
}

/* Returns the slot of the address, or the free slot to insert it into. */
static unsigned address_slot(const struct ip_counts *c, const struct count_stripe *s,
                             const struct ip *ip)
{
    unsigned i = home(c, ip);
    while (s->slots[i].count && memcmp(&s->slots[i].ip, ip, sizeof *ip) != 0)
        i = (i + 1) & c->mask;
    return i;
}

/* Frees slot `i`, then moves back displaced entries, so that no gap interrupts probing. */
static void erase(const struct ip_counts *c, struct count_stripe *s, unsigned i)
{
    s->entries--;
    for (unsigned j = (i + 1) & c->mask; s->slots[j].count; j = (j + 1) & c->mask) {
        unsigned from_home = (j - home(c, &s->slots[j].ip)) & c->mask;
        if (from_home >= ((j - i) & c->mask)) {
            s->slots[i] = s->slots[j];
            i = j;
        }
    }
    s->slots[i].count = 0;
}

enum ip_counted ip_counts_add(struct ip_counts *c, const struct ip *ip, unsigned max)
{
    struct count_stripe *s = stripe_of(c, ip);
    enum ip_counted counted = IP_COUNTED;

    pthread_mutex_lock(&s->lock);
    struct ip_count *slot = &s->slots[address_slot(c, s, ip)];
    if (slot->count && max && slot->count >= max)
        counted = IP_OVER_MAX;
    else if (!slot->count && s->entries >= c->entries_max)
        counted = IP_TABLE_FULL;
    else {
        s->entries += slot->count == 0;
        slot->ip = *ip;
        slot->count++;
    }
    pthread_mutex_unlock(&s->lock);
    return counted;
}

void ip_counts_remove(struct ip_counts *c, const struct ip *ip)
{
    struct count_stripe *s = stripe_of(c, ip);

    pthread_mutex_lock(&s->lock);
    unsigned i = address_slot(c, s, ip);
    if (s->slots[i].count == 1)
        erase(c, s, i);
    else if (s->slots[i].count)
        s->slots[i].count--;
    pthread_mutex_unlock(&s->lock);
}

bool ip_counts_enter(struct ip_counts *c, const struct address *peer, unsigned max)
{
    struct ip ip;
    return !peer_group(c, peer, &ip) || ip_counts_add(c, &ip, max) == IP_COUNTED;
}

void ip_counts_leave(struct ip_counts *c, const struct address *peer)
{
    struct ip ip;
    if (peer_group(c, peer, &ip))
        ip_counts_remove(c, &ip);
}
