/* command_line.c - options and operands of the subcommands. */
#include "cli/cli.h"

#include <string.h>

enum { OPTION_LETTERS = 128 }; /* a larger option is a long one without a letter */

int cli_bad_usage(const char *command, const char *why, const char *what)
{
    fprintf(stderr, "weir: %s%s%s%s%s\nweir%s%s --help lists the %s.\n", command ? command : "",
            command ? ": " : "", why, what ? ": " : "", what ? what : "", command ? " " : "",
            command ? command : "", command ? "options" : "commands");
    return CLI_USAGE;
}

static bool is_group(const char *argument)
{
    return argument && argument[0] == '-' && argument[1] != '-';
}

/* An option without a value: as a letter, it is never wrong. */
static bool is_flag(const char *letters, int letter)
{
    const char *at = strchr(letters, letter);
    return at && at[1] != ':';
}

/* getopt_long() is still at a group whose letters are not all read. */
int cli_bad_option(const char *command, char **argv, const char *letters)
{
    const char letter[] = {'-', (char)optopt, 0}, *last = argv[optind - 1], *group = argv[optind];
    bool is_letter = optopt > 0 && optopt < OPTION_LETTERS && !is_flag(letters, optopt) &&
                     (is_group(last) || (is_group(group) && strchr(group, optopt)));

    return cli_bad_usage(command, "unknown option, or one whose value is missing or not allowed",
                         is_letter ? letter : last);
}

int cli_read_options(int argc, char **argv, const struct cli_options *known,
                     const char **policy_file, void *context)
{
    optind = 0; /* begins anew, after the options before the command */
    opterr = 0;
    for (int c; (c = getopt_long(argc, argv, known->letters, known->options, NULL)) != -1;)
        switch (c) {
        case 'c': *policy_file = optarg; break;
        case 'h': return CLI_HELP;
        case '?': return cli_bad_option(argv[0], argv, known->letters);
        default:
            if (known->take && !known->take(context, c, optarg))
                return CLI_USAGE;
        }
    return CLI_GOOD;
}

int cli_read_operands(int argc, char **argv, const char **policy_file, int least, int most,
                      const char *expected)
{
    static const struct option options[] = {CLI_COMMON_OPTIONS, {0}};
    int status = cli_read_options(argc, argv, &(struct cli_options){"c:h", options, NULL},
                                  policy_file, NULL);

    if (status == CLI_GOOD && (argc - optind < least || argc - optind > most))
        status =
            cli_bad_usage(argv[0], expected, argc - optind > most ? argv[optind + most] : NULL);
    return status;
}
