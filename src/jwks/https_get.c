#include "config.h"

#ifdef HAVE_LIBCURL

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/event_timer.h"
#include "base/magic.h"
#include "jwks/https_get.h"
#include "jwks/key_url.h"

static const char out_of_memory[] = "out of memory";

enum { GET_MAGIC = 0x48474554, WHY_MAX = 2 * CURL_ERROR_SIZE };

struct https_client {
    struct event_base *base;
    CURLM *multi;
    struct event *timer; /* libcurl's */
    const struct resolver_settings *names;
    struct resolver *resolver; /* NULL: no URL has had a name */
};

struct https_get {
    uint32_t magic;
    struct https_client *client;
    char *url; /* of the current hop */
    const char *ca;
    struct event *deadline;
    struct dns_lookup *lookup; /* NULL: no lookup is in flight */
    CURL *easy;                /* NULL: libcurl does nothing */
    struct curl_slist *addresses;
    unsigned redirects;
    char *content;
    size_t size, header_size;
    bool too_large;
    struct freshness freshness;
    void (*ended)(void *context, const struct https_result *result);
    void *context;
    char error[CURL_ERROR_SIZE], why[WHY_MAX];
};

bool https_is_there(void)
{
    return true;
}

/* ---- the end of a fetch ---------------------------------------------------------------------- */

static void drop_transfer(struct https_get *get)
{
    if (get->easy) {
        curl_multi_remove_handle(get->client->multi, get->easy);
        curl_easy_cleanup(get->easy);
    }
    curl_slist_free_all(get->addresses);
    get->easy = NULL;
    get->addresses = NULL;
}

void https_get_cancel(struct https_get *get)
{
    if (!get)
        return;
    if (get->lookup)
        lookup_cancel(get->lookup);
    drop_transfer(get);
    event_drop(get->deadline);
    MAGIC_WIPE(get);
    free(get->content);
    free(get->url);
    free(get);
}

/* `why` NULL: the content is complete. */
static void end_fetch(struct https_get *get, const char *why)
{
    const struct https_result result = {
        .why = why, .content = {get->content, get->size}, .freshness = get->freshness};

    drop_transfer(get);
    get->ended(get->context, &result);
    https_get_cancel(get);
}

static void on_deadline(evutil_socket_t fd, short what, void *arg)
{
    struct https_get *get = arg;
    (void)fd, (void)what;

    MAGIC_CHECK(get, GET_MAGIC);
    snprintf(get->why, sizeof get->why, "no complete response within %d s", HTTPS_GET_US / 1000000);
    end_fetch(get, get->why);
}

/* ---- one transfer ---------------------------------------------------------------------------- */

static size_t on_content(char *bytes, size_t one, size_t n, void *arg)
{
    struct https_get *get = arg;

    MAGIC_CHECK(get, GET_MAGIC);
    get->too_large = one * n > HTTPS_CONTENT_MAX - get->size;
    if (get->too_large || (!get->content && !(get->content = malloc(HTTPS_CONTENT_MAX))))
        return 0; /* ends the transfer */
    memcpy(get->content + get->size, bytes, one * n);
    get->size += one * n;
    return one * n;
}

static size_t on_field(char *line, size_t one, size_t n, void *arg)
{
    struct https_get *get = arg;

    MAGIC_CHECK(get, GET_MAGIC);
    get->header_size += one * n;
    get->too_large = get->header_size > HTTPS_HEADER_MAX;
    freshness_read(&get->freshness, (struct slice){line, one * n});
    return get->too_large ? 0 : one * n;
}

static CURL *transfer_new(struct https_get *get)
{
    CURL *easy = curl_easy_init();
    bool good = easy != NULL;

#define SET(option, value) good = good && curl_easy_setopt(easy, option, value) == CURLE_OK
    SET(CURLOPT_URL, get->url);
    SET(CURLOPT_PRIVATE, get);
    SET(CURLOPT_WRITEFUNCTION, on_content);
    SET(CURLOPT_WRITEDATA, get);
    SET(CURLOPT_HEADERFUNCTION, on_field);
    SET(CURLOPT_HEADERDATA, get);
    SET(CURLOPT_ERRORBUFFER, get->error);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_RESOLVE, get->addresses);
    SET(CURLOPT_FOLLOWLOCATION, 0L); /* https_get.c follows: the next name must be resolved */
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_SSL_VERIFYPEER, 1L);
    SET(CURLOPT_SSL_VERIFYHOST, 2L);
    SET(CURLOPT_FORBID_REUSE, 1L);
    SET(CURLOPT_USERAGENT, PACKAGE_NAME "/" PACKAGE_VERSION);
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
#else
    SET(CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
    if (get->ca) {
        SET(CURLOPT_CAINFO, get->ca);
        SET(CURLOPT_CAPATH, NULL);
    }
#undef SET
    if (good)
        return easy;
    curl_easy_cleanup(easy);
    return NULL;
}

