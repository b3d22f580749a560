#include "jwks/key_fetcher.h"

#include <openssl/sha.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/event_timer.h"
#include "base/log.h"
#include "base/magic.h"
#include "jwks/https_get.h"
#include "jwks/kept_keys.h"
#include "policy/remote_keys.h"

enum {
    SOURCE_MAGIC = 0x4b535243,
    RETRY_MIN_US = 1000000, /* after a failed fetch; doubled each time */
    RETRY_MAX_US = 30 * 1000000,
    WHY_MAX = 512
};

/* A URL. */
struct fetched_url {
    uint32_t magic;
    struct key_fetcher *fetcher;
    struct remote_keys *keys; /* a reference */
    struct https_get *get;    /* NULL: no fetch is under way */
    struct event *timer;      /* of the next fetch */
    uint64_t due_us;          /* of the timer, after a success */
    uint64_t retry_us;
    uint64_t wanted_us;       /* time of the last fetch for an unknown key; 0: none */
    uint64_t failing_us;      /* time of the first failure in a row; 0: none */
    uint64_t fetched_wall_us; /* 0: no keys */
    uint64_t good, failed;    /* fetches */
    bool unwritable;          /* the keys could not be kept, which was logged */
    bool of_policy;           /* while a policy is applied: it names this URL */
    unsigned char digest[SHA256_DIGEST_LENGTH]; /* of the document that is in use */
    char why[WHY_MAX];
};

struct key_fetcher {
    struct event_base *base;
    struct https_client *client; /* NULL: no URL, or no memory */
    struct policy *policy;       /* a reference; NULL: none yet */
    struct fetched_url *sources[KEY_URLS_MAX];
    unsigned count;
    struct event *wake;
    int wake_fd;
    void (*changed)(void *context);
    void *context;
};

/* ---- messages -------------------------------------------------------------------------------- */

static uint64_t age_us(const struct fetched_url *source)
{
    uint64_t now_us = clock_wall_us();
    return now_us > source->fetched_wall_us ? now_us - source->fetched_wall_us : 0;
}

/* One line when fetches begin to fail. */
static void report_failure(struct fetched_url *source)
{
    const char *url = remote_keys_url(source->keys);

    if (source->failing_us)
        return;
    if (source->fetched_wall_us)
        log_warn("keys %s: cannot be fetched: %s; the keys of %llu s ago stay in use; check the "
                 "issuer, the network and identity.jwt.ca",
                 url, source->why, (unsigned long long)age_us(source) / 1000000);
    else
        log_error("keys %s: cannot be fetched: %s; tokens of this issuer are invalid until then; "
                  "check identity.jwt.keys, the issuer, the network and identity.jwt.ca",
                  url, source->why);
}

static void report_success(const struct fetched_url *source, const struct jwt_set_report *report,
                           bool changed, bool first)
{
    const char *url = remote_keys_url(source->keys);

    if (source->failing_us)
        log_info("keys %s: fetched again, after %.1f s of failures", url,
                 (double)(clock_us() - source->failing_us) / 1e6);
    if (!changed)
        return;
    log_info("keys %s: %s%u key%s", url, first ? "" : "the issuer has changed them: now ",
             report->usable, report->usable == 1 ? "" : "s");
    if (report->skipped)
        log_warn("keys %s: %u of %u keys cannot verify tokens: %s", url, report->skipped,
                 report->skipped + report->usable, report->why);
}

/* ---- documents ------------------------------------------------------------------------------- */

/* Reads the document into a new set. Returns NULL, with the reason in source->why. */
static struct jwt_keys *read_document(struct fetched_url *source, struct slice content,
                                      struct jwt_set_report *report)
{
    struct jwt_keys *keys = jwt_keys_new();
    struct text text = text_over(source->why, sizeof source->why - 1);
    bool good = keys && jwt_keys_add_set(keys, slice_after_bom(content), JWT_SET_PUBLIC, report);
    const char *why = keys ? report->why : NULL;

