/* check_identity_sources.c - ids from cookies, query parameters and long or hashed headers, the names
 * that operators give clients, and what is written to logs. */
#include <check.h>
#include <stdlib.h>

#include "base/text.h"
#include "config/policy_file.h"
#include "policy/identity_source.h"
#include "policy/identity_token.h"
#include "policy/key_values.h"
#include "run_suite.h"

/* HMAC-SHA-256 with the key "weir", the default redis.key_prefix, cut to 128 bits; computed with
 * openssl dgst -sha256 -hmac weir. */
#define HASH_A     "a0dabcded476260cab004db95defee2c"
#define HASH_A_B   "35d18af552f6ee44fc74c516ab2796de"
#define HASH_A_KEY "253c647c4972e3369298d16947975d2f" /* of "A", with the key "other" */

static struct policy *policy;

static void load(const char *settings)
{
    char yaml[1024];
    snprintf(yaml, sizeof yaml,
             "upstreams: { a: { servers: 127.0.0.1:1 } }\nidentity: { %s, headers_from: anyone }\n",
             settings);
    policy_drop(policy);
    policy = policy_load_text("test.yaml", slice_of(yaml), "lua", stderr);
    ck_assert_ptr_nonnull(policy);
}

static void drop(void)
{
    policy_drop(policy);
    policy = NULL;
}

static struct identity identity;
static const char *why;
static bool malformed;

/* Returns the identity of a request, or NULL if it is rejected. Header lines end with LF. */
static const char *identify_from(const char *peer, const char *query, const char *lines)
{
    static char text[IDENTITY_TEXT_MAX + 1];
    struct fields fields = {.count = 0};
    struct address address;
    const char *bad;

    for (const char *end; *lines && (end = strchr(lines, '\n')); lines = end + 1) {
        const char *colon = strchr(lines, ':');
        struct field *field = &fields.at[fields.count++];
        field->name = (struct slice){lines, (size_t)(colon - lines)};
        field->value = slice_trim_ows((struct slice){colon + 1, (size_t)(end - colon - 1)});
        field->id = (uint8_t)field_id_of(field->name);
        fields.present |= FIELD_BIT(field->id);
    }
    ck_assert(address_parse(slice_of(peer), false, &address, &bad));
    const struct peer source = peer_of_address(&address);
    const struct identity_input input = {
        .policy = policy, .peer = {.source = &source}, .fields = &fields, .query = slice_of(query)};
    if (!identity_of(&input, &identity, &why)) {
        malformed = identity.failure == IDENTITY_MALFORMED;
        return NULL;
    }
    snprintf(text, sizeof text, "%.*s", SLICE_ARG(identity_text(&identity)));
    return text;
}

static const char *identify(const char *query, const char *lines)
{
    return identify_from("203.0.113.7:1", query, lines);
}

#define ADDRESS "ip:203.0.113.7"

static const struct {
    const char *sent, *identity; /* NULL: 400 */
} cookies[] = {
    {"session=A", "cookie:" HASH_A},
    {"theme=dark; session=A; x", "cookie:" HASH_A},
    {"session=\"A\"", "cookie:" HASH_A},
    {"session=%41", "cookie:" HASH_A},
    {" session = A ;", "cookie:" HASH_A},
    {"session=A; session=A", "cookie:" HASH_A},
    {"session=a+b", "cookie:" HASH_A_B},
    {"session=a%20b+", "cookie:" HASH_A_B},
    {"session=a%2Bb", "cookie:" HASH_A_B},
    {"session=\"\\101\"", "cookie:" HASH_A},
    {"session=\"\\A\"", "cookie:" HASH_A},
    {"session=\"\\%4\\061\"", "cookie:" HASH_A},
    {"session=\"a\\040b\"", "cookie:" HASH_A_B},
    {"theme=a,b; session=A; x=a,b", "cookie:" HASH_A},
    {"session=", ADDRESS},
    {"session=\"\"", ADDRESS},
    {"session=%20", ADDRESS},
    {"session", ADDRESS},
    {"sessions=A; xsession=A; ses=A", ADDRESS},
    {"", ADDRESS},
    {"session=A; session=B", NULL},
    {"session=A; session=", NULL},
    {"Session=A", NULL},
    {"%73ession=A; session=B", NULL},
    {"session[]=A", NULL},
    {"session=%4", NULL},
    {"session=%zz", NULL},
    {"session=%00", NULL},
    {"session=A%0A", NULL},
    {"session=\"A\\012\"", NULL},
    {"session=A,x=1", NULL},
    {"x=1,session=A", NULL},
    {"session=B; x=1, session=A", NULL},
    {"session=\"a,b\"", NULL},
    {"session=A; a=b session=B", NULL},
    {"session=A; a=b\tsession=B", NULL},
    {"session=A; a=b \t session =B", NULL},
    {"session=A; a session=B", NULL},
    {"a=\"b\" session=B", NULL},
    {"session=A secure", NULL},
    {"session=A x=1", NULL},
    {"session=\"A\" x=\"B\"", NULL},
    {"session=\"a b\"", "cookie:" HASH_A_B},
    {"session=A; a=my session; b=the session c", "cookie:" HASH_A},
    /* Python and JavaScript trim U+00A0 and U+0085. */
    {"session=A\302\240", NULL},
    {"session=\240A", NULL},
    {"session=R; session\302\240=A", NULL},
    {"session=R; \302\205session=A", NULL},
    {"session=A; name=\303\251", "cookie:" HASH_A},
};