/* Returns false if out of memory. */
static bool begin_transfer(struct https_get *get)
{
    get->error[0] = 0;
    get->size = 0;
    get->freshness = (struct freshness){0};
    get->easy = transfer_new(get);
    if (get->easy && curl_multi_add_handle(get->client->multi, get->easy) == CURLM_OK)
        return true; /* libcurl's timer starts it */
    curl_easy_cleanup(get->easy);
    get->easy = NULL;
    return false;
}

/* ---- hops ------------------------------------------------------------------------------------ */

/* Gives libcurl the addresses of the name: "HOST:PORT:ADDRESS,ADDRESS". */
static bool give_addresses(struct https_get *get, const struct key_url *url,
                           const struct resolver_answer *answer)
{
    char bytes[HOST_NAME_BYTES_MAX + 16 + RESOLVED_MAX * 48];
    struct text text = text_over(bytes, sizeof bytes - 1);

    text_printf(&text, "%.*s:%u:", SLICE_ARG(url->host), url->port);
    for (unsigned i = 0; i < answer->count; i++) {
        text_put(&text, i ? SLICE(",") : SLICE_NONE);
        ip_format(&answer->ips[i], &text);
    }
    bytes[text.n] = 0;
    return (get->addresses = curl_slist_append(NULL, bytes)) != NULL;
}

static void on_transfer_end(void *context, const struct resolver_answer *answer)
{
    struct https_get *get = context;
    struct key_url url;
    const char *why;

    MAGIC_CHECK(get, GET_MAGIC);
    get->lookup = NULL;
    if (!key_url_parse(slice_of(get->url), &url, &why))
        end_fetch(get, why);
    else if (answer->count == 0) {
        snprintf(get->why, sizeof get->why, "%.*s: %s", SLICE_ARG(url.host),
                 answer->why ? answer->why : "it has no address");
        end_fetch(get, get->why);
    } else if (!give_addresses(get, &url, answer) || !begin_transfer(get))
        end_fetch(get, out_of_memory);
}

/* Returns false if out of memory. */
static bool begin_hop(struct https_get *get, const struct key_url *url)
{
    struct https_client *client = get->client;
    char host[HOST_NAME_BYTES_MAX + 1];

    if (url->is_ip)
        return begin_transfer(get);
    if (!client->resolver && !(client->resolver = resolver_new(client->base, client->names)))
        return false;
    snprintf(host, sizeof host, "%.*s", SLICE_ARG(url->host));
    get->lookup = resolver_look_up(client->resolver, host, on_transfer_end, get);
    return get->lookup != NULL;
}

/* Returns why the redirect is not followed, or NULL. */
static const char *follow(struct https_get *get)
{
    char *location = NULL, *copy;
    struct key_url from, to;
    const char *why;

    curl_easy_getinfo(get->easy, CURLINFO_REDIRECT_URL, &location);
    if (!location)
        return "the server redirects without a Location";
    if (get->redirects++ == HTTPS_REDIRECTS_MAX)
        return "the server redirects more than 3 times";
    if (!key_url_parse(slice_of(get->url), &from, &why) ||
        !key_url_parse(slice_of(location), &to, &why) || to.tls != from.tls)
        return "the server redirects to a URL of another scheme, or one that is not valid";
    if (!(copy = strdup(location)))
        return out_of_memory;
    drop_transfer(get);
    free(get->url);
    get->url = copy;
    return key_url_parse(slice_of(copy), &to, &why) && begin_hop(get, &to) ? NULL : out_of_memory;
}

