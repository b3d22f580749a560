/* remote_keys.h - the keys of tokens that are fetched from a URL: what all threads share of them.
 *
 *   main thread   jwks/key_fetcher.h --remote_keys_publish--> an immutable set of keys, a version
 *   worker        remote_keys_update(): holds the set that it saw last
 *                 remote_keys_want(): a token names an unknown key, which
 *                 remote_keys_may_come() soon
 *
 * A policy owns one of these per URL; after a reload, the next policy shares those of the same
 * URLs. */
#ifndef WEIR_POLICY_REMOTE_KEYS_H
#define WEIR_POLICY_REMOTE_KEYS_H

#include "policy/jwt.h"

struct remote_keys;

/* Returns a reference; exits the process if out of memory (base/memory.h). `url` is copied. `ca` is
 * the path of a file with authorities, NULL: those of the system. */
struct remote_keys *remote_keys_new(const char *url, const char *ca);
struct remote_keys *remote_keys_hold(struct remote_keys *remote);
void remote_keys_drop(struct remote_keys *remote);

const char *remote_keys_url(const struct remote_keys *remote);
const char *remote_keys_ca(const struct remote_keys *remote);
bool remote_keys_same(const struct remote_keys *one, const struct remote_keys *other);

/* --- The thread that fetches --- */

/* Descriptor of an event (eventfd(2)) that remote_keys_want() writes to. */
void remote_keys_wake_by(struct remote_keys *remote, int fd);
/* Makes `keys` the current set; takes over the caller's reference. */
void remote_keys_publish(struct remote_keys *remote, struct jwt_keys *keys);
/* A fetch begins. Before `closed_until_us` (clock_us()), unknown keys cause no further one. */
void remote_keys_begin(struct remote_keys *remote, uint64_t closed_until_us);
/* A fetch has ended, or there is none: nobody waits for it any more, and the next unknown key is
 * reported. */
void remote_keys_end_fetch(struct remote_keys *remote);
bool remote_keys_are_wanted(const struct remote_keys *remote);

/* --- Any thread --- */

/* Returns whether there are keys, or a fetch has failed. */
bool remote_keys_were_tried(const struct remote_keys *remote);
/* Returns whether a fetch is under way, or remote_keys_want() has caused one. */
bool remote_keys_may_come(const struct remote_keys *remote);
/* Requests a fetch. Cheap until the next remote_keys_end_fetch(). */
void remote_keys_want(struct remote_keys *remote);

/* One thread's reference to a set; initialize with zeros. */
struct remote_hold {
    struct jwt_keys *keys; /* NULL: none yet */
    unsigned version;
};
/* Takes the current set. Returns whether it is another one than before. Costs one atomic read if
 * not. */
bool remote_keys_update(struct remote_keys *remote, struct remote_hold *hold);
void remote_keys_let_go(struct remote_hold *hold);

#endif