START_TEST(a_cookie_sets_the_id)
{
    char lines[256];

    load("from: [ 'cookie:session', ip ], cookies: reject");
    snprintf(lines, sizeof lines, "Cookie: %s\n", cookies[_i].sent);
    const char *found = identify("", lines);
    ck_assert_msg(cookies[_i].identity ? found && strcmp(found, cookies[_i].identity) == 0
                                       : !found && malformed,
                  "%s: %s", lines, found ? found : why);
    drop();
}
END_TEST

/* Hashes of NUL and the value, for each value. */
#define LIST_A_B "ddd1e620501c567c57e37b09bff7a334"
#define LIST_B_A "d13e66c6660ef1dba6fa91f70583a277"
#define LIST_A   "efc465909fdf9079fed59c383109965b"

static const struct {
    const char *sent, *identity; /* NULL: 400 */
} several_cookies[] = {
    {"session=A", "cookie:" HASH_A},
    {"session=%41; x=SESSION; sessions=B", "cookie:" HASH_A},
    {"session=A; session=A", "cookie:" HASH_A},
    {"session=A; session=B", "cookie:" LIST_A_B},
    {"session=\"%41\"; x=1; session=B", "cookie:" LIST_A_B},
    {"session=B; session=A", "cookie:" LIST_B_A},
    {"session=A; SESSION=B", "cookie:" LIST_A_B},
    {"session[]=A; %73ession=B", "cookie:" LIST_A_B},
    {"SESSION=A", "cookie:" LIST_A},
    {"session=A; session=", "cookie:c741a4c39f498c9da9a03c57e5ccd73c"},
    {"session=; SESSION=\"\"; session", ADDRESS},
    {"session=%4", "cookie:22c88e48ff9dd3c4a9eecaa03b9da240"},
    {"session=%zz", "cookie:8c9a56d9913894881b6bbb03d137ddd8"},
    {"session=A; session=%zz", "cookie:0d0ef4af65dc8a37ef9b023c216e57b0"},
    {"session=A%01", "cookie:7acaf0f37e0613e7166676dd3129c5cd"},
    {"session=A B", "cookie:697bb33b6b9aab106eff2e6f47aa258f"},
    {"session=a,b", "cookie:e8706feedc0a28d832aa7678b3c1392b"},
    {"session=A,x=1", "cookie:a9344e32ec1036e2d1174a0e8885e715"},
    {"session=A,session=B", "cookie:9751f8d1d8129cc9082bbd3f08c132ae"},
    {"x=1,session=A", "cookie:e02686e3cb3edd255c9521e4479b8e9a"},
    /* Django trims U+00A0 and U+0085. */
    {"session=A\302\240", "cookie:" HASH_A},
    {"session=\302\205A\302\240\302\240", "cookie:" HASH_A},
    {"session\302\240=A", "cookie:" LIST_A},
    {"\302\240session=A\302\240", "cookie:" LIST_A},
    {"session=A; \302\240session=B", "cookie:" LIST_A_B},
    {"session=a\303\251b", "cookie:53c1c8c07e1a2b114d03f8c1fc76787d"},
    {"session=A%00", NULL},
    {"session=A; session=%00", NULL},
    {"session=A%0A", NULL},
    {"session=A; session=\"\\015\"", NULL},
    {"session=A; a=b session=B", NULL},
    {"session=A; a=1, session=B", NULL},
};

