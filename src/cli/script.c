#include "cli/cli.h"
#include "limit/compose.h"

int cli_script(const char *name, const char *lua_dir)
{
    return compose_standalone(name, lua_dir, stdout, stderr) ? 0 : 1;
}
