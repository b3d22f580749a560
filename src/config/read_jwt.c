/* read_jwt.c - section identity.jwt: keys and rules of tokens. */
#include "base/memory.h"
#include "config/sections.h"
#include "jwks/https_get.h"
#include "jwks/key_url.h"
#include "net/tls.h"
#include "policy/jwt.h"
#include "policy/remote_keys.h"

enum { KEYS_FILE_MAX = 256 << 10 }; /* bytes */

bool jwt_has_inline_secret(const void *policy)
{
    const struct jwt_settings *jwt = &((const struct policy *)policy)->identity.jwt;
    return jwt->has_secret && !jwt->secret_file;
}

static struct jwt_keys *new_set(struct jwt_settings *jwt)
{
    struct jwt_keys *set = jwt_keys_new();

    if (!set)
        memory_exhausted();
    jwt->sets[jwt->set_count++] = set;
    return set;
}

/* --- keys --- */

static void warn_of_set(struct loading *l, const struct node *node, const char *path,
                        const struct jwt_set_report *report)
{
    if (report->skipped)
        warning(l, node, "%s: %u of %u keys cannot verify tokens: %s", path, report->skipped,
                report->skipped + report->usable, report->why);
    if (report->has_private)
        warning(l, node, "%s holds a private key; weir needs the public one alone (remove \"d\")",
                path);
}

static void read_keys_file(struct loading *l, const struct node *node, struct jwt_settings *jwt)
{
    struct jwt_set_report report;
    struct slice bytes;
    const char *path = neighbour_path(l, node->text);

    if (!named_file_read(l, node, &l->scratch, path, KEYS_FILE_MAX, &bytes))
        return;
    if (!jwt_keys_add_set(new_set(jwt), slice_after_bom(bytes), JWT_SET_PRIVATE, &report))
        mistake(l, node, "%s is not a JWK set (RFC 7517): %s", path, report.why);
    else if (report.usable == 0)
        mistake(l, node, "%s has no key that can verify tokens: %s", path,
                report.skipped ? report.why : "the set is empty");
    else
        warn_of_set(l, node, path, &report);
}

/* Nothing is fetched here: a policy is read without the network. */
static void read_keys_url(struct loading *l, const struct node *node, struct jwt_settings *jwt)
{
    struct key_url url;
    const char *why;

    if (!https_is_there())
        mistake(l, node,
                "this weir was built without libcurl, so it cannot fetch keys; build it with the "
                "Debian package libcurl4-openssl-dev, or name a file");
    else if (!key_url_parse(node->text, &url, &why))
        /* may contain a password: do not print it */
        mistake(l, node, "%s %s",
                memchr(node->text.p, '@', node->text.n) ? "the URL" : QUOTE(node->text), why);
    else if (jwt->remote_count == KEY_URLS_MAX)
        mistake(l, node, "is one URL too many; expected at most %d", KEY_URLS_MAX);
    else
        jwt->remote[jwt->remote_count++] = remote_keys_new(
            keep_text(l, node), jwt->ca ? neighbour_path(l, slice_of(jwt->ca)) : NULL);
}

static void read_keys(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    struct jwt_settings *jwt = field;

    if (node->null || !expect_items(l, option, node, "files and URLs"))
        return;
    jwt->keys_from = arena_zeroed(l->arena, KEYS_FROM_MAX, sizeof *jwt->keys_from);
    EACH_ITEM (item, node) {
        if (!expect_scalar(l, item, "a file or a URL"))
            continue;
        for (unsigned i = 0; i < jwt->keys_from_count; i++)
            if (slice_equal(slice_of(jwt->keys_from[i]), item->text))
                mistake(l, item, "%s is listed twice", QUOTE(item->text));
        jwt->keys_from[jwt->keys_from_count++] = keep_text(l, item);
        if (key_url_is_one(item->text))
            read_keys_url(l, item, jwt);
        else
            read_keys_file(l, item, jwt);
    }
}