START_TEST(several_cookies_together_are_the_id)
{
    char lines[256];

    load("from: [ 'cookie:session', ip ]");
    snprintf(lines, sizeof lines, "Cookie: %s\n", several_cookies[_i].sent);
    const char *found = identify("", lines), *wanted = several_cookies[_i].identity;
    ck_assert_msg(wanted ? found && strcmp(found, wanted) == 0 : !found && malformed, "%s: %s",
                  lines, found ? found : why);
    drop();
}
END_TEST

START_TEST(several_cookie_fields_form_one_list)
{
    load("from: [ 'cookie:session', ip ]");
    ck_assert_str_eq(identify("", "Cookie: session=A\nCookie: session=B\n"), "cookie:" LIST_A_B);
    load("from: [ 'cookie:session', ip ], cookies: reject");
    ck_assert_str_eq(identify("", "Cookie: a=b\ncookie: session=A\n"), "cookie:" HASH_A);
    ck_assert_ptr_null(identify("", "Cookie: session=A\nCookie: session=B\n"));
    drop();
}
END_TEST

static const struct {
    const char *sent, *identity;
} queries[] = {
    {"?api_key=A", "query:" HASH_A},
    {"?x=1&api_key=A&y", "query:" HASH_A},
    {"?api%5Fkey=%41", "query:" HASH_A},
    {"?api_key=A&api_key=%41", "query:" HASH_A},
    {"?api_key=a+b", "query:" HASH_A_B},
    {"?api_key=a%20b%20", "query:" HASH_A_B},
    {"?api_key=A%C2%A0", NULL}, /* a blank of Unicode */
    {"?api_key=%E3%80%80A", NULL},
    {"?api_key=0123456789abcdef%A0+", NULL},
    {"?api_key=&x=;", ADDRESS},
    {"?api_key", ADDRESS},
    {"?apikey=A&api_key2=A", ADDRESS},
    {"?", ADDRESS},
    {"", ADDRESS},
    {"?a=%zz&b=1;c=2", ADDRESS},
    {"?100%&50%off", ADDRESS},
    {"?%u0061pi_key=A", NULL}, /* ASP.NET */
    {"?a%pi_key=A", NULL},
    {"?x=1&api_key%=A", NULL},
    {"?api_key=%u0041", NULL},
    {"?api_key=A&api_key=B", NULL},
    {"?api.key=A", NULL},
    {"?API_KEY=A", NULL},
    {"?+api_key=A", NULL},
    {"?%20api_key=A", NULL},
    {"?api_key[]=A", NULL},
    {"?api_key%00x=A", NULL},
    {"?x=1;api_key=A", NULL},
    {"?api_key=A;x=1", NULL},
    {"?api_key=%", NULL},
};

START_TEST(a_query_parameter_sets_the_id)
{
    load("from: [ 'query:api_key', ip ]");
    const char *found = identify(queries[_i].sent, "");
    ck_assert_msg(queries[_i].identity ? found && strcmp(found, queries[_i].identity) == 0
                                       : !found && malformed,
                  "%s: %s", queries[_i].sent, found ? found : why);
    drop();
}
END_TEST

START_TEST(the_first_of_eight_sources_applies)
{
    load("from: [ 'header:A', 'header:B', 'cookie:c', 'cookie:d', 'query:e', 'query:f', "
         "'header:G', ip ]");
    ck_assert_str_eq(identify("?f=A", "Cookie: d=a+b\n"), "cookie:" HASH_A_B);
    ck_assert_str_eq(identify("?f=A", "G: g\n"), "query:" HASH_A);
    ck_assert_str_eq(identify("?f=A", "G: g\nB: b\n"), "id:b");
    ck_assert_str_eq(identify("", ""), ADDRESS);
    drop();
}
END_TEST

