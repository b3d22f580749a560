/* main.c - the command line. */
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/library_memory.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "config.h"
#include "server.h"

enum { EXIT_GOOD = 0, EXIT_USAGE = 2 };

static const struct command {
    const char *name, *arguments;
    const char *what; /* one line */
    const char *more; /* for --help of the command; NULL: it prints its own */
} commands[] = {
    {"check", "[-c FILE]", "validate a policy and print what is in effect",
     "Prints errors and warnings with line, column and remedy; then the policy with all defaults.\n"
     "Exit status: 0 valid, also with warnings; 1 errors; 2 command line.\n"},
    {"explain", "[-c FILE] [OPTION...] URL", "what happens to a request, and why", NULL},
    {"inspect", "[-c FILE] CLIENT", "where a client stands on every limit, without charging it",
     "CLIENT is a name as in the log: an id, ip:ADDRESS, or a value after jwt:, cookie:, query:,\n"
     "json: or certificate:. Or descriptor:DOMAIN/KEY=VALUE of the rate limit service.\n"
     "Exit status: 0, also if the client is unknown; 1 error in the policy or no Redis; 2 command\n"
     "line.\n"},
    {"reset", "[-c FILE] CLIENT", "give a client a fresh start",
     "Removes the client's counts in Redis, and tells all weirs on it. CLIENT as for inspect.\n"},
    {"grant", "[-c FILE] CLIENT QUOTA DURATION", "override a client's quota for a time",
     "QUOTA is a number per period, or unlimited. DURATION is 10m, 4h or 30d, for example.\n"
     "weir grant CLIENT none takes the grant back. CLIENT as for inspect.\n"},
    {"replay", "[-c FILE] LOG...", "report who would have been limited, from access logs", NULL},
    {"test", "[-c FILE] TEST.yaml...", "run tests of a policy, in virtual time", NULL},
    {"top", "[-c FILE] [OPTION...] [URL]", "live view of a running weir",
     "--once             print one screen, as wide as COLUMNS says (default 100), and exit\n"
     "--token-file FILE  token of the admin listener, if it is not in the policy\n"
     "--ca FILE          authorities of the listener's certificate, for TLS\n"
     "--cert FILE        client certificate, for a listener that requires one\n"
     "--key FILE         its key\n"
     "URL                admin listener; default: one of the policy FILE, without TLS if there is "
     "one\n"},
    {"script", "NAME|FILE", "print a limiter as a plain Redis script",
     "NAME is a limiter of weir, such as gcra; FILE is one of your own, in Lua.\n"},
};

static int print_usage(void)
{
    puts("usage: weir [-c FILE]              run in the foreground (default " WEIR_CONF_FILE ")");
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        const struct command *c = &commands[i];
        int width = printf("       weir %s %s", c->name, c->arguments);
        printf(width < 35 ? "%*s%s\n" : "\n%*s%s\n", width < 35 ? 35 - width : 35, "", c->what);
    }
    fputs("       weir COMMAND --help\n"
          "       weir --version | --help\n"
          "-c FILE may be written --config FILE.\n"
          "See weir(8) and weir.yaml(5).\n",
          stdout);
    return EXIT_GOOD;
}

