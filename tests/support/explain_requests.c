/* explain_requests.c - explains many requests in one process, for tests/integration/test_explain.py.
 *
 *   explain_requests POLICY LUA_DIR < requests
 *
 * Each request is a line "ADDRESS TLS HEAD CONTENT" (an address; 0 or 1; two numbers of bytes),
 * followed by these bytes. Prints one explanation as JSON per line. */
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "explain/explain_print.h"

enum { ADDRESS_MAX = 64 };

static char *read_bytes(size_t n)
{
    char *bytes = xmalloc(n + 1);

    if (fread(bytes, 1, n, stdin) != n)
        exit(2);
    bytes[n] = 0;
    return bytes;
}

static void set_address(struct explain_request *request, const char *text)
{
    struct ip ip;

    if (!ip_parse(slice_of(text), &ip))
        exit(2);
    address_of_ip(&ip, 0, &request->from);
}

static bool next(struct explain_request *request)
{
    char address[ADDRESS_MAX];
    size_t head, content;
    int https;

    if (scanf("%63s %d %zu %zu", address, &https, &head, &content) != 4 || getchar() != '\n')
        return false;
    *request = (struct explain_request){.https = https};
    set_address(request, address);
    request->head = (struct slice){read_bytes(head), head};
    request->content = (struct slice){read_bytes(content), content};
    return true;
}

int main(int argc, char **argv)
{
    struct policy *policy = argc == 3 ? policy_load(argv[1], argv[2], stderr) : NULL;
    struct explainer *explainer = policy ? explainer_new(policy, false) : NULL;
    struct explain_request request;

    if (!explainer)
        return 2;
    log_set_level(LEVEL_ERROR);
    while (next(&request)) {
        const struct explanation *e = explainer_explain(explainer, &request);
        if (!e)
            return 2;
        explain_print_json(policy, &request, e);
        free((char *)request.head.p);
        free((char *)request.content.p);
    }
    explainer_free(explainer);
    policy_drop(policy);
    return feof(stdin) ? 0 : 2;
}