START_TEST(long_ids_and_selected_ids_are_hashed)
{
    char lines[400] = "X-Key: ", first[IDENTITY_TEXT_MAX + 1];

    load("from: [ 'header:X-Key', ip ]");
    memset(lines + 7, 'x', 257);
    lines[264] = '\n';
    strcpy(first, identify("", lines));
    ck_assert_uint_eq(strlen(first), strlen("id:h:") + 32);
    lines[263] = 'y';
    ck_assert_str_ne(identify("", lines), first);
    /* an id cannot collide with the hash of another one */
    snprintf(lines, sizeof lines, "X-Key: %s\n", first + 3);
    ck_assert_str_ne(identify("", lines), first);
    ck_assert_int_eq(strncmp(identify("", lines), "id:h:", 5), 0);
    ck_assert_str_eq(identify("", "X-Key: h:0\n"), "id:h:0");
    load("from: [ 'header:X-Key', ip ], hash: true");
    ck_assert_str_eq(identify("", "X-Key: A\n"), "id:h:" HASH_A);
    load("from: [ 'header:X-Key', ip ], hash: true, hash_key: other");
    ck_assert_str_eq(identify("", "X-Key: A\n"), "id:h:" HASH_A_KEY);
    drop();
}
END_TEST

START_TEST(spellings_of_credentials_are_one_client)
{
    static const char *const same[] = {"Basic QTpi", "basic QTpi", "BASIC  QTpi", "bASIC   QTpi "};
    static const char *const others[] = {"Basic qtpi", "Bearer QTpi", "BasicQTpi", "QTpi",
                                         "Basic:x QTpi"};
    char lines[400], first[IDENTITY_TEXT_MAX + 1];

    load("from: [ 'header:authorization', ip ]");
    ck_assert_str_eq(identify("", "Authorization: basic  QTpi\n"), "id:Basic QTpi");
    ck_assert_str_eq(identify("", "Authorization: QTpi\n"), "id:QTpi");
    for (unsigned hashed = 0; hashed < 2; hashed++) {
        if (hashed)
            load("from: [ 'header:authorization', ip ], hash: true");
        strcpy(first, identify("", "Authorization: Basic QTpi\n"));
        for (unsigned i = 0; i < COUNT_OF(same); i++) {
            snprintf(lines, sizeof lines, "Authorization: %s\n", same[i]);
            ck_assert_str_eq(identify("", lines), first);
        }
        for (unsigned i = 0; i < COUNT_OF(others); i++) {
            snprintf(lines, sizeof lines, "Authorization: %s\n", others[i]);
            ck_assert_str_ne(identify("", lines), first);
        }
    }
    load("from: [ 'header:X-Key', ip ]");
    ck_assert_str_eq(identify("", "X-Key: basic  QTp.i\n"), "id:basic  QTp.i");
    drop();
}
END_TEST

static const struct {
    const char *credentials;
    bool good;
} basic[] = {
    {"dXNlcjpwYXNz", true},
    {"dXNlcjpwYXM=", true},
    {"dXNlcjpwYQ==", true},
    {"", true},
    {"dXNl.cjpwYXNz", false},
    {"dXNl cjpwYXNz", false},
    {"dXNlcjpwYXNz====", false},
    {"dXNlcjpwYXN", false},
    {"dXNlcjpwYXM", false},
    {"dXNlcjpwYXN=", false},
    {"dXNlcjpwYR==", false},
    {"dXNlcjpwYQ=", false},
    {"dXNlcjpwYQ===", false},
    {"dXNlcjpwYQ==,x", false},
    {"dXNlcjpwYQ==YQ==", false},
    {"dXNlcjpw_w==", false},
    {"====", false},
};

START_TEST(credentials_of_basic_have_one_encoding)
{
    static const char *const schemes[] = {"Basic", "basic", "BASIC "};
    char line[100];

    load("from: [ 'header:authorization', ip ]");
    for (size_t i = 0; i < COUNT_OF(schemes); i++) {
        snprintf(line, sizeof line, "Authorization: %s %s\n", schemes[i], basic[_i].credentials);
        const char *found = identify("", line);
        ck_assert_msg(basic[_i].good ? found != NULL : !found && malformed, "%s", line);
    }
    drop();
}
END_TEST

