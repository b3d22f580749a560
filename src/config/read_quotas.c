/* read_quotas.c - section quotas: limits per client from a database.
 *
 * The connection string is parsed here and its host names are resolved, because libpq would resolve
 * them itself and block the event loop. */
#include <netdb.h>
#include <stdlib.h>

#include "base/memory.h"
#include "config.h"
#include "config/sections.h"
#include "net/address.h"

#ifdef HAVE_LIBPQ
#include <libpq-fe.h>
#endif

/* --- the section --- */

static void read_quotas(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    if (node->null ||
        !expect_map(l, node, "a map with postgres, cache, unknown_client and on_failure"))
        return;
    options_read(l, node, option->path, field);
#ifndef HAVE_LIBPQ
    const struct node *postgres = node_find(node, "postgres");
    if (postgres)
        mistake_of_key(l, postgres,
                       "weir was built without PostgreSQL; install the Debian package libpq-dev "
                       "and rebuild, or remove quotas");
#endif
}

const struct option_type type_quotas = {"section", read_quotas, print_section, true, 0};

/* --- the query --- */

/* FNV-1a hash of the query; identifies the query of an entry cached in Redis. */
static uint32_t tag_of(struct slice query)
{
    uint32_t h = 0x811c9dc5;
    for (size_t i = 0; i < query.n; i++)
        h = (h ^ (unsigned char)query.p[i]) * 0x01000193;
    return h;
}

static bool has_parameter(struct slice query, char number)
{
    for (size_t i = 0; i + 1 < query.n; i++)
        if (query.p[i] == '$' && query.p[i + 1] == number &&
            (i + 2 == query.n || query.p[i + 2] < '0' || query.p[i + 2] > '9'))
            return true;
    return false;
}

static void read_sql(struct loading *l, const struct option *option, const struct node *node,
                     void *field)
{
    struct quota_settings *quotas = field;

    if (!expect_text(l, option, node, "a query such as SELECT quota FROM clients WHERE id = $1"))
        return;
    if (memchr(node->text.p, 0, node->text.n))
        mistake(l, node, "contains control bytes; expected printable text");
    else if (!has_parameter(node->text, '1'))
        mistake(l, node, "has no $1; write $1 in place of the client id, as in WHERE id = $1");
    else if (has_parameter(node->text, '2'))
        mistake(l, node, "has a $2; the only parameter is $1, the client id");
    quotas->query = keep_text(l, node);
    quotas->tag = tag_of(node->text);
}

const struct option_type type_quota_query = {"text", read_sql, print_text, false, 0};

/* --- the connection --- */

#ifdef HAVE_LIBPQ

enum { ADDRESSES_MAX = 16 };

struct servers {
    struct quota_servers lists;
    unsigned count;
    bool full;
};

/* Returns the next element of a comma-separated list, like strsep(), but "" instead of NULL. */
static char *next_of(char **list)
{
    static char none[1] = "";
    char *element = *list ? strsep(list, ",") : NULL;
    return element ? element : none;
}

static void list_add(struct servers *s, char *list, const char *element)
{
    size_t n = strlen(list), more = strlen(element) + (s->count ? 1 : 0);
    if (n + more >= QUOTA_LIST_SIZE) {
        s->full = true;
        return;
    }
    snprintf(list + n, QUOTA_LIST_SIZE - n, "%s%s", s->count ? "," : "", element);
}

static void servers_add(struct servers *s, const char *host, const char *address, const char *port)
{
    list_add(s, s->lists.host, host);
    list_add(s, s->lists.hostaddr, address);
    list_add(s, s->lists.port, port);
    s->count++;
}

/* Adds a server for each address of a host name. Returns false after reporting an error. Blocks. */
static bool resolve(struct loading *l, const struct node *node, struct servers *s, const char *host,
                    const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG}, *found = NULL;
    int failure = getaddrinfo(host, NULL, &hints, &found);
    unsigned before = s->count;

    if (failure == EAI_NONAME ||
        failure == EAI_ADDRFAMILY) { /* AI_ADDRCONFIG fails if only loopback is configured */
        hints.ai_flags = 0;
        failure = getaddrinfo(host, NULL, &hints, &found);
    }
    for (const struct addrinfo *a = failure ? NULL : found; a && s->count < before + ADDRESSES_MAX;
         a = a->ai_next) {
        char text[NI_MAXHOST];
        if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof text, NULL, 0, NI_NUMERICHOST) == 0)
            servers_add(s, host, text, port);
    }
    if (!failure)
        freeaddrinfo(found);
    else if (strchr(host, '@'))
        mistake(l, node, "the host contains an @; in a password, write it as %%40");
    else
        mistake(l, node, "weir cannot connect to %s: no such host, or names cannot be resolved now",
                QUOTE(slice_of(host)));
    return !failure;
}

