/* check_jwks.c - keys by URL: URLs, Cache-Control, documents of hostile issuers, the kept file, and
 * when keys are fetched. https_get() is replaced here, and time advances by itself. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "fault/test_clock.h"
#include "jwks/https_get.h"
#include "jwks/kept_keys.h"
#include "jwks/key_fetcher.h"
#include "jwks/key_url.h"
#include "policy/jwt_internal.h"
#include "policy/remote_keys.h"
#include "run_suite.h"

/* --- URLs --- */

static const char *url_fault(const char *text)
{
    struct key_url url;
    const char *why = "";
    return key_url_parse(slice_of(text), &url, &why) ? "" : why;
}

START_TEST(urls_are_parsed)
{
    struct key_url url;
    const char *why;

    ck_assert(key_url_parse(SLICE("HTTPS://id.example.com/jwks?a=b"), &url, &why));
    ck_assert(slice_equal(url.host, SLICE("id.example.com")));
    ck_assert(url.tls && !url.is_ip && url.port == 443);
    ck_assert(key_url_parse(SLICE("https://id:8443"), &url, &why) && url.port == 8443);
    ck_assert(key_url_parse(SLICE("https://[2001:db8::1]:9/"), &url, &why));
    ck_assert(slice_equal(url.host, SLICE("2001:db8::1")) && url.is_ip && url.port == 9);
    ck_assert(key_url_parse(SLICE("https://[2001:db8::1]"), &url, &why) && url.port == 443);
    const char *const loopback[] = {"http://localhost/", "http://127.0.0.1:80/a",
                                    "http://127.9.9.9", "http://[::1]:8080/jwks"};
    for (size_t i = 0; i < COUNT_OF(loopback); i++)
        ck_assert_msg(!*url_fault(loopback[i]), "%s", loopback[i]);
}
END_TEST

START_TEST(other_urls_are_refused)
{
    static const struct {
        const char *url, *why;
    } bad[] = {
        {"ftp://id/", "https://"},
        {"https:/id/", "https://"},
        {"https://", "host"},
        {"https:///jwks", "host"},
        {"https://:443/", "host"},
        {"https://id:0/", "host"},
        {"https://id:65536/", "host"},
        {"https://id:x/", "host"},
        {"https://a b/", "percent"},
        {"https://id/a b", "percent"},
        {"https://id/#a", "fragment"},
        {"https://id\\@evil/", "user"},
        {"https://id\\evil/", "percent"},
        {"https://u:p@id/", "user"},
        {"https://id/\xc3\xa4", "percent"},
        {"https://256.1.1.1/", "host"},
        {"https://%69d/", "host"},
        {"https://0x7f000001/", "host"},
        {"https://id.0X7f:8443/", "host"},
        {"https://id.example.com./", "host"},
        {"http://id/", "not encrypted"},
        {"http://localhost.example.com/", "not encrypted"},
        {"http://128.0.0.1/", "not encrypted"},
        {"http://[::2]/", "not encrypted"},
    };
    for (size_t i = 0; i < COUNT_OF(bad); i++)
        ck_assert_msg(strstr(url_fault(bad[i].url), bad[i].why), "%s: %s", bad[i].url,
                      url_fault(bad[i].url));
    ck_assert(key_url_is_one(SLICE("ftp://x")) && !key_url_is_one(SLICE("/keys://x")) &&
              !key_url_is_one(SLICE("jwks.json")));
}
END_TEST

/* --- Cache-Control --- */

