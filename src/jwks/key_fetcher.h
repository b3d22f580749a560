/* key_fetcher.h - keeps the keys of tokens that a policy names by URL current. It runs on the main
 * thread's loop.
 *
 * A URL is fetched at once, and again after identity.jwt.refresh, or sooner if its response says so
 * (Cache-Control), but not within KEYS_FRESH_MIN_US; after a failure, again and again. A token with
 * an unknown key has it fetched at once, at most every KEYS_WANTED_US. The last good keys stay in
 * use meanwhile, also over a restart (jwks/kept_keys.h). A document without a usable key, or one
 * that weir cannot use as a whole, is a failure. */
#ifndef WEIR_JWKS_KEY_FETCHER_H
#define WEIR_JWKS_KEY_FETCHER_H

#include <event2/event.h>

#include "policy/policy.h"

#define KEYS_FRESH_MIN_US (UINT64_C(60) * 1000000)
#define KEYS_WANTED_US    (UINT64_C(30) * 1000000)

struct key_fetcher;

/* `changed(context)` is called when keys have changed, or the first fetch has failed. NULL: no
 * memory. */
struct key_fetcher *key_fetcher_new(struct event_base *base, void (*changed)(void *context),
                                    void *context);
/* Call after all workers have ended. The loop must run once more before its base is freed. NULL is
 * allowed. */
void key_fetcher_free(struct key_fetcher *fetcher);

/* Fetches the keys of `policy` from now on, and no others; holds a reference. Replaces its remote
 * keys by those of the policy before it, where the URL and the authorities are the same, or reads
 * the kept ones: call before any other thread uses the policy. Logs an error if out of memory. */
void key_fetcher_apply(struct key_fetcher *fetcher, struct policy *policy);

/* The state of one URL. */
struct key_status {
    const char *url;
    const char *why; /* NULL: the last fetch has succeeded, or the first is under way */
    bool has_keys;
    uint64_t age_us; /* of the keys */
    uint64_t fetches_good, fetches_failed;
};

/* Sets `status` to the states of all URLs, valid until the loop continues. Returns their number. */
unsigned key_fetcher_list(const struct key_fetcher *fetcher,
                          struct key_status status[static KEY_URLS_MAX]);

#endif