static bool is_a_path(const char *host)
{
    return host[0] == 0 || host[0] == '/' || host[0] == '@';
}

/* libpq checks ports only when it connects. */
static bool ports_are_good(struct loading *l, const struct node *node, const char *ports)
{
    for (const char *p = ports; *p; p += strspn(p, ",")) {
        char *end;
        long port = strtol(p, &end, 10);
        if (end == p || (*end && *end != ',') || port < 1 || port > 65535) {
            mistake(l, node,
                    "the port is not a number from 1 to 65535; in a password, write / as %%2F and "
                    ": as %%3A");
            return false;
        }
        p = end;
    }
    return true;
}

/* `hosts` and `ports` are as written. Returns false after reporting an error. */
static bool find_servers(struct loading *l, const struct node *node, struct servers *s,
                         const char *hosts, const char *ports)
{
    char *host_at = arena_text(&l->scratch, slice_of(hosts)),
         *port_at = arena_text(&l->scratch, slice_of(ports));
    bool one_port = !strchr(ports, ','), good = ports_are_good(l, node, ports);

    while (good && host_at) {
        const char *host = next_of(&host_at), *port = one_port ? ports : next_of(&port_at);
        if (is_a_path(host))
            servers_add(s, host, "", port);
        else
            good = resolve(l, node, s, host, port);
    }
    return good;
}

static void parameter(struct loading *l, struct quota_settings *quotas, const char *keyword,
                      const char *value)
{
    unsigned n = quotas->parameter_count++;
    quotas->keywords[n] = arena_text(l->arena, slice_of(keyword));
    quotas->values[n] = arena_text(l->arena, slice_of(value));
}

static const char *keyword_value(const PQconninfoOption *all, const char *keyword)
{
    for (; all->keyword; all++)
        if (strcmp(all->keyword, keyword) == 0)
            return all->val && *all->val ? all->val : NULL;
    return NULL;
}

static bool is_about_servers(const char *keyword)
{
    return strcmp(keyword, "host") == 0 || strcmp(keyword, "hostaddr") == 0 ||
           strcmp(keyword, "port") == 0;
}

/* Returns weir's default for a connection parameter, or NULL. The defaults disable Kerberos, which
 * would block, detect connections dropped by a firewall, and set the client encoding to UTF-8 for
 * ids. */
static const char *wanted(const char *keyword)
{
    static const char *const all[][2] = {{"gssencmode", "disable"},
                                         {"keepalives_idle", "30"},
                                         {"keepalives_interval", "10"},
                                         {"keepalives_count", "3"},
                                         {"fallback_application_name", "weir"},
                                         {"client_encoding", "UTF8"}};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (strcmp(keyword, all[i][0]) == 0)
            return all[i][1];
    return NULL;
}

static void keep_parameters(struct loading *l, struct quota_settings *quotas,
                            const PQconninfoOption *all)
{
    quotas->keywords = arena_zeroed(l->arena, QUOTA_PARAMETERS_MAX, sizeof *quotas->keywords);
    quotas->values = arena_zeroed(l->arena, QUOTA_PARAMETERS_MAX, sizeof *quotas->values);
    for (; all->keyword && quotas->parameter_count < QUOTA_PARAMETERS_MAX; all++) {
        const char *value = all->val && *all->val ? all->val : wanted(all->keyword);
        if (value && !is_about_servers(all->keyword))
            parameter(l, quotas, all->keyword, value);
    }
}

/* Returns "127.0.0.1:5432/weir", for log lines. */
static char *server_text(struct loading *l, const char *host, const char *port,
                         const char *database)
{
    char text[512];
    snprintf(text, sizeof text, "%s%s%s%s%s", host ? host : "on the local socket", port ? ":" : "",
             port ? port : "", database ? "/" : "", database ? database : "");
    return arena_text(l->arena, slice_of(text));
}

static void use_connection(struct loading *l, const struct node *node,
                           struct quota_settings *quotas, const PQconninfoOption *all)
{
    const char *host = keyword_value(all, "host"), *port = keyword_value(all, "port"),
               *address = keyword_value(all, "hostaddr");
    struct servers servers = {.count = 0};

