#include "limit/resets.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/hash.h"
#include "limit/key.h"

struct reset {
    uint64_t at_us; /* monotonic; 0: free */
    uint64_t tag[2];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct hash_key hash;
static struct reset known[RESETS_MAX];
static unsigned count;           /* resets of single clients so far; index of the next slot */
static uint64_t everybody_us;    /* last time that applies to all clients */
static _Atomic uint64_t last_us; /* of any reset; workers read nothing else until there is one */

static void tag_of_client(struct slice client, uint64_t tag[2])
{
    char bytes[KEY_TAG_MAX];
    struct text text = text_over(bytes, sizeof bytes);

    key_write_tag(&text, client);
    hash_slice_128(&hash, text_slice(&text), tag);
}

/* Overwrites the oldest reset; from then on its time applies to all clients. */
static void note_reset(struct slice client, uint64_t now_us)
{
    struct reset *reset = &known[count % RESETS_MAX];

    if (count == 0)
        hash = hash_key_random();
    if (reset->at_us > everybody_us)
        everybody_us = reset->at_us;
    count++;
    reset->at_us = now_us;
    tag_of_client(client, reset->tag);
}

void resets_note(struct slice client)
{
    uint64_t now_us = clock_us();

    pthread_mutex_lock(&lock);
    if (client.n)
        note_reset(client, now_us);
    else
        everybody_us = now_us;
    atomic_store_explicit(&last_us, now_us, memory_order_release);
    pthread_mutex_unlock(&lock);
}

bool resets_concern(struct slice key, uint64_t requested_us)
{
    const char *end = key.n ? memchr(key.p, '}', key.n) : NULL;
    uint64_t tag[2];
    bool concerns;

    if (requested_us > atomic_load_explicit(&last_us, memory_order_acquire))
        return false;
    pthread_mutex_lock(&lock);
    concerns = !end || requested_us <= everybody_us;
    if (!concerns)
        hash_slice_128(&hash, (struct slice){key.p, (size_t)(end + 1 - key.p)}, tag);
    for (unsigned i = 0; i < RESETS_MAX && !concerns; i++)
        concerns = requested_us <= known[i].at_us && known[i].tag[0] == tag[0] &&
                   known[i].tag[1] == tag[1];
    pthread_mutex_unlock(&lock);
    return concerns;
}