    if (good && report->usable)
        return keys;
    if (!keys)
        why = "out of memory";
    else if (good && !report->skipped)
        why = "the set is empty";
    text_put(&text, !keys  ? SLICE_NONE
                    : good ? SLICE("no key in it can verify tokens: ")
                           : SLICE("it is not a JWK set (RFC 7517) that weir can use: "));
    text_clean(&text, slice_of(why));
    source->why[text.n] = 0;
    jwt_keys_drop(keys);
    return NULL;
}

static void publish_keys(struct fetched_url *source, struct jwt_keys *keys,
                         const unsigned char *digest, uint64_t fetched_wall_us)
{
    memcpy(source->digest, digest, sizeof source->digest);
    source->fetched_wall_us = fetched_wall_us;
    remote_keys_publish(source->keys, keys);
}

static const char *directory_of(const struct fetched_url *source)
{
    return kept_keys_directory(source->fetcher->policy->state_directory);
}

static void store_keys(struct fetched_url *source, struct slice content)
{
    const char *directory = directory_of(source), *url = remote_keys_url(source->keys);
    char why[KEPT_WHY_MAX];

    if (!directory)
        return;
    bool good = kept_keys_write(directory, url, source->fetched_wall_us, content, why);
    if (!good && !source->unwritable)
        log_warn("keys %s: cannot be kept over a restart: %s; check state_directory", url, why);
    source->unwritable = !good;
}

/* Uses the keys of the last run, until the first fetch. */
static void use_kept(struct fetched_url *source)
{
    const char *directory = directory_of(source), *url = remote_keys_url(source->keys);
    unsigned char digest[SHA256_DIGEST_LENGTH];
    struct jwt_keys *keys = NULL;
    struct jwt_set_report report;
    char *bytes, why[KEPT_WHY_MAX];
    struct slice content;
    uint64_t fetched_wall_us;

    if (!directory)
        return;
    if (!kept_keys_read(directory, url, &bytes, &content, &fetched_wall_us, why)) {
        if (why[0])
            log_warn("keys %s: the kept ones are not used: %s", url, why);
        return;
    }
    if ((keys = read_document(source, content, &report))) {
        SHA256((const unsigned char *)content.p, content.n, digest);
        publish_keys(source, keys, digest, fetched_wall_us);
        log_info("keys %s: %u kept, of %llu s ago, until the first fetch", url, report.usable,
                 (unsigned long long)age_us(source) / 1000000);
    } else
        log_warn("keys %s: the kept ones in %s are not used: %s", url, directory, source->why);
    free(bytes);
}

/* ---- fetches --------------------------------------------------------------------------------- */

static void arm_fetch(struct fetched_url *source, uint64_t after_us)
{
    source->due_us = clock_us() + after_us;
    event_timer_arm(source->timer, after_us);
}

static void fetch_failed(struct fetched_url *source)
{
    report_failure(source);
    source->failed++;
    source->failing_us = source->failing_us ? source->failing_us : clock_us();
    event_timer_back_off(source->timer, &source->retry_us, RETRY_MAX_US);
}

static uint64_t fresh_us(const struct fetched_url *source, const struct freshness *freshness)
{
    uint64_t refresh_us = source->fetcher->policy->identity.jwt.refresh_us,
             declared_us = freshness_seconds(freshness) * 1000000;

    if (!freshness->limited)
        return refresh_us;
    declared_us = declared_us < KEYS_FRESH_MIN_US ? KEYS_FRESH_MIN_US : declared_us;
    return declared_us < refresh_us ? declared_us : refresh_us;
}

static void succeed(struct fetched_url *source, struct jwt_keys *keys, const unsigned char *digest,
                    const struct https_result *result, const struct jwt_set_report *report)
{
    bool first = source->fetched_wall_us == 0,
         changed = first || memcmp(digest, source->digest, sizeof source->digest) != 0;

    report_success(source, report, changed, first);
    source->good++;
    source->failing_us = 0;
    source->retry_us = RETRY_MIN_US;
    if (changed)
        publish_keys(source, keys, digest, clock_wall_us());
    else
        jwt_keys_drop(keys);
    source->fetched_wall_us = clock_wall_us();
    store_keys(source, result->content);
    arm_fetch(source, fresh_us(source, &result->freshness));
}

