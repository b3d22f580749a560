#include "net/ip_rates.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/hash.h"

enum { ROWS = 2, ROW_SLOTS = 32768, SECOND_US = 1000000 };

struct ip_rates {
    struct hash_key key;
    _Atomic uint64_t at_us[ROWS][ROW_SLOTS]; /* theoretical arrival time of the next event */
};

struct ip_rates *ip_rates_new(void)
{
    struct ip_rates *rates = calloc(1, sizeof *rates);

    if (rates)
        rates->key = hash_key_random();
    return rates;
}

void ip_rates_free(struct ip_rates *rates)
{
    free(rates);
}

static bool admit_in(_Atomic uint64_t *slot, unsigned per_second, uint64_t now_us)
{
    uint64_t interval = SECOND_US / per_second, at = atomic_load(slot), from;

    do {
        from = at > now_us ? at : now_us;
        if (from + interval > now_us + 2 * (uint64_t)SECOND_US)
            return false;
    } while (!atomic_compare_exchange_weak(slot, &at, from + interval));
    return true;
}

bool ip_rates_admit(struct ip_rates *rates, const struct ip *ip, unsigned per_second,
                    uint64_t now_us)
{
    uint64_t hash[ROWS];
    bool admitted = false;

    hash_slice_128(&rates->key, (struct slice){(const char *)ip->bytes, sizeof ip->bytes}, hash);
    for (unsigned i = 0; i < ROWS; i++)
        admitted |= admit_in(&rates->at_us[i][hash[i] % ROW_SLOTS], per_second, now_us);
    return admitted;
}
