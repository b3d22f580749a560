#include "base/recent.h"

#include <string.h>

void recent_init(struct recent *recent, uint64_t window_us)
{
    *recent = (struct recent){.slot_us = window_us / RECENT_SLOTS};
}

void recent_advance(struct recent *recent, uint64_t now_us)
{
    uint64_t slots = (now_us - recent->ends_us) / recent->slot_us + 1;

    if (slots >= RECENT_SLOTS) {
        memset(recent->sum, 0, sizeof recent->sum);
        memset(recent->slots, 0, sizeof recent->slots);
        recent->ends_us = now_us + recent->slot_us;
        return;
    }
    for (recent->ends_us += slots * recent->slot_us; slots; slots--) {
        recent->current = (recent->current + 1) % RECENT_SLOTS;
        for (unsigned kind = 0; kind < RECENT_KINDS; kind++) {
            recent->sum[kind] -= recent->slots[recent->current][kind];
            recent->slots[recent->current][kind] = 0;
        }
    }
}
