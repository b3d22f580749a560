#include "net/ip_shares.h"

#include <stdlib.h>

#include "base/hash.h"

enum { ENTRIES = 4096, CHAINS = 8192, SHARED_OUT = 8 };

/* An address with requests under way. */
struct ip_share {
    struct ip ip;
    uint32_t chain, next;   /* its chain; the next entry of it, or of the free ones; 0: none */
    unsigned count, common; /* requests; those of them in the common table */
};

struct ip_shares {
    struct hash_key key;
    struct ip_counts *common;
    unsigned workers;
    uint32_t used, free; /* entries ever used; the first one that is free again, or 0 */
    uint32_t chains[CHAINS];
    struct ip_share entries[ENTRIES + 1]; /* [0] is unused */
};

struct ip_shares *ip_shares_new(struct ip_counts *common, unsigned workers)
{
    struct ip_shares *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->key = hash_key_random();
    s->common = common;
    s->workers = workers;
    return s;
}

void ip_shares_free(struct ip_shares *s)
{
    free(s);
}

/* 0: the table is full. */
static uint32_t claim(struct ip_shares *s, uint32_t chain, const struct ip *ip)
{
    uint32_t i = s->free;

    if (i)
        s->free = s->entries[i].next;
    else if (s->used < ENTRIES)
        i = ++s->used;
    else
        return 0;
    s->entries[i] = (struct ip_share){.ip = *ip, .chain = chain, .next = s->chains[chain]};
    s->chains[chain] = i;
    return i;
}

/* One multiplication with a random key, at an eighth of SipHash's cost. Clients cannot predict the
 * chain, and the number of entries bounds its length. */
static uint32_t address_chain(const struct ip_shares *s, const struct ip *ip)
{
    uint64_t half[2];

    memcpy(half, ip->bytes, sizeof half);
    unsigned __int128 product = (unsigned __int128)(half[0] ^ s->key.k0) * (half[1] ^ s->key.k1);
    return (uint32_t)((uint64_t)product ^ (uint64_t)(product >> 64)) % CHAINS;
}

static uint32_t find_or_claim(struct ip_shares *s, const struct ip *ip)
{
    uint32_t chain = address_chain(s, ip), i = s->chains[chain];

    while (i && memcmp(&s->entries[i].ip, ip, sizeof *ip) != 0)
        i = s->entries[i].next;
    return i ? i : claim(s, chain, ip);
}

static void release_if_unused(struct ip_shares *s, uint32_t i)
{
    struct ip_share *share = &s->entries[i];
    uint32_t *at = &s->chains[share->chain];

    if (share->count)
        return;
    while (*at != i)
        at = &s->entries[*at].next;
    *at = share->next;
    share->next = s->free;
    s->free = i;
}

/* Counts a request beyond the worker's share of the maximum. A full common table is no reason to
 * reject: its entries are other addresses. */
static bool count_in_common(struct ip_shares *s, struct ip_share *share, unsigned max)
{
    enum ip_counted counted =
        s->workers == 1 ? IP_OVER_MAX : ip_counts_add(s->common, &share->ip, max);

    share->common += counted == IP_COUNTED;
    return counted != IP_OVER_MAX;
}

bool ip_shares_enter(struct ip_shares *s, const struct ip *ip, unsigned max, uint32_t *entry)
{
    unsigned own_max = s->workers == 1 ? max : max / (SHARED_OUT * s->workers);
    uint32_t i = *entry = find_or_claim(s, ip);
    struct ip_share *share = &s->entries[i];

    if (!i)
        return true;
    if (share->count - share->common < own_max ||
        count_in_common(s, share, max - own_max * s->workers)) {
        share->count++;
        return true;
    }
    release_if_unused(s, i);
    *entry = 0;
    return false;
}

void ip_shares_leave(struct ip_shares *s, uint32_t entry)
{
    struct ip_share *share = &s->entries[entry];

    if (share->common) {
        share->common--;
        ip_counts_remove(s->common, &share->ip);
    }
    share->count--;
    release_if_unused(s, entry);
}