static void print_key_source(FILE *out, const void *field, unsigned index)
{
    print_scalar(out, slice_of(((const struct jwt_settings *)field)->keys_from[index]));
}

static void print_keys(const struct printer *printer, const void *field)
{
    const struct jwt_settings *jwt = field;
    char *const none = NULL;

    if (jwt->keys_from_count <= 1)
        type_text.print(printer, jwt->keys_from_count ? &jwt->keys_from[0] : &none);
    else
        print_items(printer, jwt->keys_from_count, print_key_source, jwt);
}

const struct option_type type_jwt_keys = {"file or URL, or a list of them", read_keys, print_keys,
                                          true, 0};

/* --- ca --- */

/* Reads the authorities, so that a bad file is found now. */
static void read_ca(struct loading *l, const struct option *option, const struct node *node,
                    void *field)
{
    struct jwt_settings *jwt = field;
    struct tls_client_settings settings = {.verify = true, .ca = file_path(l, option, node)};
    struct tls_client *client = NULL;
    char why[TLS_WHY_MAX];

    if (!settings.ca)
        return;
    if (tls_client_new(&settings, &client, why) == TLS_GOOD)
        jwt->ca = keep_text(l, node);
    else
        mistake(l, node, "%s %s", QUOTE(node->text), why);
    tls_client_free(client);
}

const struct option_type type_jwt_ca = {"path", read_ca, print_text, true, 0};

/* --- secret --- */

static void take_secret(struct loading *l, const struct node *node, struct jwt_settings *jwt,
                        struct slice secret)
{
    if (secret.n < JWT_SECRET_MIN || secret.n > JWT_SECRET_MAX)
        mistake(l, node,
                "the secret has %zu bytes; expected %d to %d (RFC 7518 section 3.2); openssl rand "
                "-hex 32 "
                "makes one",
                secret.n, JWT_SECRET_MIN, JWT_SECRET_MAX);
    else
        jwt_keys_add_secret(new_set(jwt), secret);
    jwt->has_secret = true;
}

static void read_secret(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    (void)option;
    if (!node->null && expect_scalar(l, node, "text"))
        take_secret(l, node, field, node->text);
}

/* Prints as many asterisks as a secret needs, so that the output can be read again. */
static void print_hidden(const struct printer *printer, const void *field)
{
    (void)field;
    fprintf(printer->out, " \"%.*s\"\n", JWT_SECRET_MIN, "********************************");
}

const struct option_type type_jwt_secret = {"text", read_secret, print_hidden, true, 0};

static void read_secret_file(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct jwt_settings *jwt = field;
    struct slice secret;

    if (!secret_file_read(l, option, node, "secret", &secret))
        return;
    if (jwt->has_secret) {
        mistake(l, node, "gives the secret, as identity.jwt.secret does; remove one of them");
        return;
    }
    take_secret(l, node, jwt, secret);
    jwt->secret_file = keep_text(l, node);
}

const struct option_type type_jwt_secret_file = {"path", read_secret_file, print_text, true, 0};

/* --- checks --- */

void check_jwt(struct loading *l)
{
    const struct jwt_settings *jwt = &l->policy->identity.jwt;
    const struct node *section = node_at(l, "identity", "jwt"),
                      *from = node_at(l, "identity", "from");
    const struct node *place = section ? section : from ? from : node_find(l->root, "limits");

    if (!l->policy->identity.claim_count)
        return;
    if (jwt->set_count + jwt->remote_count == 0 && l->report->mistakes == 0)
        mistake(l, place,
                "jwt:CLAIM needs the keys that tokens are signed with; name a file or a URL with "
                "identity.jwt.keys, or a secret with secret or secret_file");
    if (!slice_is_token(slice_of(jwt->header)))
        mistake(l, node_find(section, "header"), "%s is not a header name",
                QUOTE(slice_of(jwt->header)));
}
