/* The input is used as a query string and as a Cookie field, with both treatments of several
 * cookies. Properties: the result is an identity
 * with a bounded text, or a reason; the same value in an operator's command selects the same
 * client; the form for the log does not contain the value. */
#include "base/text.h"
#include "config/policy_file.h"
#include "fuzz.h"
#include "policy/identity_source.h"

static struct policy *policy_from(const char *source, const char *cookies)
{
    char yaml[256];

    snprintf(yaml, sizeof yaml,
             "upstreams: { a: { servers: 127.0.0.1:1 } }\nidentity: { from: '%s', headers_from: "
             "anyone, cookies: %s }\n",
             source, cookies);
    struct policy *policy = policy_load_text("fuzz.yaml", slice_of(yaml), "lua", stderr);
    PROPERTY(policy != NULL);
    return policy;
}

static bool identify(const struct policy *policy, struct slice query, struct slice cookie,
                     struct identity *identity)
{
    struct address address;
    const char *why = NULL;
    static struct fields fields;

    PROPERTY(address_parse(SLICE("192.0.2.1:1"), false, &address, &why));
    fields.count = 1;
    fields.at[0] = (struct field){.name = SLICE("cookie"), .value = cookie};
    const struct peer source = peer_of_address(&address);
    const struct identity_input input = {
        .policy = policy, .peer = {.source = &source}, .fields = &fields, .query = query};
    why = NULL;
    bool found = identity_of(&input, identity, &why);
    PROPERTY(found || (why && identity->failure == IDENTITY_MALFORMED));
    PROPERTY(!found || (identity->size > 3 && identity->size <= IDENTITY_TEXT_MAX));
    return found && identity->is_id;
}

/* `value` is that of the only "k=VALUE" in the input. */
static void assert_name_selects_client(const struct policy *policy, const char *prefix,
                                       struct slice value, const struct identity *identity)
{
    struct identity named, again;
    const char *why = NULL;
    char *name = malloc(value.n + 16), bytes[IDENTITY_TEXT_MAX + 8];
    struct text back = text_over(bytes, sizeof bytes);

    memcpy(name, prefix, strlen(prefix));
    memcpy(name + strlen(prefix), value.p, value.n);
    struct slice whole = {name, strlen(prefix) + value.n};
    if (!slice_starts_with(value, SLICE("h:")) && !slice_has_control_bytes(value)) {
        PROPERTY(identity_parse(&policy->identity, whole, &named, &why));
        PROPERTY(slice_equal(identity_text(&named), identity_text(identity)));
    }
    identity_write_name(&back, identity_text(identity));
    PROPERTY(!back.failed && identity_parse(&policy->identity, text_slice(&back), &again, &why));
    PROPERTY(slice_equal(identity_text(&again), identity_text(identity)));
    free(name);
}

static void query(const struct policy *policy, struct slice input)
{
    struct identity identity, logged;
    char *room = malloc(2 * input.n + 64);
    struct text out = text_over(room, 2 * input.n + 64);
    bool found = identify(policy, input, SLICE_NONE, &identity);

    if (found && slice_starts_with(input, SLICE("?k=")) && !memchr(input.p, '&', input.n))
        assert_name_selects_client(policy, "query:", (struct slice){input.p + 3, input.n - 3},
                                   &identity);
    struct slice shown = identity_redact(policy, input, &out);
    if (found && input.p[0] == '?' && identify(policy, shown, SLICE_NONE, &logged))
        PROPERTY(
            slice_equal(identity_text(&logged), SLICE("query:ba0bdd65cade263ad1e0d642bdb5e380")));
    free(room);
}

static void cookie(const struct policy *policy, struct slice input)
{
    struct identity identity;

    if (identify(policy, SLICE_NONE, input, &identity) && slice_starts_with(input, SLICE("k=")) &&
        !memchr(input.p, ';', input.n) && !memchr(input.p, ',', input.n))
        assert_name_selects_client(
            policy, "cookie:", slice_trim_ows((struct slice){input.p + 2, input.n - 2}), &identity);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct policy *of_query, *of_cookie, *of_cookies;
    char *bytes = fuzz_copy(data, size);
    struct slice input = {bytes, size};

    if (!of_query) {
        of_query = policy_from("query:k", "hash");
        of_cookie = policy_from("cookie:k", "reject");
        of_cookies = policy_from("cookie:k", "hash");
    }
    query(of_query, input);
    cookie(of_cookie, input);
    cookie(of_cookies, input);
    free(bytes);
    return 0;
}
