#include "proxy/worker_state.h"

#include <sys/eventfd.h>

#include "base/clock.h"
#include "http/rewrite.h"

struct slice worker_date(struct worker *w)
{
    int64_t second = (int64_t)(clock_cached_wall_us() / 1000000);
    if (second != w->date_second) {
        w->date_second = second;
        http_date_write(w->date, second);
    }
    return (struct slice){w->date, sizeof w->date};
}

/* xoshiro256** (Blackman and Vigna, 2018). Not for secrets. */
uint64_t worker_random(struct worker *w)
{
    uint64_t *s = w->random, x = s[1] * 5, t = s[1] << 17;
    uint64_t result = (x << 7 | x >> 57) * 9;

    s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
    s[2] ^= t;
    s[3] = s[3] << 45 | s[3] >> 19;
    return result;
}

/* Ids never repeat within a worker: the finaliser of splitmix64 (Steele, Lea and Flood, 2014) is
 * a bijection. It is invertible. Without the key in its middle, two ids would reveal the number of
 * requests between them. */
size_t worker_request_id(struct worker *w, char *id)
{
    uint64_t x = w->id_count++;
    struct text out = text_over(id, sizeof w->id_start + 16);

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u ^ w->id_key;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    text_bytes(&out, w->id_start, sizeof w->id_start);
    text_hex_fixed(&out, x ^ x >> 31, 16);
    return out.n;
}

unsigned worker_share_of(const struct worker *w, unsigned number)
{
    unsigned max = w->policy->size_limits.connections, workers = w->shared->workers;

    if (w->shared->connections_max && max > w->shared->connections_max)
        max = w->shared->connections_max;
    unsigned share = max / workers + (number < max % workers);
    return max && !share ? 1 : share;
}

unsigned worker_connections_max(const struct worker *w)
{
    return worker_share_of(w, w->number);
}

void worker_wake(struct worker *w)
{
    eventfd_write(w->wake_fd, 1);
}
