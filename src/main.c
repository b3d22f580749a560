/* main.c - the command line. */
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "config.h"
#include "server.h"

enum { EXIT_GOOD = 0, EXIT_USAGE = 2 };

static const char usage[] =
    "usage: weir [-c FILE]                run in the foreground (default " WEIR_CONF_FILE ")\n"
    "       weir check [-c FILE]          validate a policy and print what is in effect\n"
    "       weir inspect [-c FILE] CLIENT where a client stands on every limit, without charging "
    "it\n"
    "       weir reset [-c FILE] CLIENT   give a client a fresh start\n"
    "       weir grant [-c FILE] CLIENT QUOTA DURATION\n"
    "                                     override a client's quota for a time; QUOTA: a number, "
    "unlimited, "
    "none\n"
    "       weir replay [-c FILE] LOG...  report who would have been limited, from access logs\n"
    "       weir top [-c FILE] [--once] [--token-file FILE] [URL]\n"
    "                                     live view of a running weir\n"
    "       weir script NAME|FILE         print a limiter as a plain Redis script\n"
    "       weir --version | --help\n"
    "-c FILE may be written --config FILE.\n"
    "See weir(8) and weir.yaml(5).\n";

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

    signal(SIGPIPE, SIG_IGN); /* writing to a closed connection fails with EPIPE instead */
    lua_dir = lua_dir && *lua_dir ? lua_dir : WEIR_LUA_DIR;
    if (argc > 1 && strcmp(argv[1], "replay") == 0)
        return cli_replay(argc - 1, argv + 1, file, lua_dir);
    opterr = 0;
    if (argc > 1 && strcmp(argv[1], "top") == 0)
        return cli_top(file, argc - 1, argv + 1, lua_dir);
    for (int c; (c = getopt_long(argc, argv, "c:Vh", options, NULL)) != -1;)
        switch (c) {
        case 'c': file = optarg; break;
        case 'V': puts("weir " PACKAGE_VERSION); return EXIT_GOOD;
        case 'h': fputs(usage, stdout); return EXIT_GOOD;
        default: return bad_usage("unknown option, or one that lacks its value", argv[optind - 1]);
        }
    const char *command = optind < argc ? argv[optind++] : NULL;
    return dispatch(command, file, lua_dir, argc - optind, argv + optind);
}