static void on_completed(struct https_get *get, CURLcode code)
{
    const char *why = NULL;
    long status = 0;

    MAGIC_CHECK(get, GET_MAGIC);
    curl_easy_getinfo(get->easy, CURLINFO_RESPONSE_CODE, &status);
    if (get->too_large)
        why = "the response is larger than 256 KiB, or its header than 64 KiB";
    else if (code != CURLE_OK)
        why = get->error[0] ? get->error : curl_easy_strerror(code);
    else if (status / 100 == 3 && status != 304) {
        if (!(why = follow(get)))
            return;
    } else if (status != 200) {
        snprintf(get->why, sizeof get->why, "the server responds with status %ld", status);
        why = get->why;
    }
    end_fetch(get, why);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static void act(struct https_client *client, curl_socket_t fd, int what)
{
    struct https_get *get;
    CURLMsg *message;
    int running;

    (void)curl_multi_socket_action(client->multi, fd, what, &running);
    while ((message = curl_multi_info_read(client->multi, &running)))
        if (message->msg == CURLMSG_DONE) {
            CURLcode code = message->data.result; /* the message goes with the transfer */
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &get);
            on_completed(get, code);
        }
}

static void on_socket_ready(evutil_socket_t fd, short what, void *arg)
{
    act(arg, fd, (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0));
}

static void on_curl_timer(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    act(arg, CURL_SOCKET_TIMEOUT, 0);
}

/* libcurl wants to wait for this socket, or for it no longer. */
static int watch_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *of_socket)
{
    struct https_client *client = arg;
    struct event *event = of_socket;
    short events = (short)((what & CURL_POLL_IN ? EV_READ : 0) |
                           (what & CURL_POLL_OUT ? EV_WRITE : 0) | EV_PERSIST);
    (void)easy;

    event_drop(event);
    event = what == CURL_POLL_REMOVE ? NULL
                                     : event_new(client->base, fd, events, on_socket_ready, client);
    (void)curl_multi_assign(client->multi, fd, event);
    if (event) /* else no memory: the fetch ends at its deadline */
        event_add(event, NULL);
    return 0;
}

static int on_curl_timeout(CURLM *multi, long ms, void *arg)
{
    struct https_client *client = arg;
    (void)multi;

    if (ms < 0)
        event_del(client->timer);
    else
        event_timer_arm(client->timer, (uint64_t)ms * 1000);
    return 0;
}

/* ---- create and free ------------------------------------------------------------------------- */

struct https_client *https_client_new(struct event_base *base,
                                      const struct resolver_settings *names)
{
    struct https_client *client = calloc(1, sizeof *client);

    if (!client)
        return NULL;
    client->base = base;
    client->names = names;
    client->timer = evtimer_new(base, on_curl_timer, client);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        client->multi = curl_multi_init();
    if (client->timer && client->multi &&
        curl_multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, watch_socket) == CURLM_OK &&
        curl_multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client) == CURLM_OK &&
        curl_multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_curl_timeout) == CURLM_OK &&
        curl_multi_setopt(client->multi, CURLMOPT_TIMERDATA, client) == CURLM_OK)
        return client;
    https_client_free(client);
    return NULL;
}

void https_client_free(struct https_client *client)
{
    if (!client)
        return;
    if (client->multi)
        curl_multi_cleanup(client->multi);
    event_drop(client->timer);
    resolver_free(client->resolver);
    curl_global_cleanup();
    free(client);
}

struct https_get *https_get(struct https_client *client, const char *url, const char *ca,
                            void (*ended)(void *context, const struct https_result *result),
                            void *context)
{
    struct https_get *get = calloc(1, sizeof *get);
    struct key_url parsed;
    const char *why;

    if (!get)
        return NULL;
    MAGIC_SET(get, GET_MAGIC);
    get->client = client;
    get->ca = ca;
    get->ended = ended;
    get->context = context;
    get->url = strdup(url);
    get->deadline = evtimer_new(client->base, on_deadline, get);
    if (get->url && get->deadline && key_url_parse(slice_of(get->url), &parsed, &why) &&
        begin_hop(get, &parsed)) {
        event_timer_arm(get->deadline, HTTPS_GET_US);
        return get;
    }
    https_get_cancel(get);
    return NULL;
}

#endif
