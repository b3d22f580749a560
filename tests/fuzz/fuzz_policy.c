/* fuzz_policy.c - parses the input as a policy file. Properties: it is refused with a message, or
 * it is accepted, and its printed form is parsed as the same policy. */
#include <netdb.h>

#include "config/policy_file.h"
#include "fuzz.h"

/* Replaces the function of the C library: no name resolution while fuzzing. */
int getaddrinfo(const char *restrict node, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict found)
{
    (void)node, (void)service, (void)hints, (void)found;
    return EAI_NONAME;
}

static const char *lua_dir(void)
{
    const char *directory = getenv("WEIR_LUA_DIR");
    return directory ? directory : "lua";
}

struct printed {
    char *bytes;
    size_t size;
};

/* What `weir check` prints; bytes is NULL if the policy is refused. */
static struct printed load_and_print(struct slice yaml)
{
    struct printed printed = {NULL, 0}, messages = {NULL, 0};
    FILE *report = open_memstream(&messages.bytes, &messages.size);
    struct policy *policy = policy_load_text("fuzz.yaml", yaml, lua_dir(), report);

    fclose(report);
    PROPERTY(policy || messages.size > 0); /* never refused without a message */
    free(messages.bytes);
    if (!policy)
        return printed;
    FILE *out = open_memstream(&printed.bytes, &printed.size);
    policy_print(policy, out);
    fclose(out);
    policy_drop(policy);
    return printed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct printed first = load_and_print((struct slice){(const char *)data, size});

    if (first.bytes) {
        struct printed second = load_and_print((struct slice){first.bytes, first.size});
        PROPERTY(second.size == first.size && memcmp(second.bytes, first.bytes, first.size) == 0);
        free(second.bytes);
    }
    free(first.bytes);
    return 0;
}