START_TEST(freshness_follows_the_fields)
{
    static const struct {
        const char *fields[3];
        int64_t seconds; /* -1: not limited */
    } cases[] = {
        {{"Content-Type: a"}, -1},
        {{"Cache-Control: public"}, -1},
        {{"Cache-Control: max-age=300"}, 300},
        {{"cache-control:public,MAX-AGE=\"300\" , must-revalidate\r\n"}, 300},
        {{"Cache-Control: max-age=300, max-age=20"}, 20},
        {{"Cache-Control: max-age=20", "Cache-Control: max-age=300"}, 20},
        {{"Cache-Control: no-cache"}, 0},
        {{"Cache-Control: no-store, max-age=300"}, 0},
        {{"Cache-Control: no-cache=\"a, max-age=9\""}, 0},
        {{"Cache-Control: a=\"max-age=5, \\\", b\", max-age=7"}, 7},
        {{"Cache-Control: max-age=-1"}, 0},
        {{"Cache-Control: max-age"}, 0},
        {{"Cache-Control: max-age=1.5"}, 0},
        {{"Cache-Control: max-age=99999999999999999999999"}, FRESHNESS_MAX_S},
        {{"Cache-Control: ,,max-age=4,,"}, 4},
        {{"Cache-Control: max-age=300", "Age: 100"}, 200},
        {{"Age: 400", "Cache-Control: max-age=300"}, 0},
        {{"Age: x", "Cache-Control: max-age=300"}, 300},
        {{"Cache-Control", "", ":"}, -1},
        {{"Cache-Control: \"max-age=5", "Cache-Control: \\"}, -1},
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct freshness freshness = {0};
        for (size_t f = 0; f < 3 && cases[i].fields[f]; f++)
            freshness_read(&freshness, slice_of(cases[i].fields[f]));
        int64_t seconds = freshness.limited ? (int64_t)freshness_seconds(&freshness) : -1;
        ck_assert_msg(seconds == cases[i].seconds, "%s: %lld", cases[i].fields[0],
                      (long long)seconds);
    }
}
END_TEST

/* --- the kept file --- */

static char directory[64];

