/* top.c - weir top: options, the terminal, and the loop. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/top.h"
#include "config/policy_file.h"

enum { TOKEN_FILE_MAX = 4096, RECONNECT_MS = 2000, SILENCE_MS = 5000 };

struct options {
    const char *policy_file, *token_file, *url; /* NULL: not given */
    const char *ca, *certificate, *key;         /* the same */
    bool once;
};

/* --- Signals and the terminal ----------------------------------------------------------------- */

static volatile sig_atomic_t resized, ending;
static bool on_screen; /* the alternate screen is shown */
static struct termios saved;

static void on_signal(int signal)
{
    if (signal == SIGWINCH)
        resized = 1;
    else
        ending = signal;
}

/* Async-signal-safe, as it runs in on_stop(). */
static void write_escape(const char *bytes)
{
    ssize_t written = write(STDOUT_FILENO, bytes, strlen(bytes));
    (void)written;
}

static void enter_screen(void)
{
    struct termios raw = saved;

    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    write_escape("\033[?1049h\033[?25l"); /* alternate screen, no cursor */
    on_screen = true;
}

static void leave_screen(void)
{
    if (!on_screen)
        return;
    on_screen = false;
    write_escape("\033[?25h\033[?1049l");
    tcsetattr(STDIN_FILENO, TCSANOW, &saved);
}

/* SIGTSTP (Ctrl-Z): gives the terminal back while stopped. */
static void on_stop(int signal)
{
    int error = errno;

    (void)signal;
    leave_screen();
    raise(SIGSTOP);
    enter_screen();
    resized = 1;
    errno = error;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
    struct sigaction action = {.sa_handler = on_signal};

    for (size_t i = 0; i < COUNT_OF(signals); i++)
        sigaction(signals[i], &action, NULL);
    action.sa_handler = on_stop;
    sigaction(SIGTSTP, &action, NULL);
}

static struct top_size terminal_size(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return (struct top_size){80, 24, false};
    return (struct top_size){size.ws_col, size.ws_row, false};
}

/* --- Where the listener is -------------------------------------------------------------------- */

static int print_failure(const char *why)
{
    fprintf(stderr, "weir: top: %s\n", why);
    return CLI_FAILED;
}

/* An address that accepts from all interfaces is reached through loopback. */
static void use_loopback(struct address *address)
{
    if (address->any.sa_family == AF_INET && address->v4.sin_addr.s_addr == htonl(INADDR_ANY))
        address->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    else if (address->any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&address->v6.sin6_addr))
        address->v6.sin6_addr = in6addr_loopback;
}

/* Creates source->tls. `own`: the listener, whose certificates are trusted without --ca; NULL: the
 * authorities of the system are. Blocks. False: an error was printed. */
static bool load_tls(const struct options *options, const struct tls_server *own,
                     struct top_source *source)
{
    struct tls_client_settings settings = {.verify = true,
                                           .ca = options->ca,
                                           .certificate = options->certificate,
                                           .key = options->key};
    bool trusts_own = !options->ca && own;
    struct tls_dates dates;
    char why[TLS_WHY_MAX];
    const char *file;

    if (trusts_own && tls_server_certificate(own, 0, &file, &dates))
        settings.ca = file;
    enum tls_fault fault = tls_client_new(&settings, &source->tls, why);
    file = fault == TLS_BAD_CA    ? settings.ca
           : fault == TLS_BAD_KEY ? settings.key
                                  : settings.certificate;
    for (unsigned i = 1;
         trusts_own && fault == TLS_GOOD && tls_server_certificate(own, i, &file, &dates); i++)
        if (!tls_client_trust(source->tls, file)) {
            fault = TLS_BAD_CA;
            snprintf(why, sizeof why, "has no certificate");
        }
    if (fault != TLS_GOOD)
        fprintf(stderr, "weir: top: %s %s\n", file ? file : "https", why);
    return fault == TLS_GOOD;
}

/* How well a listener is suited; 0: not at all. */
static unsigned suitability(const struct admin_listener *listener, bool has_certificate)
{
    if (listener->read_only)
        return 0;
    if (!listener->tls)
        return 3;
    const struct listen_tls_entry *settings = &listener->tls->entries[0];
    bool required =
        settings->client_ca && settings->client_certificate == CLIENT_CERTIFICATE_REQUIRED;
    return required && !has_certificate ? 1 : 2;
}

static bool use_listener(const struct admin_listener *listener, const struct options *options,
                         struct top_source *source)
{
    const struct tls_server *server = listen_tls_server(listener->tls);
    const char *host = server ? tls_server_host(server) : NULL;
    struct slice address;
    struct address same;
    char text[ADDRESS_TEXT_MAX];
    const char *why;
    uint16_t port;