static void on_end(void *context, const struct https_result *result)
{
    struct fetched_url *source = context;
    unsigned char digest[SHA256_DIGEST_LENGTH];
    struct jwt_set_report report = {0};
    struct jwt_keys *keys = NULL;
    struct text text = text_over(source->why, sizeof source->why - 1);

    MAGIC_CHECK(source, SOURCE_MAGIC);
    source->get = NULL;
    if (result->why) {
        text_clean(&text, slice_of(result->why));
        source->why[text.n] = 0;
    } else if ((keys = read_document(source, result->content, &report))) {
        SHA256((const unsigned char *)result->content.p, result->content.n, digest);
        succeed(source, keys, digest, result, &report);
    }
    if (!keys)
        fetch_failed(source);
    remote_keys_end_fetch(source->keys);
    source->fetcher->changed(source->fetcher->context);
}

static void fetch(struct fetched_url *source)
{
    struct key_fetcher *fetcher = source->fetcher;

    if (source->get)
        return;
    event_del(source->timer);
    remote_keys_begin(source->keys, source->wanted_us ? source->wanted_us + KEYS_WANTED_US : 0);
    if (fetcher->client)
        source->get = https_get(fetcher->client, remote_keys_url(source->keys),
                                remote_keys_ca(source->keys), on_end, source);
    if (source->get)
        return;
    snprintf(source->why, sizeof source->why, "out of memory");
    fetch_failed(source);
    remote_keys_end_fetch(source->keys);
}

static void on_fetch_due(evutil_socket_t fd, short what, void *arg)
{
    struct fetched_url *source = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(source, SOURCE_MAGIC);
    if (remote_keys_are_wanted(source->keys))
        source->wanted_us = clock_us();
    fetch(source);
}

/* A token names an unknown key. Until the fetch has ended, further ones do not report that. */
static void fetch_wanted(struct fetched_url *source)
{
    uint64_t now_us = clock_us(), next_us = source->wanted_us + KEYS_WANTED_US;

    if (source->get || !remote_keys_are_wanted(source->keys))
        return;
    if (source->wanted_us == 0 || now_us >= next_us) {
        source->wanted_us = now_us;
        fetch(source);
    } else if (!source->failing_us && next_us < source->due_us)
        arm_fetch(source, next_us - now_us);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
    struct key_fetcher *fetcher = arg;
    uint64_t count;
    (void)what;

    if (read(fd, &count, sizeof count) < 0)
        return;
    for (unsigned i = 0; i < fetcher->count; i++)
        fetch_wanted(fetcher->sources[i]);
}

/* ---- policies -------------------------------------------------------------------------------- */

static void source_free(struct fetched_url *source)
{
    https_get_cancel(source->get);
    event_drop(source->timer);
    remote_keys_begin(source->keys, UINT64_MAX); /* never again */
    remote_keys_end_fetch(source->keys);
    remote_keys_drop(source->keys);
    MAGIC_WIPE(source);
    free(source);
}

static struct fetched_url *source_new(struct key_fetcher *fetcher, struct remote_keys *keys)
{
    struct fetched_url *source = calloc(1, sizeof *source);

    if (!source || !(source->timer = evtimer_new(fetcher->base, on_fetch_due, source))) {
        free(source);
        return NULL;
    }
    MAGIC_SET(source, SOURCE_MAGIC);
    source->fetcher = fetcher;
    source->keys = remote_keys_hold(keys);
    source->retry_us = RETRY_MIN_US;
    remote_keys_wake_by(keys, fetcher->wake_fd);
    return source;
}

static struct fetched_url *source_of(const struct key_fetcher *fetcher,
                                     const struct remote_keys *keys)
{
    for (unsigned i = 0; i < fetcher->count; i++)
        if (remote_keys_same(fetcher->sources[i]->keys, keys))
            return fetcher->sources[i];
    return NULL;
}