static void make_directory(void)
{
    snprintf(directory, sizeof directory, "/tmp/weir-jwks-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
}

/* Runs a command with the directory as $1. */
static int in_directory(const char *command)
{
    char line[256];
    snprintf(line, sizeof line, "set -- %s; %s", directory, command);
    return system(line);
}

static const char *read_kept(const char *url)
{
    static char why[KEPT_WHY_MAX];
    struct slice content = SLICE_NONE;
    uint64_t at = 0;
    char *bytes;

    if (!kept_keys_read(directory, url, &bytes, &content, &at, why))
        return why[0] ? why : "none";
    ck_assert(at == 1764161656000000);
    bool same = slice_equal(content, SLICE("{}\nx"));
    free(bytes);
    return same ? "good" : "other content";
}

START_TEST(a_kept_file_is_read_only_if_it_is_whole_and_safe)
{
    const char *url = "https://id/jwks";
    char why[KEPT_WHY_MAX];

    make_directory();
    ck_assert_str_eq(read_kept(url), "none");
    ck_assert_int_eq(in_directory("touch $1/x.new"), 0);
    for (int i = 0; i < 2; i++)
        ck_assert(kept_keys_write(directory, url, 1764161656000000, SLICE("{}\nx"), why));
    ck_assert_str_eq(read_kept(url), "good");
    ck_assert_str_eq(read_kept("https://id/jwkt"), "none");
    ck_assert_int_eq(in_directory("test $(stat -c %a $1/keys-*) = 600"), 0);
    ck_assert_int_eq(in_directory("test $(ls $1 | wc -l) = 2"), 0);
    ck_assert_int_eq(in_directory("chmod 620 $1/keys-*"), 0);
    ck_assert_ptr_nonnull(strstr(read_kept(url), "others may write to it"));
    ck_assert_int_eq(
        in_directory("chmod 600 $1/keys-*; cp $1/keys-* $1/real; sed -i s/jwks/jwkx/ $1/keys-*"),
        0);
    ck_assert_ptr_nonnull(strstr(read_kept(url), "not the one of this URL"));
    ck_assert_int_eq(in_directory("printf weir-keys >$(ls $1/keys-*)"), 0);
    ck_assert_ptr_nonnull(strstr(read_kept(url), "not one that weir has written"));
    ck_assert_int_eq(in_directory("truncate -s 300000 $1/keys-*"), 0);
    ck_assert_ptr_nonnull(strstr(read_kept(url), "too large"));
    ck_assert_int_eq(in_directory("f=$(echo $1/keys-*); rm $f; ln -s $1/real $f"), 0);
    ck_assert_ptr_nonnull(strstr(read_kept(url), "symbolic links"));
    ck_assert_int_eq(in_directory("f=$(echo $1/keys-*); rm $f; mkfifo $f"), 0);
    ck_assert_ptr_nonnull(strstr(read_kept(url), "no file"));
    ck_assert(kept_keys_write(directory, url, 1764161656000000, SLICE("{}\nx"), why));
    ck_assert_str_eq(read_kept(url), "good");
    ck_assert_int_eq(in_directory("rm -r $1"), 0);
    ck_assert(!kept_keys_write(directory, url, 0, SLICE("x"), why));
    ck_assert_msg(strstr(why, directory) && strstr(why, "No such file"), "%s", why);
}
END_TEST

/* --- when keys are fetched: a server in place of https_get.c --- */

#define KEY(kid)                                                                                   \
    "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":\"" kid                                          \
    "\",\"x\":\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}"
#define SET(keys) "{\"keys\":[" keys "]}"
#define SECRET_KEY                                                                                 \
    "{\"kty\":\"oct\",\"kid\":\"s\",\"k\":"                                                        \
    "\"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow\"}"

struct https_get {
    struct event *timer;
    void (*ended)(void *context, const struct https_result *result);
    void *context;
};

static struct https_result next; /* what the server responds */
static unsigned fetches, changes;
static struct event_base *base;
static struct policy *policy;
static struct key_fetcher *fetcher;

bool https_is_there(void)
{
    return true;
}

struct https_client *https_client_new(struct event_base *event_base,
                                      const struct resolver_settings *names)
{
    ck_assert_uint_eq(names->timeout_us, 1000000);
    return (struct https_client *)event_base;
}

void https_client_free(struct https_client *client)
{
    (void)client;
}

static void on_response(evutil_socket_t fd, short what, void *arg)
{
    struct https_get *get = arg;
    (void)fd, (void)what;

    get->ended(get->context, &next);
    https_get_cancel(get);
}

struct https_get *https_get(struct https_client *client, const char *url, const char *ca,
                            void (*ended)(void *context, const struct https_result *result),
                            void *context)
{
    static const struct timeval soon = {0, 100000};
    struct https_get *get = calloc(1, sizeof *get);

    ck_assert(client && !ca && strncmp(url, "https://", 8) == 0);
    get->ended = ended;
    get->context = context;
    get->timer = evtimer_new(base, on_response, get);
    event_add(get->timer, &soon);
    fetches++;
    return get;
}

void https_get_cancel(struct https_get *get)
{
    if (!get)
        return;
    event_free(get->timer);
    free(get);
}

static void on_changed(void *context)
{
    (void)context;
    changes++;
}

static struct policy *policy_of(const char *url)
{
    static const struct identity_from from;
    struct policy *made = policy_new("weir.yaml");

    made->resolver.timeout_us = 1000000;
    made->identity.claims[0] = &from;
    made->identity.claim_count = 1;
    made->identity.jwt.refresh_us = UINT64_C(600) * 1000000; /* check(3) counts at most 4294 s */
    made->identity.jwt.remote[0] = remote_keys_new(url, NULL);
    made->identity.jwt.remote_count = 1;
    return made;
}

static void begin(const char *json)
{
    unsetenv("STATE_DIRECTORY");
    test_clock_skip_waits(true);
    base = event_base_new();
    next = (struct https_result){.content = slice_of(json)};
    policy = policy_of("https://id/jwks");
    fetcher = key_fetcher_new(base, on_changed, NULL);
    key_fetcher_apply(fetcher, policy);
}

static void end(void)
{
    key_fetcher_free(fetcher);
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
    event_base_free(base);
    policy_drop(policy);
}

static void on_time(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what, (void)arg;
    event_base_loopbreak(base);
}

/* Lets so much time pass. */
static void pass(unsigned seconds)
{
    struct timeval time = {(time_t)seconds, 0};
    struct event *timer = evtimer_new(base, on_time, NULL);

    event_add(timer, &time);
    event_base_dispatch(base);
    event_free(timer);
}

static struct key_status status_now(void)
{
    struct key_status status[KEY_URLS_MAX];
    ck_assert_uint_eq(key_fetcher_list(fetcher, status), 1);
    return status[0];
}

static unsigned keys_now(void)
{
    struct remote_hold hold = {0};
    unsigned count = 0;

    if (remote_keys_update(policy->identity.jwt.remote[0], &hold))
        count = hold.keys->count;
    remote_keys_let_go(&hold);
    return count;
}

START_TEST(keys_are_fetched_at_start_and_after_refresh)
{
    begin(SET(KEY("a")));
    ck_assert(!remote_keys_were_tried(policy->identity.jwt.remote[0]));
    ck_assert(!status_now().has_keys && !status_now().why);
    pass(1);
    ck_assert(status_now().has_keys && keys_now() == 1 && changes == 1);
    ck_assert(remote_keys_were_tried(policy->identity.jwt.remote[0]));
    pass(590);
    ck_assert_uint_eq(fetches, 1);
    next.content = SLICE(SET(KEY("a") "," KEY("b")));
    pass(20);
    ck_assert(fetches == 2 && keys_now() == 2);
    end();
}
END_TEST

START_TEST(cache_control_shortens_refresh_down_to_a_minute)
{
    begin(SET(KEY("a")));
    next.freshness = (struct freshness){.limited = true, .max_age_s = 300, .age_s = 100};
    pass(190);
    ck_assert_uint_eq(fetches, 1);
    next.freshness = (struct freshness){.limited = true};
    pass(20); /* 200 s after the first */
    ck_assert_uint_eq(fetches, 2);
    pass(40);
    ck_assert_uint_eq(fetches, 2);
    next.freshness = (struct freshness){.limited = true, .max_age_s = 1000000};
    pass(20); /* 60 s after the second */
    ck_assert_uint_eq(fetches, 3);
    pass(560);
    ck_assert_uint_eq(fetches, 3);
    pass(50);
    ck_assert_uint_eq(fetches, 4);
    end();
}
END_TEST

START_TEST(failures_keep_the_keys_and_are_repeated)
{
    begin(SET(KEY("a")));
    pass(1);
    next.why = "broken";
    pass(600);
    unsigned first = fetches;
    ck_assert(first >= 2 && strcmp(status_now().why, "broken") == 0);
    ck_assert(status_now().has_keys && keys_now() == 1);
    pass(600);
    ck_assert_uint_ge(fetches - first, 600 / 31);
    ck_assert_uint_le(fetches - first, 600 / 15 + 8);
    ck_assert_uint_ge(status_now().age_us, UINT64_C(1190) * 1000000);
    next.why = NULL;
    pass(31);
    ck_assert(!status_now().why && status_now().age_us < UINT64_C(31) * 1000000);
    first = fetches;
    pass(500);
    ck_assert_uint_eq(fetches, first);
    end();
}
END_TEST

/* Documents that are no sets, or from which no key may be used, keep the keys before them. */
static const struct {
    const char *json, *why;
} useless[] = {
    {"", "JSON"},
    {"null", "JSON"},
    {"[]", "JSON"},
    {"{}", "\"keys\""},
    {"{\"keys\":{}}", "\"keys\""},
    {"{\"keys\":5}", "\"keys\""},
    {SET(""), "empty"},
    {SET("1,null,\"x\",[]"), "no object"},
    {SET("{}"), "kty"},
    {SET("{\"kty\":7}"), "kty"},
    {SET(SECRET_KEY), "secret"},
    {SET("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"d\":\"AA\",\"x\":"
         "\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}"),
     "private"},
    {SET("{\"kty\":\"RSA\",\"use\":\"enc\"}"), "signatures"},
    {SET("{\"kty\":\"OKP\",\"alg\":\"ES256\"}"), "alg"},
    {SET("{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"kid\":{},\"x\":"
         "\"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo\"}"),
     "kid"},
    {SET(KEY("a") "," KEY("a")), "kid and the algorithm"},
    {"{\"keys\":[],\"keys\":[" KEY("a") "]}", "duplicate"},
    {SET(KEY("a")) "x", "JSON"},
    {SET(KEY("a\\u0000")), "JSON"},
};

START_TEST(useless_documents_are_failures)
{
    begin(SET(KEY("old") "," KEY("older")));
    pass(1);
    next.content = slice_of(useless[_i].json);
    pass(600);
    ck_assert(keys_now() == 2 && status_now().has_keys);
    ck_assert_msg(status_now().why && strstr(status_now().why, useless[_i].why), "%s: %s",
                  useless[_i].json, status_now().why);
    end();
}
END_TEST

START_TEST(other_keys_of_a_set_are_used)
{
    begin(SET(SECRET_KEY "," KEY("a") ",{}," KEY("b")));
    pass(1);
    ck_assert(keys_now() == 2 && !status_now().why);
    end();
}
END_TEST

static void want(void)
{
    remote_keys_want(policy->identity.jwt.remote[0]);
    (void)event_base_loop(base, EVLOOP_NONBLOCK);
}

START_TEST(an_unknown_key_is_fetched_at_once_but_every_30_seconds)
{
    const struct remote_keys *remote;

    begin(SET(KEY("a")));
    test_clock_stand(true); /* only pass() advances it */
    remote = policy->identity.jwt.remote[0];
    ck_assert(remote_keys_may_come(remote));
    pass(1);
    ck_assert(!remote_keys_may_come(remote)); /* nobody has requested it */
    want();
    ck_assert(fetches == 2 && remote_keys_may_come(remote));
    pass(1);
    ck_assert(!remote_keys_may_come(remote));
    for (unsigned second = 0; second < 28; second++) {
        pass(1);
        ck_assert(!remote_keys_may_come(remote));
        for (unsigned i = 0; i < 100; i++)
            want();
    }
    ck_assert_uint_eq(fetches, 2);
    pass(2);
    ck_assert_uint_eq(fetches, 3);
    for (unsigned second = 0; second < 300; second++) {
        want();
        pass(1);
    }
    ck_assert_uint_ge(fetches, 3 + 9);
    ck_assert_uint_le(fetches, 3 + 10);
    unsigned before = fetches;
    pass(100); /* at most what was requested before */
    ck_assert_uint_le(fetches, before + 1);
    before = fetches;
    want();
    ck_assert_uint_eq(fetches, before + 1);
    next.why = "broken"; /* retries after 1, 2, 4, 8 s ... are not delayed */
    pass(1);
    want();
    pass(3);
    ck_assert_uint_ge(fetches, before + 2);
    test_clock_stand(false);
    end();
}
END_TEST

START_TEST(a_reload_keeps_the_keys_of_the_same_url_only)
{
    begin(SET(KEY("a")));
    pass(1);
    struct policy *same = policy_of("https://id/jwks"), *other = policy_of("https://id/other");
    struct policy *none = policy_of("https://id/other");
    struct key_status status[KEY_URLS_MAX];
    none->identity.claim_count = 0;
    next.why = "broken";
    key_fetcher_apply(fetcher, same);
    policy_drop(policy);
    policy = same;
    ck_assert(keys_now() == 1);
    pass(1);
    ck_assert(keys_now() == 1 && status_now().why && status_now().fetches_good == 1);
    key_fetcher_apply(fetcher, other);
    ck_assert(keys_now() == 1 && !status_now().has_keys);
    policy_drop(policy);
    policy = other;
    ck_assert(keys_now() == 0);
    pass(1);
    key_fetcher_apply(fetcher, none);
    ck_assert_uint_eq(key_fetcher_list(fetcher, status), 0);
    policy_drop(none);
    end();
}
END_TEST

START_TEST(kept_keys_are_used_until_the_first_fetch)
{
    make_directory();
    begin(SET(KEY("a")));
    end();
    fetches = 0;
    setenv("STATE_DIRECTORY", directory, 1);
    base = event_base_new();
    policy = policy_of("https://id/jwks");
    fetcher = key_fetcher_new(base, on_changed, NULL);
    key_fetcher_apply(fetcher, policy);
    ck_assert(!status_now().has_keys);
    pass(1);
    ck_assert_int_eq(in_directory("test -f $1/keys-*"), 0);
    end();
    test_clock_advance_us(1000000000);
    base = event_base_new();
    next.why = "broken";
    policy = policy_of("https://id/jwks");
    fetcher = key_fetcher_new(base, on_changed, NULL);
    key_fetcher_apply(fetcher, policy);
    ck_assert(status_now().has_keys && keys_now() == 1);
    ck_assert(remote_keys_were_tried(policy->identity.jwt.remote[0]));
    ck_assert_uint_ge(status_now().age_us, 1000000000);
    pass(1);
    ck_assert(keys_now() == 1 && status_now().why);
    end();
    ck_assert_int_eq(in_directory("rm -r $1"), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jwks");
    TCase *tcase = tcase_create("jwks");

    tcase_add_test(tcase, urls_are_parsed);
    tcase_add_test(tcase, other_urls_are_refused);
    tcase_add_test(tcase, freshness_follows_the_fields);
    tcase_add_test(tcase, a_kept_file_is_read_only_if_it_is_whole_and_safe);
    tcase_add_test(tcase, keys_are_fetched_at_start_and_after_refresh);
    tcase_add_test(tcase, cache_control_shortens_refresh_down_to_a_minute);
    tcase_add_test(tcase, failures_keep_the_keys_and_are_repeated);
    tcase_add_loop_test(tcase, useless_documents_are_failures, 0, COUNT_OF(useless));
    tcase_add_test(tcase, other_keys_of_a_set_are_used);
    tcase_add_test(tcase, an_unknown_key_is_fetched_at_once_but_every_30_seconds);
    tcase_add_test(tcase, a_reload_keeps_the_keys_of_the_same_url_only);
    tcase_add_test(tcase, kept_keys_are_used_until_the_first_fetch);
    suite_add_tcase(suite, tcase);
    return run_suite_in_processes(suite);
}
