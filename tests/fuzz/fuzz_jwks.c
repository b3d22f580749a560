/* The first line of the input is the URL of a JWK set, the rest are field lines of its response.
 * Properties: no read past the end; libcurl takes an accepted URL for the same host and port, so
 * that it asks the server whose name weir has resolved, and http:// never leaves the machine; a
 * time is within its bounds. */
#include "config.h"
#include "fuzz.h"
#include "jwks/freshness.h"
#include "jwks/key_url.h"

#ifdef HAVE_LIBCURL
#include <curl/curl.h>

static char *part(CURLU *parsed, CURLUPart what, unsigned flags)
{
    char *text = NULL;

    PROPERTY(curl_url_get(parsed, what, &text, flags) == CURLUE_OK);
    return text;
}

/* libcurl may refuse the URL: then it fetches nothing. */
static void compare(const char *text, const struct key_url *url)
{
    CURLU *parsed = curl_url();
    char *user = NULL;

    if (curl_url_set(parsed, CURLUPART_URL, text, 0) == CURLUE_OK) {
        char *scheme = part(parsed, CURLUPART_SCHEME, 0), *host = part(parsed, CURLUPART_HOST, 0),
             *port = part(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT);
        struct slice name = slice_of(host);
        struct ip ip;
        if (name.p[0] == '[')
            name = (struct slice){name.p + 1, name.n - 2};
        PROPERTY(strcmp(scheme, url->tls ? "https" : "http") == 0);
        PROPERTY(url->is_ip ? ip_parse(name, &ip) && memcmp(&ip, &url->ip, sizeof ip) == 0
                            : slice_equal_nocase(name, url->host));
        PROPERTY(atoi(port) == url->port);
        PROPERTY(curl_url_get(parsed, CURLUPART_USER, &user, 0) != CURLUE_OK);
        curl_free(scheme);
        curl_free(host);
        curl_free(port);
    }
    curl_url_cleanup(parsed);
}
#else
static void compare(const char *text, const struct key_url *url)
{
    (void)text, (void)url;
}
#endif

static void check_url(const uint8_t *data, size_t size)
{
    char *bytes = fuzz_copy(data, size), *text;
    struct slice whole = {bytes, size};
    struct key_url url;
    const char *why = NULL;

    if (key_url_parse(whole, &url, &why)) {
        PROPERTY(key_url_is_one(whole) && url.host.n && url.port);
        PROPERTY(url.host.p >= bytes && url.host.p + url.host.n <= bytes + size);
        text = calloc(1, size + 1);
        PROPERTY(text);
        memcpy(text, bytes, size);
        compare(text, &url);
        free(text);
    } else
        PROPERTY(why != NULL);
    free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;
    size_t first = end ? (size_t)(end - data) : size;
    struct freshness freshness = {0};

    check_url(data, first);
    for (size_t at = first + 1; at < size;) {
        end = memchr(data + at, '\n', size - at);
        size_t n = end ? (size_t)(end - data) + 1 - at : size - at;
        char *line = fuzz_copy(data + at, n);
        freshness_read(&freshness, (struct slice){line, n});
        free(line);
        at += n;
    }
    PROPERTY(freshness.max_age_s <= FRESHNESS_MAX_S && freshness.age_s <= FRESHNESS_MAX_S);
    PROPERTY(freshness.limited || freshness.max_age_s == 0);
    PROPERTY(freshness_seconds(&freshness) <= freshness.max_age_s);
    return 0;
}
