#include "cli/cli.h"
#include "limit/compose.h"
#include "policy/policy.h"
#include "policy/shipped_limiter.h"

int cli_script(const char *name, const char *lua_dir)
{
    struct script_names names;

    if (!script_names(slice_of(name), &names) && !compose_is_path(name)) {
        fprintf(stderr, "weir: there is no limiter %s; use one of %s, or a path such as ./my.lua\n",
                name, names.text);
        return 1;
    }
    return compose_standalone(name, lua_dir, stdout, stderr) ? 0 : 1;
}