static const struct command *command_named(const char *name)
{
    for (size_t i = 0; name && i < COUNT_OF(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int print_help(const struct command *command)
{
    printf("usage: weir %s %s\n%c%s.\n\n%s", command->name, command->arguments,
           command->what[0] & ~0x20, command->what + 1, command->more);
    if (command->arguments[0] == '[')
        puts("-c FILE, --config FILE: the policy (default " WEIR_CONF_FILE ").");
    return EXIT_GOOD;
}

/* Prints the version, and what it was built with. */
static int print_version(void)
{
    puts("weir " PACKAGE_VERSION);
#ifdef HAVE_LIBPQ
    puts("quotas from PostgreSQL: yes");
#else
    puts("quotas from PostgreSQL: no (built without libpq)");
#endif
#ifdef HAVE_LIBCURL
    puts("keys of tokens by URL: yes");
#else
    puts("keys of tokens by URL: no (built without libcurl)");
#endif
#ifdef HAVE_PROTOBUF_C
    puts("rate limit service: yes");
#else
    puts("rate limit service: no (built without protobuf-c)");
#endif
#ifdef HAVE_SYSTEMD
    puts("systemd: yes");
#else
    puts("systemd: no (built without libsystemd)");
#endif
    return EXIT_GOOD;
}

/* Returns whether `--help` or `-h` is among the arguments after a command. */
static bool asks_for_help(int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

static int bad_usage(const char *why, const char *what)
{
    bool file = what && strchr(what, '.') && what[0] != '-';

    fprintf(stderr, "weir: %s%s%s%s\nweir --help lists the commands.\n", why, what ? ": " : "",
            what ? what : "", file ? "; a policy is named by -c FILE" : "");
    return EXIT_USAGE;
}

static int dispatch(const char *command, const char *file, const char *lua_dir, int argc,
                    char **argv)
{
    if (command && strcmp(command, "script") == 0)
        return argc == 1 ? cli_script(argv[0], lua_dir)
                         : bad_usage("script takes one NAME or FILE", NULL);
    if (command && strcmp(command, "top") == 0)
        return cli_top(file, argc + 1, argv - 1, lua_dir);
    if (command && strcmp(command, "explain") == 0)
        return cli_explain(file, argc + 1, argv - 1, lua_dir);
    if (command && strcmp(command, "inspect") == 0)
        return argc == 1 ? cli_inspect(file, argv[0], lua_dir)
                         : bad_usage("inspect takes one CLIENT", NULL);
    if (command && strcmp(command, "reset") == 0)
        return argc == 1 ? cli_reset(file, argv[0], lua_dir)
                         : bad_usage("reset takes one CLIENT", NULL);
    if (command && strcmp(command, "grant") == 0)
        return argc == 2 || argc == 3
                   ? cli_grant(file, argv[0], argv[1], argc == 3 ? argv[2] : NULL, lua_dir)
                   : bad_usage("grant takes CLIENT, QUOTA and DURATION, or CLIENT none", NULL);
    if (command && strcmp(command, "check") != 0)
        return bad_usage("unknown command", command);
    if (argc > 0)
        return bad_usage("unexpected argument", argv[0]);
    return command ? cli_check(file, lua_dir) : server_run(file, lua_dir);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"version", no_argument, NULL, 'V'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *file = WEIR_CONF_FILE, *lua_dir = getenv("WEIR_LUA_DIR");

    library_memory_watch();
    signal(SIGPIPE, SIG_IGN); /* writing to a closed connection fails with EPIPE instead */
    lua_dir = lua_dir && *lua_dir ? lua_dir : WEIR_LUA_DIR;
    const struct command *first = command_named(argc > 1 ? argv[1] : NULL);
    if (first && first->more && asks_for_help(argc, argv))
        return print_help(first);
    if (argc > 1 && strcmp(argv[1], "replay") == 0)
        return cli_replay(argc - 1, argv + 1, file, lua_dir);
    if (argc > 1 && strcmp(argv[1], "test") == 0)
        return cli_test(argc - 1, argv + 1, lua_dir);
    if (argc > 1 && strcmp(argv[1], "explain") == 0)
        return cli_explain(file, argc - 1, argv + 1, lua_dir);
    opterr = 0;
    if (argc > 1 && strcmp(argv[1], "top") == 0)
        return cli_top(file, argc - 1, argv + 1, lua_dir);
    for (int c; (c = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1;)
        switch (c) {
        case 'c': file = optarg; break;
        case 'V': return print_version();
        case 'h': return print_usage();
        default: return bad_usage("unknown option, or one that lacks its value", argv[optind - 1]);
        }
    const char *command = optind < argc ? argv[optind++] : NULL;
    return dispatch(command, file, lua_dir, argc - optind, argv + optind);
}