static const struct {
    const char *line;
    bool good;
} spellings[] = {
    {"Authorization: Bearer KEY", true},
    {"Authorization: Bearer 1|KEY", true}, /* Laravel Sanctum */
    {"Authorization: Bearer user:KEY", true},
    {"Authorization: Bearer a-._~+/b==--c", true},
    {"Authorization: Bearer", true},
    {"Authorization: Bearer KEY x1", false}, /* .split(' ')[1] */
    {"Authorization: bearer  KEY x1", false},
    {"Authorization: Bearer KEY,x1", false},  /* Laravel */
    {"Authorization: Bearer KEY;x1", false},  /* Rails */
    {"Authorization: Bearer \"KEY\"", false}, /* Rails */
    {"Authorization: Bearer KEY\240", false}, /* .strip() */
    {"Authorization: Bearer KEY\205\240", false},
    {"Authorization: Bearer KEY\303\251", false},
    {"Authorization: Bearer KEY\240x", false}, /* .split() */
    {"Authorization: Bearer\240KEY", false},
    {"Authorization: x1 Bearer KEY", false}, /* Laravel: the last "Bearer " */
    {"Authorization: x1Bearer KEY", false},
    {"Authorization: a=1, b=bearer KEY", false},
    {"Authorization: \"x\"Bearer KEY", false},
    {"Authorization: 0123456789012345678901234567890123456789Bearer KEY", false},
    {"Authorization: Bearer x1 Bearer KEY", false},
    {"Authorization: Token KEY", true},
    {"Authorization: Token KEY x1", false},
    {"Authorization: Token KEY= x1", false},
    {"Authorization: Token KEY\240x1", false},
    {"Authorization: Token\240KEY", false},
    {"Authorization: KEY", true},
    {"Authorization: KEY\302\240", false},
    {"Authorization: Digest username=\"Andr\303\251\", realm=\"a b\"", true},
    {"Authorization: AWS4-HMAC-SHA256 Credential=A/b, SignedHeaders=c;d, Signature=e", true},
    {"Authorization: 0123456789012345678901234567890123456789 KEY", true},
    {"X-Key: KEY x1", true},
    {"X-Key: Andr\303\251", true},
    {"X-Key: Voil\303\240", true}, /* ends in 0xa0 */
    {"X-Key: \342\204\240", true}, /* U+2120, the service mark */
    {"X-Key: Andr\351", true},     /* Latin-1 */
    {"X-Key: KEY\240", false},
    {"X-Key: \240KEY", false},
    {"X-Key: KEY\205", false},
    {"X-Key: \240", false},
    {"X-Key: \302\240", false},
    {"X-Key: KEY\302\240", false},
    {"X-Key: \302\240KEY", false},
    {"X-Key: KEY\302\205", false},
    {"X-Key: KEY\342\200\203", false},
    {"X-Key: KEY\342\200\213", true}, /* U+200B is no blank */
    {"X-Key: KEY\343\200\200", false},
    {"X-Key: \357\273\277KEY", false},
    {"X-Key: KEY\303\240\240", false},
    {"X-Client-Id: KEY", true},
    {"X-Client-Id: KEY x1", true},
    {"X-Client-Id: KEY\240", false},
};

START_TEST(values_that_servers_read_in_many_spellings_are_refused)
{
    char line[100];

    load("from: [ 'header:authorization', 'header:X-Key', 'header:X-Client-Id', ip ]");
    snprintf(line, sizeof line, "%s\n", spellings[_i].line);
    const char *found = identify("", line);
    ck_assert_msg(spellings[_i].good ? found && identity.is_id : !found && malformed, "%s", line);
    drop();
}
END_TEST

#define SECRET "0123456789abcdef0123456789abcdef"
/* {"alg":"HS256"}.{"org":"acme"}, signed with SECRET; without the last character of the signature */
#define TOKEN                                                                                      \
    "Bearer eyJhbGciOiJIUzI1NiJ9.eyJvcmciOiJhY21lIn0.ai8httiAsw4ZV_Hik63ElaFJq8FDDmJcnPhYsn9jqi"

/* The token becomes valid between the calls, which no request can do. Thus the test sees whether it
 * is verified again. */
