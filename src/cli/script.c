#include "cli/cli.h"
#include "limit/compose.h"
#include "policy/policy.h"
#include "policy/shipped_limiter.h"

static int print_script(const char *name, const char *lua_dir)
{
    struct script_names names;

    if (!script_names(slice_of(name), &names) && !compose_is_path(name)) {
        fprintf(stderr, "weir: there is no limiter %s; use one of %s, or a path such as ./my.lua\n",
                name, names.text);
        return CLI_FAILED;
    }
    return compose_standalone(name, lua_dir, stdout, stderr) ? CLI_GOOD : CLI_FAILED;
}

static int run(int argc, char **argv, const char *policy_file, const char *lua_dir)
{
    int status = cli_read_operands(argc, argv, &policy_file, 1, 1, "expected one NAME or FILE");

    return status == CLI_GOOD ? print_script(argv[optind], lua_dir) : status;
}

const struct command command_script = {
    .name = "script",
    .arguments = "NAME|FILE",
    .what = "print a limiter as a plain Redis script",
    .help = "NAME is a limiter of weir, such as gcra; FILE is one of your own, in Lua.\n",
    .run = run};