    source->address = listener->address;
    use_loopback(&source->address);
    source->token = listener->token;
    strcpy(source->host, "localhost");
    if (!(source->secure = server != NULL))
        return true;
    if (!host && listener->hosts.count)
        host = listener->hosts.names[0];
    if (host)
        snprintf(source->name, sizeof source->name, "%s", host);
    else if (address_split(slice_of(address_format(&source->address, text)), &same, &address, &port,
                           &why))
        snprintf(source->name, sizeof source->name, "%.*s", SLICE_ARG(address));
    return load_tls(options, server, source);
}

/* Takes the listener of the policy that is suited best, and its token. */
static bool source_of_policy(const struct options *options, const char *lua_dir,
                             struct top_source *source, struct policy **policy)
{
    const struct admin_listener *best = NULL;
    unsigned most = 0;

    *policy = policy_load_quietly(options->policy_file, lua_dir, stderr, policy_load);
    for (unsigned i = 0; *policy && i < (*policy)->admin_count; i++) {
        const struct admin_listener *listener = &(*policy)->admin[i];
        unsigned suited = suitability(listener, options->certificate != NULL);
        if (suited <= most)
            continue;
        most = suited;
        best = listener;
    }
    if (*policy && !best)
        fprintf(stderr,
                "weir: top: %s has no admin listener that serves events; add admin: "
                "127.0.0.1:9180, or name the URL of another weir\n",
                options->policy_file);
    else if (most == 1)
        fprintf(stderr,
                "weir: top: the admin listener of %s requires client certificates; name one with "
                "--cert and --key\n",
                options->policy_file);
    return most > 1 && use_listener(best, options, source);
}

/* Returns the exit status. */
static int source_of_url(const struct options *options, struct top_source *source)
{
    char why[TOP_WHY_MAX];
    int status = top_source_read(options->url, source, why);

    if (status != CLI_GOOD)
        print_failure(why);
    else if (source->secure && !load_tls(options, NULL, source))
        status = CLI_FAILED;
    return status;
}

/* Reads a token into `token`. False: an error was printed. */
static bool read_token(const char *file, char *token, size_t room)
{
    struct arena arena = {NULL};
    struct slice bytes;
    const char *why = "";
    bool good = file_read(&arena, file, TOKEN_FILE_MAX, &bytes, &why);

    while (good && bytes.n && (bytes.p[bytes.n - 1] == '\n' || bytes.p[bytes.n - 1] == '\r'))
        bytes.n--;
    if (!good)
        fprintf(stderr, "weir: top: %s cannot be read: %s\n", file, why);
    else if (bytes.n == 0 || bytes.n >= room || slice_has_control_bytes(bytes)) {
        fprintf(stderr, "weir: top: %s does not contain a token; expected one line\n", file);
        good = false;
    } else
        snprintf(token, room, "%.*s", SLICE_ARG(bytes));
    arena_free(&arena);
    return good;
}

/* --- The loop --------------------------------------------------------------------------------- */

struct view {
    const struct top_source *source;
    struct top_events *events; /* NULL: not connected */
    bool live;                 /* on a terminal, until the user ends it */
    json_t *snapshot;          /* owned; NULL: none yet */
    char why[TOP_WHY_MAX];     /* the connection has ended; empty: it has not */
};

static void draw(struct view *view)
{
    struct top_size size = terminal_size();
    char *text = NULL;
    size_t n;
    FILE *out = open_memstream(&text, &n);

    if (!out)
        return;
    fputs("\033[H", out);
    size.lines = size.lines > 2 ? size.lines - 1 : 1; /* the last line holds the keys */
    if (view->snapshot)
        top_screen_write(out, view->snapshot, &size);
    fputs("\033[J", out);
    fprintf(out, "\033[%u;1H\033[2m%.*s\033[0m\033[K", size.lines + 1, (int)size.columns,
            view->why[0] ? view->why : "q quits");
    fclose(out);
    for (size_t at = 0; at < n;) {
        ssize_t written = write(STDOUT_FILENO, text + at, n - at);
        if (written <= 0 && errno != EINTR)
            break;
        at += written > 0 ? (size_t)written : 0;
    }
    free(text);
}

/* Replaces the snapshot. False: the event is not JSON. */
static bool take_snapshot(struct view *view, struct slice data)
{
    json_t *snapshot = json_loadb(data.p, data.n, 0, NULL);

    if (!snapshot) {
        snprintf(view->why, sizeof view->why, "an event is not JSON");
        return false;
    }
    json_decref(view->snapshot);
    view->snapshot = snapshot;
    return true;
}

/* The first snapshot has none. */
static bool has_rates(const struct view *view)
{
    return json_double(json_object_get(view->snapshot, "interval_seconds"), 0) > 0;
}

/* Reads all events that have arrived. False: the connection has ended. */
static bool read_events(struct view *view, bool *fresh)
{
    struct slice data;

    for (;;)
        switch (top_events_read(view->events, &data, view->why)) {
        case TOP_READ_EVENT:
            if (!take_snapshot(view, data))
                return false;
            *fresh = true;
            view->why[0] = 0;
            if (!view->live && has_rates(view))
                return true;
            break;
        case TOP_READ_MORE: return true;
        case TOP_READ_END: return false;
        }
}