START_TEST(an_invalid_token_is_verified_once)
{
    static struct token_stats stats;
    struct token_checker *checker;
    struct fields fields = {.count = 1, .at = {{.name = SLICE("Authorization")}}};
    struct peer peer = {.has_ip = false};
    struct identity_input input = {.peer = {.source = &peer}, .fields = &fields};
    struct key_values values;

    policy_drop(policy);
    policy = policy_load_text(
        "test.yaml",
        SLICE("upstreams: { a: { servers: 127.0.0.1:1 } }\n"
              "identity: { from: [ 'jwt:sub', 'jwt:org' ],\n"
              "  jwt: { secret: " SECRET " } }\n"
              "limits: { a: { script: gcra, per: 'jwt:org', limit: 1, period: 1s } }\n"
              "rules: [ { limits: a } ]\n"),
        getenv("WEIR_LUA_DIR"), stderr);
    ck_assert(policy && token_checker_new(policy, &stats, &checker));
    input.policy = policy;
    input.tokens = checker;
    const struct rule *rule = &policy->rules[0];
    for (unsigned valid = 0; valid < 2; valid++) {
        fields.at[0].value = valid ? SLICE(TOKEN "k") : SLICE(TOKEN "A");
        ck_assert(identity_of(&input, &identity, &why));
        ck_assert_int_eq(identity.is_id, valid);
        fields.at[0].value = SLICE(TOKEN "k");
        ck_assert(identity_of_content(&input, &identity, &why));
        ck_assert_int_eq(identity.is_id, valid);
        ck_assert(key_values_read(&input, rule, &identity, &values, &why));
        ck_assert_uint_eq(key_value(&values, 0).n, valid ? strlen("acme") : 0);
    }
    token_checker_free(checker);
    drop();
}
END_TEST

static const struct {
    const char *header, *sent;
    enum identity_token state;
    bool refused; /* with invalid: fall_through */
} tokens[] = {
    {"Authorization", TOKEN "k", TOKEN_VALID, false},
    {"Authorization", TOKEN "A", TOKEN_INVALID, false},
    {"Authorization", "Bearer 1|opaque", TOKEN_INVALID, false},
    {"Authorization", "Basic QTpi", TOKEN_NONE, false},
    {"Authorization", TOKEN "k x", TOKEN_INVALID, true},
    {"Authorization", TOKEN "k,x", TOKEN_INVALID, true},
    {"Authorization", TOKEN "k\240", TOKEN_INVALID, true},
    {"Authorization", "x " TOKEN "k", TOKEN_INVALID, true},
    {"Authorization", "x" TOKEN "k", TOKEN_INVALID, true},
    {"X-Token", TOKEN "k", TOKEN_VALID, false},
    {"X-Token", TOKEN "k x", TOKEN_INVALID, true},
    {"X-Token", "opaque", TOKEN_INVALID, false},
    {"X-Token", "opaque x", TOKEN_INVALID, true},
};

START_TEST(tokens_that_servers_may_read_are_not_passed_over)
{
    static struct token_stats stats;
    struct token_checker *checker;
    struct fields fields = {.count = 1};
    struct peer peer = {.has_ip = false};
    struct identity_input input = {.peer = {.source = &peer}, .fields = &fields};
    char settings[200];

    fields.at[0].name = slice_of(tokens[_i].header);
    fields.at[0].value = slice_of(tokens[_i].sent);
    for (unsigned refuses = 0; refuses < 2; refuses++) {
        snprintf(settings, sizeof settings,
                 "from: [ 'jwt:org', ip ], jwt: { secret: " SECRET ", header: %s, invalid: %s }",
                 tokens[_i].header, refuses ? "401" : "fall_through");
        load(settings);
        ck_assert(token_checker_new(policy, &stats, &checker));
        input.policy = policy;
        input.tokens = checker;
        bool good = identity_of(&input, &identity, &why);
        ck_assert_int_eq(identity.token_state, tokens[_i].state);
        ck_assert_int_eq(good, refuses ? tokens[_i].state != TOKEN_INVALID : !tokens[_i].refused);
        if (!good)
            ck_assert_int_eq(identity.failure,
                             refuses ? IDENTITY_INVALID_TOKEN : IDENTITY_MALFORMED);
        token_checker_free(checker);
    }
    drop();
}
END_TEST