    if (keyword_value(all, "service")) {
        mistake(
            l, node,
            "names a service file, which would be read at each connect; write its settings here");
        return;
    }
    if (!host && !address)
        host = getenv("PGHOST");
    if (host && !*host)
        host = NULL;
    if (host && !address && !find_servers(l, node, &servers, host, port ? port : ""))
        return;
    if (!servers.count) /* no host names to resolve: the lists as written */
        servers_add(&servers, host ? host : "", address ? address : "", port ? port : "");
    if (servers.full) {
        mistake(l, node, "has too many servers; name fewer hosts");
        return;
    }
    quotas->servers = arena_zeroed(l->arena, 1, sizeof *quotas->servers);
    *quotas->servers = servers.lists;
    keep_parameters(l, quotas, all);
    quotas->server_text = server_text(l, host ? host : address, port, keyword_value(all, "dbname"));
    quotas->has_password = keyword_value(all, "password") || keyword_value(all, "sslpassword");
}

/* Hides the text that libpq quotes in an error, from the first quoted word to the end of the last,
 * since it may contain a password. Misspelled keywords are shown. */
static void hide_quoted(char *why)
{
    static const char keyword[] = "invalid connection option \"";
    char *first = strchr(why, '"'), *last = strrchr(why, '"');

    if (strncmp(why, keyword, sizeof keyword - 1) == 0 &&
        strspn(first + 1, "abcdefghijklmnopqrstuvwxyz_") == (size_t)(last - first - 1))
        return;
    while (first && first < last && first[2] == '"') /* such as "=" */
        first = strchr(first + 3, '"');
    if (first && first + 4 < last) {
        memcpy(first + 1, "...", 3);
        memmove(first + 4, last, strlen(last) + 1);
    }
}

/* A connection string, as libpq reads it. */
struct parsed {
    struct loading *l;
    const struct node *node;
    struct quota_settings *quotas;
    PQconninfoOption *all;
    char *why; /* all is NULL: the reason */
};

static void use_parsed(void *parsed)
{
    const struct parsed *p = parsed;

    if (p->all)
        use_connection(p->l, p->node, p->quotas, p->all);
    else if (p->why)
        mistake(p->l, p->node,
                "is not a connection string: %.*s; write postgresql://USER@HOST/DATABASE",
                (int)strcspn(p->why, "\n"), p->why);
    else
        memory_exhausted();
}

static void read_parameters(struct loading *l, const struct node *node,
                            struct quota_settings *quotas)
{
    struct parsed parsed = {l, node, quotas, NULL, NULL};

    parsed.all = PQconninfoParse(quotas->connection, &parsed.why);
    if (parsed.why)
        hide_quoted(parsed.why);
    bool good = memory_try(use_parsed, &parsed);
    PQconninfoFree(parsed.all);
    PQfreemem(parsed.why);
    if (!good)
        memory_exhausted();
}

/* Prints "keyword='value' ...", without the password. */
static void print_parameters(FILE *out, const struct quota_settings *quotas)
{
    PQconninfoOption *all = PQconninfoParse(quotas->connection, NULL);
    char *text = NULL;
    size_t size;
    FILE *words = open_memstream(&text, &size);

    for (const PQconninfoOption *o = all; words && o && o->keyword; o++) {
        bool secret = strcmp(o->keyword, "password") == 0 || strcmp(o->keyword, "sslpassword") == 0;
        if (!o->val)
            continue;
        fprintf(words, "%s%s='", ftell(words) ? " " : "", o->keyword);
        for (const char *c = secret ? "***" : o->val; *c; c++)
            fprintf(words, *c == '\'' || *c == '\\' ? "\\%c" : "%c", *c);
        fputc('\'', words);
    }
    if (words && fclose(words) == 0)
        print_scalar(out, slice_of(text));
    free(text);
    PQconninfoFree(all);
}
#endif

static void read_connection(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct quota_settings *quotas = field;

    if (!expect_text(l, option, node,
                     "a connection string such as postgresql://weir@127.0.0.1/weir"))
        return;
    if (slice_has_control_bytes(node->text)) {
        mistake(l, node, "contains control bytes; expected printable text");
        return;
    }
    quotas->connection = keep_text(l, node);
#ifdef HAVE_LIBPQ
    read_parameters(l, node, quotas);
    if (quotas->has_password)
        note_secret(l, node);
#endif
}

static void print_connection(const struct printer *printer, const void *field)
{
    const struct quota_settings *quotas = field;

    fputc(' ', printer->out);
#ifdef HAVE_LIBPQ
    if (quotas->has_password)
        print_parameters(printer->out, quotas);
    else
#endif
        print_scalar(printer->out, slice_of(quotas->connection));
    fputc('\n', printer->out);
}

const struct option_type type_quota_connection = {"text", read_connection, print_connection, false,
                                                  0};
