/* main.c - the command line. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/library_memory.h"
#include "base/macros.h"
#include "cli/cli.h"
#include "config.h"
#include "server.h"

static const struct command *const commands[] = {&command_check, &command_explain, &command_inspect,
                                                 &command_reset, &command_grant,   &command_replay,
                                                 &command_test,  &command_top,     &command_script};

static int print_usage(void)
{
    puts("usage: weir [-c FILE]              run in the foreground (default " WEIR_CONF_FILE ")");
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        const struct command *c = commands[i];
        int width = printf("       weir %s %s", c->name, c->arguments);
        printf(width < 35 ? "%*s%s\n" : "\n%*s%s\n", width < 35 ? 35 - width : 35, "", c->what);
    }
    fputs("       weir COMMAND --help\n"
          "       weir --version | --help\n"
          "-c FILE may be written --config FILE.\n"
          "See weir(8) and weir.yaml(5).\n",
          stdout);
    return CLI_GOOD;
}

static const struct command *command_named(const char *name)
{
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int print_help(const struct command *command)
{
    printf("usage: weir %s %s\n%c%s.\n\n%s", command->name, command->arguments,
           command->what[0] & ~0x20, command->what + 1, command->help);
    if (command->arguments[0] == '[' && !command->own_policies)
        puts("-c FILE, --config FILE: the policy (default " WEIR_CONF_FILE ").");
    return CLI_GOOD;
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
    return CLI_GOOD;
}

/* Opens /dev/null in place of standard descriptors that are closed: a socket would get their
 * numbers, and then log lines. Writing to standard output then fails, so that a command does not
 * lose its output silently. */
static void open_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_RDWR);
}

/* Returns whether standard output is a pipe that nobody reads any more, as after head(1). */
static bool reader_is_gone(void)
{
    struct pollfd out = {.fd = STDOUT_FILENO};

    return poll(&out, 1, 0) > 0 && out.revents & POLLERR;
}

/* Returns `status`, or CLI_FAILED if a part of the output was lost. */
static int finish_output(int status)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return status;
    if (!reader_is_gone()) /* stdio forgets why an earlier write has failed */
        fprintf(stderr, "weir: the output cannot be written: %s\n",
                errno ? strerror(errno) : "it is not complete");
    return CLI_FAILED;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"version", no_argument, NULL, 'V'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    static const char letters[] = "+c:Vh";
    const char *file = NULL, *lua_dir = getenv("WEIR_LUA_DIR");

    open_standard_descriptors();
    library_memory_watch();
    signal(SIGPIPE, SIG_IGN); /* writing to a closed connection fails with EPIPE instead */
    lua_dir = lua_dir && *lua_dir ? lua_dir : WEIR_LUA_DIR;
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, letters, options, NULL)) != -1;)
        switch (c) {
        case 'c': file = optarg; break;
        case 'V': return finish_output(print_version());
        case 'h': return finish_output(print_usage());
        default: return cli_bad_option(NULL, argv, letters);
        }
    argc -= optind, argv += optind;
    const struct command *command = argc ? command_named(argv[0]) : NULL;
    if (argc && !command)
        return cli_bad_usage(NULL, "unknown command (a policy is named by -c FILE)", argv[0]);
    if (!file && !(command && command->own_policies))
        file = WEIR_CONF_FILE;
    if (!command)
        return server_run(file, lua_dir);
    int status = command->run(argc, argv, file, lua_dir);
    return finish_output(status == CLI_HELP ? print_help(command) : status);
}