START_TEST(client_ip_header_and_prefix_are_configurable)
{
    load("trusted_proxies: 10.0.0.0/8, client_ip_header: CF-Connecting-IP, ipv4_prefix: 24, "
         "ipv6_prefix: 48");
    ck_assert_str_eq(identify_from("10.0.0.1:1", "",
                                   "CF-Connecting-IP: 203.0.113.7\nX-Forwarded-For: 1.1.1.1\n"),
                     "ip:203.0.113.0/24");
    ck_assert_str_eq(identify_from("10.0.0.1:1", "", "cf-connecting-ip: 2001:db8::1\n"),
                     "ip:2001:db8::/48");
    ck_assert_str_eq(identify_from("10.0.0.1:1", "", "X-Forwarded-For: 1.1.1.1\n"),
                     "ip:10.0.0.0/24");
    ck_assert_str_eq(identify_from("192.0.2.9:1", "", "CF-Connecting-IP: 203.0.113.7\n"),
                     "ip:192.0.2.0/24");
    drop();
}
END_TEST

static const struct {
    const char *name, *text, *back; /* text NULL: no client */
} names[] = {
    {"alice", "id:alice", "alice"},
    {"id:alice", "id:alice", "alice"},
    {"id:id:alice", "id:id:alice", "id:id:alice"},
    {"id:jwt:alice", "id:jwt:alice", "id:jwt:alice"},
    {"jwt:alice", "jwt:alice", "jwt:alice"},
    {"cookie:A", "cookie:" HASH_A, "cookie:h:" HASH_A},
    {"cookie:\"%41\"", "cookie:" HASH_A, "cookie:h:" HASH_A},
    {"cookie:\302\240A\302\240", "cookie:" HASH_A, "cookie:h:" HASH_A},
    {"cookie:h:" HASH_A, "cookie:" HASH_A, "cookie:h:" HASH_A},
    {"query:a b", "query:" HASH_A_B, "query:h:" HASH_A_B},
    {"id:h:" HASH_A, "id:h:" HASH_A, "id:h:" HASH_A},
    {"jwt:h:" HASH_A, "jwt:h:" HASH_A, "jwt:h:" HASH_A},
    {"ip:203.0.113.7", "ip:203.0.113.7", "ip:203.0.113.7"},
    {"ip:2001:db8::7", "ip:2001:db8::/64", "ip:2001:db8::/64"},
    {"ip:unix", "ip:unix", "ip:unix"},
    {"h:" HASH_A, NULL, NULL}, /* an id from a header that looks like a hash: hashed, see below */
    {"", NULL, NULL},
    {"jwt:", NULL, NULL},
    {"cookie:", NULL, NULL},
    {"cookie:%4", "cookie:22c88e48ff9dd3c4a9eecaa03b9da240",
     "cookie:h:22c88e48ff9dd3c4a9eecaa03b9da240"},
    {"cookie:%00", NULL, NULL},
    {"query:%", NULL, NULL},
    {"a\tb", NULL, NULL},
    {"ip:10.0.0.0/8", NULL, NULL},
};

START_TEST(client_names_are_parsed_and_formatted)
{
    char bytes[IDENTITY_TEXT_MAX];
    struct text back = text_over(bytes, sizeof bytes);

    load("from: [ ip ]");
    bool good = identity_parse(&policy->identity, slice_of(names[_i].name), &identity, &why);
    if (strncmp(names[_i].name, "h:", 2) == 0) {
        ck_assert(good && identity.size == strlen("id:h:") + 32);
        ck_assert(!slice_equal(identity_text(&identity), SLICE("id:h:" HASH_A)));
        drop();
        return;
    }
    ck_assert_msg(good == (names[_i].text != NULL), "%s", names[_i].name);
    if (good) {
        ck_assert_msg(slice_equal(identity_text(&identity), slice_of(names[_i].text)), "%s: %.*s",
                      names[_i].name, SLICE_ARG(identity_text(&identity)));
        identity_write_name(&back, identity_text(&identity));
        ck_assert_msg(slice_equal(text_slice(&back), slice_of(names[_i].back)), "%s: %.*s",
                      names[_i].name, SLICE_ARG(text_slice(&back)));
        struct identity again;
        ck_assert(identity_parse(&policy->identity, text_slice(&back), &again, &why));
        ck_assert(slice_equal(identity_text(&again), identity_text(&identity)));
    } else {
        ck_assert_ptr_nonnull(why);
    }
    drop();
}
END_TEST