/* Lets the policy share the keys of an earlier one, or adds its URL. False: no memory. */
static bool use(struct key_fetcher *fetcher, struct remote_keys **keys, struct fetched_url **source)
{
    *source = source_of(fetcher, *keys);
    if (*source) {
        remote_keys_drop(*keys);
        *keys = remote_keys_hold((*source)->keys);
        return true;
    }
    if (!(*source = source_new(fetcher, *keys)))
        return false;
    use_kept(*source);
    return true;
}

/* Ends the fetches under way. A new client resolves names as the policy says, and reads the
 * authorities again. */
static void change_client(struct key_fetcher *fetcher, bool wanted)
{
    for (unsigned i = 0; i < fetcher->count; i++) {
        https_get_cancel(fetcher->sources[i]->get);
        fetcher->sources[i]->get = NULL;
    }
    https_client_free(fetcher->client);
    fetcher->client = wanted ? https_client_new(fetcher->base, &fetcher->policy->resolver) : NULL;
}

/* Replaces the sources by those of the policy. */
static void change_sources(struct key_fetcher *fetcher, struct jwt_settings *jwt, bool wanted)
{
    struct fetched_url *next[KEY_URLS_MAX];
    unsigned count = 0;

    for (unsigned i = 0; wanted && i < jwt->remote_count; i++) {
        if (use(fetcher, &jwt->remote[i], &next[count]))
            next[count++]->of_policy = true;
        else
            log_error("keys %s: out of memory: they are not fetched until the next reload",
                      remote_keys_url(jwt->remote[i]));
    }
    for (unsigned i = 0; i < fetcher->count; i++)
        if (!fetcher->sources[i]->of_policy)
            source_free(fetcher->sources[i]);
    for (unsigned i = 0; i < count; i++) {
        next[i]->of_policy = false;
        fetcher->sources[i] = next[i];
    }
    fetcher->count = count;
}

void key_fetcher_apply(struct key_fetcher *fetcher, struct policy *policy)
{
    struct jwt_settings *jwt = &policy->identity.jwt;
    bool wanted = policy->identity.claim_count && jwt->remote_count;
    struct policy *before = fetcher->policy;

    fetcher->policy = policy_hold(policy);
    change_client(fetcher, wanted);
    change_sources(fetcher, jwt, wanted);
    policy_drop(before);
    for (unsigned i = 0; i < fetcher->count; i++)
        fetch(fetcher->sources[i]);
}

unsigned key_fetcher_list(const struct key_fetcher *fetcher,
                          struct key_status status[static KEY_URLS_MAX])
{
    unsigned count = fetcher ? fetcher->count : 0;

    for (unsigned i = 0; i < count; i++) {
        const struct fetched_url *source = fetcher->sources[i];
        status[i] = (struct key_status){.url = remote_keys_url(source->keys),
                                        .why = source->failing_us ? source->why : NULL,
                                        .has_keys = source->fetched_wall_us != 0,
                                        .age_us = age_us(source),
                                        .fetches_good = source->good,
                                        .fetches_failed = source->failed};
    }
    return count;
}

/* ---- create and free ------------------------------------------------------------------------- */

struct key_fetcher *key_fetcher_new(struct event_base *base, void (*changed)(void *context),
                                    void *context)
{
    struct key_fetcher *fetcher = calloc(1, sizeof *fetcher);

    if (!fetcher)
        return NULL;
    fetcher->base = base;
    fetcher->changed = changed;
    fetcher->context = context;
    fetcher->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fetcher->wake_fd >= 0)
        fetcher->wake = event_new(base, fetcher->wake_fd, EV_READ | EV_PERSIST, on_wake, fetcher);
    if (fetcher->wake && event_add(fetcher->wake, NULL) == 0)
        return fetcher;
    key_fetcher_free(fetcher);
    return NULL;
}

void key_fetcher_free(struct key_fetcher *fetcher)
{
    if (!fetcher)
        return;
    for (unsigned i = 0; i < fetcher->count; i++)
        source_free(fetcher->sources[i]);
    https_client_free(fetcher->client);
    event_drop(fetcher->wake);
    if (fetcher->wake_fd >= 0)
        close(fetcher->wake_fd);
    policy_drop(fetcher->policy);
    free(fetcher);
}
