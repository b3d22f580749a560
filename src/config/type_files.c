/* type_files.c - files that options name: secrets, certificates, TLS from weir to a server. */
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "config/types.h"
#include "net/tls.h"

/* ---- secrets --------------------------------------------------------------------------------- */

enum { SECRET_FILE_MAX = 4096 }; /* bytes */

struct slice without_newline(struct slice bytes)
{
    if (bytes.n && bytes.p[bytes.n - 1] == '\n')
        bytes.n--;
    if (bytes.n && bytes.p[bytes.n - 1] == '\r')
        bytes.n--;
    return bytes;
}

void warn_of_file_mode(struct loading *l, const struct node *node, const char *path)
{
    struct stat status;

    if (stat(path, &status) == 0 && (status.st_mode & (S_IROTH | S_IWOTH)))
        warning(l, node, "%s can be %s by all users of this machine; run chmod o= on it", path,
                status.st_mode & S_IWOTH ? "written" : "read");
}

bool secret_file_read(struct loading *l, const struct option *option, const struct node *node,
                      const char *what, struct slice *secret)
{
    const char *path = file_path(l, option, node);

    if (!path || !named_file_read(l, node, &l->scratch, path, SECRET_FILE_MAX, secret))
        return false;
    *secret = without_newline(slice_after_bom(*secret));
    if (secret->n && !slice_has_control_bytes(*secret)) {
        warn_of_file_mode(l, node, path);
        return true;
    }
    mistake(l, node, "%s contains %s; expected only the %s, on one line", path,
            secret->n ? "several lines or control bytes" : "nothing", what);
    return false;
}

/* ---- certificates that are not valid now or expire soon -------------------------------------- */

enum { DAY_S = 86400 };

/* "2026-01-31 12:00:00 UTC" */
struct date_text {
    char text[48];
};

static const char *date_into(struct date_text *date, int64_t seconds)
{
    time_t at = (time_t)seconds;
    struct tm tm;

    if (!gmtime_r(&at, &tm) ||
        !strftime(date->text, sizeof date->text, "%Y-%m-%d %H:%M:%S UTC", &tm))
        memcpy(date->text, "?", 2);
    return date->text;
}

void certificate_check(struct loading *l, const struct node *file, const struct tls_dates *dates)
{
    int64_t now = (int64_t)(clock_wall_us() / 1000000), left = dates->until_s - now;
    struct date_text date;

    if (left <= 0)
        warning(l, file,
                "%s has expired, on %s: clients that verify it refuse it; renew it, then reload",
                QUOTE(file->text), date_into(&date, dates->until_s));
    else if (left < CERTIFICATE_WARN_S)
        warning(l, file, "%s expires in %lld %s, on %s; renew it, then reload", QUOTE(file->text),
                (long long)(left < 2 * DAY_S ? left / 3600 : left / DAY_S),
                left < 2 * DAY_S ? "hours" : "days", date_into(&date, dates->until_s));
    if (dates->from_s > now)
        warning(
            l, file,
            "%s is not valid before %s; until then, clients that verify it refuse the connection",
            QUOTE(file->text), date_into(&date, dates->from_s));
}

/* ---- upstreams.NAME.tls and redis.tls -------------------------------------------------------- */

void client_tls_load(struct loading *l, const struct node *node, struct client_tls *tls)
{
    struct tls_client_settings settings = {.verify = tls->verify, .no_alpn = tls->no_alpn};
    char why[TLS_WHY_MAX];

    settings.ca = tls->ca ? neighbour_path(l, slice_of(tls->ca)) : NULL;
    if (tls->certificate && tls->key) {
        settings.certificate = neighbour_path(l, slice_of(tls->certificate));
        settings.key = neighbour_path(l, slice_of(tls->key));
    }
    enum tls_fault fault = tls_client_new(&settings, &tls->client, why);
    struct tls_dates dates;
    if (fault == TLS_GOOD && settings.certificate && tls_read_dates(settings.certificate, &dates)) {
        tls->expires_s = dates.until_s;
        tls->certificate_path = arena_text(l->arena, slice_of(settings.certificate));
        certificate_check(l, node_find(node, "certificate"), &dates);
    }
    if (fault == TLS_BAD_CA && !tls->ca)
        mistake(l, node, "%s", why);
    else if (fault != TLS_GOOD) {
        const char *key = fault == TLS_BAD_CA ? "ca" : fault == TLS_BAD_KEY ? "key" : "certificate";
        const struct node *file = node_find(node, key);
        mistake(l, file, "%s %s", QUOTE(file->text), why);
    }
}

static void check_tls(struct loading *l, const struct node *node, const struct client_tls *tls)
{
    if (tls->certificate && !tls->key)
        mistake(l, node_find(node, "certificate"), "certificate requires key; add it");
    if (tls->key && !tls->certificate)
        mistake(l, node_find(node, "key"), "key requires certificate; add it");
    if (tls->ca && !tls->verify)
        mistake(l, node_find(node, "ca"),
                "has no effect with verify: false; remove one of the two");
    struct ip ip;
    struct slice name = slice_of(tls->server_name ? tls->server_name : "");
    if (name.n && !host_name_is_valid(name) && !ip_parse(name, &ip))
        mistake(l, node_find(node, "server_name"), "%s is neither a host name nor an IP address",
                QUOTE(name));
}

static void read_client_tls(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct client_tls *tls = field;
    unsigned before = l->report->mistakes;
    bool is_true = node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("true"));

    if (node->null || (node->kind == NODE_SCALAR && slice_equal(node->text, SLICE("false"))))
        return;
    if (!is_true && node->kind != NODE_MAP) {
        mistake(l, node, "expected true, false, or a map such as { ca: FILE }");
        return;
    }
    tls->on = true;
    tls->no_alpn = option->low == CLIENT_TLS_NO_ALPN;
    options_read(l, node, option->path, tls);
    check_tls(l, node, tls);
    if (l->report->mistakes == before)
        client_tls_load(l, node, tls);
}

static void print_client_tls(const struct printer *printer, const void *field)
{
    const struct client_tls *tls = field;

    if (tls->on)
        type_section.print(printer, field);
    else
        fputs(" false\n", printer->out);
}

const struct option_type type_client_tls = {"true, false or map", read_client_tls, print_client_tls,
                                            true, 0};

/* ---- the log file ---------------------------------------------------------------------------- */

static void read_log_file(struct loading *l, const struct option *option, const struct node *node,
                          void *field)
{
    const char *path;

    type_text.read(l, option, node, field);
    path = *(char **)field;
    if (path && *path != '/' && strcmp(path, "stderr") != 0)
        mistake(l, node, "%s is not valid; expected stderr, or a path that begins with /",
                QUOTE(node->text));
}

const struct option_type type_log_file = {"text", read_log_file, print_text, true, sizeof(char *)};

/* ---- directories ----------------------------------------------------------------------------- */

static void read_directory(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    if (node->null || !expect_text(l, option, node, "a directory's path"))
        return;
    if (node->text.p[0] == '/')
        *(char **)field = keep_text(l, node);
    else
        mistake(l, node, "%s is relative; expected a path that begins with /", QUOTE(node->text));
}

const struct option_type type_directory = {"path", read_directory, print_text, true,
                                           sizeof(char *)};
