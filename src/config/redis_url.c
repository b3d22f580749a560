/* redis_url.c - parses redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], as accepted by Redis
 * clients (https://www.iana.org/assignments/uri-schemes/prov/redis). rediss:// is the same with
 * TLS. */
#include "config/sections.h"
#include "http/chars.h"
#include "net/tls.h"

enum { REDIS_PORT_TEXT_MAX = 6, DATABASE_MAX = 65535 };

/* URL schemes are case-insensitive (RFC 3986 section 3.1). */
bool redis_url_is_one(struct slice text)
{
    return slice_starts_with_nocase(text, SLICE("redis://")) ||
           slice_starts_with_nocase(text, SLICE("rediss://"));
}

/* Splits `rest` at the first `c`: `before` gets the bytes before it. Returns false without `c`. */
static bool split_at(struct slice *rest, char c, struct slice *before)
{
    const char *at = rest->n ? memchr(rest->p, c, rest->n) : NULL;

    if (!at)
        return false;
    *before = (struct slice){rest->p, (size_t)(at - rest->p)};
    *rest = (struct slice){at + 1, rest->n - before->n - 1};
    return true;
}

/* Decodes percent codes (RFC 3986 section 2.1). NULL: invalid code or control byte. */
static char *decoded(struct arena *arena, struct slice text)
{
    char *out = arena_zeroed(arena, text.n + 1, 1);
    size_t n = 0;

    for (size_t i = 0; i < text.n; i++, n++) {
        bool escaped = text.p[i] == '%';
        int code =
            escaped ? percent_code_at(text.p + i, text.p + text.n) : (unsigned char)text.p[i];
        if (code < 0 || !char_is((char)code, CHAR_TEXT))
            return NULL;
        out[n] = (char)code;
        i += escaped ? 2 : 0;
    }
    return out;
}

/* Reads USER, :PASSWORD or USER:PASSWORD. Errors do not print any part of it. */
static bool read_user(struct loading *l, const struct node *node, struct slice user,
                      struct redis_url *url)
{
    struct slice password = user;

    if (!split_at(&password, ':', &user) || password.n == 0) {
        mistake(l, node,
                "names a user without a password; expected redis://USER:PASSWORD@HOST:PORT");
        return false;
    }
    url->username = user.n ? decoded(l->arena, user) : NULL;
    url->password = decoded(l->arena, password);
    note_secret(l, node);
    if (url->password && (user.n == 0 || url->username))
        return true;
    mistake(l, node,
            "the user or password has an invalid percent code or a control byte; write %% as %%25");
    return false;
}

/* Returns "host", "host:port" or "[ipv6]:port" with the default port added if missing. */
static struct slice with_port(struct loading *l, struct slice position)
{
    struct slice rest = position;

    while (rest.n && memchr(rest.p, ']', rest.n)) {
        rest.p++;
        rest.n--;
    }
    if (position.n && memchr(rest.n ? rest.p : "", ':', rest.n))
        return position;
    char *text = arena_zeroed(l->arena, position.n + REDIS_PORT_TEXT_MAX, 1);
    memcpy(text, position.p, position.n);
    memcpy(text + position.n, ":6379", sizeof ":6379");
    return (struct slice){text, position.n + 5};
}

static bool read_database(struct loading *l, const struct node *node, struct slice text,
                          struct redis_url *url)
{
    uint64_t number = 0;

    if (text.n && !slice_to_u64(text, DATABASE_MAX, &number)) {
        mistake(l, node, "expected only a database number after the host, as in /0");
        return false;
    }
    url->database = (unsigned)number;
    url->has_database = text.n > 0;
    return true;
}

bool redis_url_read(struct loading *l, const struct node *node, struct redis_url *url,
                    struct slice *host_port)
{
    struct slice rest = node->text, user, host = SLICE_NONE;

    *url = (struct redis_url){.given = true,
                              .secure = slice_starts_with_nocase(rest, SLICE("rediss://"))};
    rest.p += url->secure ? sizeof "rediss://" - 1 : sizeof "redis://" - 1;
    rest.n -= (size_t)(rest.p - node->text.p);
    const char *at = memrchr(rest.p, '@', rest.n);
    if (at) {
        user = (struct slice){rest.p, (size_t)(at - rest.p)};
        rest = (struct slice){at + 1, rest.n - user.n - 1};
        if (!read_user(l, node, user, url))
            return false;
    }
    if (split_at(&rest, '/', &host) && !read_database(l, node, rest, url))
        return false;
    *host_port = with_port(l, host.p == NULL ? rest : host);
    return true;
}

/* Reports a value that is set both in the URL and by its own option. */
static bool is_written_twice(struct loading *l, const char *key, bool in_url)
{
    const struct node *node = in_url ? node_at(l, "redis", key) : NULL;

    if (!node || node->null)
        return false;
    mistake(l, node, "is also set in redis.address; remove one of them");
    return true;
}

/* rediss:// without redis.tls: TLS with the defaults of redis.tls. */
static void begin_tls(struct loading *l, struct client_tls *tls)
{
    const struct node *address = node_at(l, "redis", "address");

    tls->on = tls->verify = tls->no_alpn = true;
    client_tls_load(l, address, tls);
}

static void finish_tls(struct loading *l)
{
    struct redis_settings *redis = &l->policy->redis;
    const struct node *node = node_at(l, "redis", "tls");

    if (redis->tls.on && redis->url.given && !redis->url.secure)
        mistake(l, node,
                "redis.address starts with redis://, which means without TLS; write rediss://");
    else if (redis->tls.on && (redis->embedded || address_is_unix(&redis->address)))
        mistake(l, node, "TLS needs host:port in redis.address; remove redis.tls");
    else if (redis->url.secure && !redis->tls.on && node && !node->null)
        mistake(l, node,
                "redis.address starts with rediss://, which means with TLS; remove this, or write "
                "redis://");
    else if (redis->url.secure && !redis->tls.on)
        begin_tls(l, &redis->tls);
}

void redis_url_finish(struct loading *l)
{
    struct redis_settings *redis = &l->policy->redis;
    const struct redis_url *url = &redis->url;

    if (!l->report->mistakes)
        finish_tls(l);

    if (!url->given || is_written_twice(l, "username", url->username) ||
        is_written_twice(l, "password", url->password) ||
        is_written_twice(l, "password_file", url->password) ||
        is_written_twice(l, "database", url->has_database))
        return;
    if (url->username)
        redis->username = url->username;
    if (url->password)
        redis->password = url->password;
    if (url->has_database)
        redis->database = url->database;
}