static void close_events(struct view *view)
{
    top_events_close(view->events);
    view->events = NULL;
}

/* Waits for events, keys and signals. Without a connection it tries again after a while. A process
 * whose main thread hangs still has connections, and sends no events. */
static void wait_for_more(struct view *view)
{
    struct pollfd polled[2] = {
        {.fd = view->events ? top_events_fd(view->events) : -1, .events = POLLIN},
        {.fd = view->live ? STDIN_FILENO : -1, .events = POLLIN}};
    char key;

    int ready = poll(polled, 2, view->events ? SILENCE_MS : RECONNECT_MS);
    if (ready == 0 && view->events)
        snprintf(view->why, sizeof view->why, "no event within %d s", SILENCE_MS / 1000);
    if (ready <= 0)
        return;
    if (polled[1].revents) {
        ssize_t n = read(STDIN_FILENO, &key, 1);
        if (n == 1 ? key == 'q' || key == 'Q' || key == 3 : n == 0)
            ending = SIGINT;
    }
}

static int run_live(struct view *view)
{
    catch_signals();
    tcgetattr(STDIN_FILENO, &saved);
    enter_screen();
    while (!ending) {
        bool fresh = resized;
        resized = 0;
        if (!view->events)
            view->events = top_events_open(view->source, view->why);
        if (view->events && !read_events(view, &fresh))
            close_events(view);
        if (fresh || view->why[0])
            draw(view);
        wait_for_more(view);
    }
    leave_screen();
    return CLI_GOOD;
}

/* Prints one screen, as wide as COLUMNS says. */
static int run_once(struct view *view)
{
    const char *columns = getenv("COLUMNS");
    long width = columns ? strtol(columns, NULL, 10) : 0;
    struct top_size size = {width >= 40 && width <= 1000 ? (unsigned)width : 100, 0, true};
    bool fresh = false;

    if (!(view->events = top_events_open(view->source, view->why)))
        return print_failure(view->why);
    for (;;) {
        if (!read_events(view, &fresh))
            return print_failure(view->why);
        if (has_rates(view))
            break;
        wait_for_more(view);
        if (view->why[0])
            return print_failure(view->why);
    }
    top_screen_write(stdout, view->snapshot, &size);
    return CLI_GOOD;
}

/* --- The command line ------------------------------------------------------------------------- */

static bool take_option(void *context, int option, const char *value)
{
    struct options *options = context;

    switch (option) {
    case 'o': options->once = true; break;
    case 't': options->token_file = value; break;
    case 'a': options->ca = value; break;
    case 'e': options->certificate = value; break;
    default: options->key = value; break;
    }
    return true;
}

static int show(const struct options *options, const struct top_source *source)
{
    struct view view = {.source = source};

    view.live = !options->once && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
    int status = view.live ? run_live(&view) : run_once(&view);
    close_events(&view);
    json_decref(view.snapshot);
    return status;
}

static int run(int argc, char **argv, const char *policy_file, const char *lua_dir)
{
    static const struct option known[] = {{"once", no_argument, NULL, 'o'},
                                          {"token-file", required_argument, NULL, 't'},
                                          {"ca", required_argument, NULL, 'a'},
                                          {"cert", required_argument, NULL, 'e'},
                                          {"key", required_argument, NULL, 'k'},
                                          CLI_COMMON_OPTIONS,
                                          {0}};
    struct options options = {.policy_file = policy_file};
    struct top_source source = {0};
    struct policy *policy = NULL;
    char token[1024];
    int status = cli_read_options(argc, argv, &(struct cli_options){"c:h", known, take_option},
                                  &options.policy_file, &options);

    if (status != CLI_GOOD)
        return status;
    if (argc - optind > 1 || !options.certificate != !options.key)
        return cli_bad_usage("top", "expected at most one URL, and --cert together with --key",
                             NULL);
    if ((options.url = argv[optind]))
        status = source_of_url(&options, &source);
    else if (!source_of_policy(&options, lua_dir, &source, &policy))
        status = CLI_FAILED;
    if (status == CLI_GOOD && options.token_file) {
        if (!read_token(options.token_file, token, sizeof token))
            status = CLI_FAILED;
        source.token = token;
    }
    if (status == CLI_GOOD)
        status = show(&options, &source);
    tls_client_free(source.tls);
    policy_drop(policy);
    return status;
}

const struct command command_top = {
    .name = "top",
    .arguments = "[-c FILE] [OPTION...] [URL]",
    .what = "live view of a running weir",
    .help =
        "--once             print one screen, as wide as COLUMNS says (default 100), and exit\n"
        "--token-file FILE  token of the admin listener, if it is not in the policy\n"
        "--ca FILE          authorities of the listener's certificate, for TLS\n"
        "--cert FILE        client certificate, for a listener that requires one\n"
        "--key FILE         its key\n"
        "URL                admin listener; default: one of the policy FILE, without TLS if there "
        "is one\n",
    .run = run};