START_TEST(clients_in_the_policy_are_listed_by_value)
{
    static const char yaml[] =
        "upstreams: { a: { servers: 127.0.0.1:1 } }\n"
        "identity: { from: [ 'cookie:s', 'query:k', 'header:X', ip ], headers_from: anyone }\n"
        "clients: { 'cookie:A': { quota: 0 }, 'query:A': { quota: unlimited }, 'id:A': { quota: 0 "
        "} }\n";

    policy = policy_load_text("test.yaml", slice_of(yaml), "lua", stderr);
    ck_assert_ptr_nonnull(policy);
    ck_assert_ptr_nonnull(identify("", "Cookie: s=A\n"));
    ck_assert_int_eq(policy_client(policy, &identity)->quota, QUOTA_PROHIBITED);
    ck_assert_str_eq(policy_client(policy, &identity)->name,
                     "cookie:h:" HASH_A); /* the credential is not stored */
    ck_assert_ptr_nonnull(identify("?k=A", ""));
    ck_assert_int_eq(policy_client(policy, &identity)->quota, QUOTA_UNLIMITED);
    ck_assert_ptr_nonnull(identify("", "X: A\n"));
    ck_assert_str_eq(policy_client(policy, &identity)->name, "A");
    ck_assert_ptr_nonnull(identify("", "X: B\n"));
    ck_assert_ptr_null(policy_client(policy, &identity));
    drop();
}
END_TEST

START_TEST(logs_hide_query_parameters_with_ids)
{
    static const char *const targets[][2] = {
        {"/a?api_key=SECRET", "/a?api_key=***"},
        {"/a?x=1&api_key=SECRET&y=2", "/a?x=1&api_key=***&y=2"},
        {"/a?api%5fkey=SECRET;b", "/a?api%5fkey=***;b"},
        {"/a?api.key=SECRET&api_key=SECRET", "/a?api.key=***&api_key=***"},
        {"https://a/?api_key=SECRET", "https://a/?api_key=***"},
        {"/api_key=1?x=2", "/api_key=1?x=2"},
        {"/a?api_key=", "/a?api_key="},
        {"/a?api_key", "/a?api_key"},
        {"", ""},
    };
    char bytes[128];

    load("from: [ 'query:api_key', ip ]");
    for (unsigned i = 0; i < COUNT_OF(targets); i++) {
        struct text out = text_over(bytes, sizeof bytes);
        struct slice shown = identity_redact(policy, slice_of(targets[i][0]), &out);
        ck_assert_msg(slice_equal(shown, slice_of(targets[i][1])), "%.*s", SLICE_ARG(shown));
    }
    drop();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("identity sources");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, a_cookie_sets_the_id, 0, (int)COUNT_OF(cookies));
    tcase_add_loop_test(tests, several_cookies_together_are_the_id, 0,
                        (int)COUNT_OF(several_cookies));
    tcase_add_test(tests, several_cookie_fields_form_one_list);
    tcase_add_loop_test(tests, a_query_parameter_sets_the_id, 0, (int)COUNT_OF(queries));
    tcase_add_test(tests, the_first_of_eight_sources_applies);
    tcase_add_test(tests, long_ids_and_selected_ids_are_hashed);
    tcase_add_test(tests, spellings_of_credentials_are_one_client);
    tcase_add_loop_test(tests, credentials_of_basic_have_one_encoding, 0, (int)COUNT_OF(basic));
    tcase_add_loop_test(tests, values_that_servers_read_in_many_spellings_are_refused, 0,
                        (int)COUNT_OF(spellings));
    tcase_add_loop_test(tests, tokens_that_servers_may_read_are_not_passed_over, 0,
                        (int)COUNT_OF(tokens));
    tcase_add_test(tests, an_invalid_token_is_verified_once);
    tcase_add_test(tests, client_ip_header_and_prefix_are_configurable);
    tcase_add_loop_test(tests, client_names_are_parsed_and_formatted, 0, (int)COUNT_OF(names));
    tcase_add_test(tests, clients_in_the_policy_are_listed_by_value);
    tcase_add_test(tests, logs_hide_query_parameters_with_ids);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
