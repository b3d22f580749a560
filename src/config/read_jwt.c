/* read_jwt.c - section identity.jwt: keys and rules of tokens. */
#include "config/sections.h"
#include "policy/jwt.h"

enum { KEYS_FILE_MAX = 256 << 10 }; /* bytes */

bool identity_reads_tokens(const void *policy)
{
    return ((const struct policy *)policy)->identity.claim_count > 0;
}

bool jwt_has_inline_secret(const void *policy)
{
    const struct jwt_settings *jwt = &((const struct policy *)policy)->identity.jwt;
    return jwt->secret && !jwt->secret_file;
}

static struct jwt_keys *keys_of(struct jwt_settings *jwt)
{
    if (!jwt->keys)
        jwt->keys = jwt_keys_new();
    return jwt->keys;
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

static void read_keys(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    struct jwt_settings *jwt = field;
    struct jwt_set_report report;
    struct slice bytes;
    const char *path = file_path(l, option, node);

    if (!path || !named_file_read(l, node, &l->scratch, path, KEYS_FILE_MAX, &bytes))
        return;
    if (!jwt_keys_add_set(keys_of(jwt), slice_after_bom(bytes), &report))
        mistake(l, node, "%s is not a JWK set (RFC 7517): %s", path, report.why);
    else if (report.usable == 0)
        mistake(l, node, "%s has no key that can verify tokens: %s", path,
                report.skipped ? report.why : "the set is empty");
    else
        warn_of_set(l, node, path, &report);
    jwt->keys_file = keep_text(l, node);
}

static void print_keys(const struct printer *printer, const struct option *option,
                       const void *field)
{
    type_text.print(printer, option, &((const struct jwt_settings *)field)->keys_file);
}

const struct option_type type_jwt_keys = {"path", read_keys, print_keys, true, 0};

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
    else if (!jwt_keys_add_secret(keys_of(jwt), secret))
        mistake(l, node, "there are already %d keys", JWT_KEYS_MAX);
    jwt->secret = arena_text(l->arena, secret);
}

static void read_secret(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    (void)option;
    if (!node->null && expect_scalar(l, node, "text"))
        take_secret(l, node, field, node->text);
}

/* Prints as many asterisks as a secret needs, so that the output can be read again. */
static void print_secret(const struct printer *printer, const struct option *option,
                         const void *field)
{
    (void)option, (void)field;
    fprintf(printer->out, " \"%.*s\"\n", JWT_SECRET_MIN, "********************************");
}

const struct option_type type_jwt_secret = {"text", read_secret, print_secret, true, 0};

static void read_secret_file(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct jwt_settings *jwt = field;
    struct slice secret;

    if (!secret_file_read(l, option, node, "secret", &secret))
        return;
    if (jwt->secret) {
        mistake(l, node, "gives the secret, as identity.jwt.secret does; remove one of them");
        return;
    }
    take_secret(l, node, jwt, secret);
    jwt->secret_file = keep_text(l, node);
}

static void print_secret_file(const struct printer *printer, const struct option *option,
                              const void *field)
{
    type_text.print(printer, option, &((const struct jwt_settings *)field)->secret_file);
}

const struct option_type type_jwt_secret_file = {"path", read_secret_file, print_secret_file, true,
                                                 0};

/* --- checks --- */

void check_jwt(struct loading *l)
{
    const struct jwt_settings *jwt = &l->policy->identity.jwt;
    const struct node *section = node_at(l, "identity", "jwt"),
                      *from = node_at(l, "identity", "from");

    if (!identity_reads_tokens(l->policy))
        return;
    if (!jwt->keys && l->report->mistakes == 0)
        mistake(l, section ? section : from,
                "a jwt source needs the keys that tokens are signed with; name a file with "
                "identity.jwt.keys, "
                "secret or secret_file");
    if (!slice_is_token(slice_of(jwt->header)))
        mistake(l, node_find(section, "header"), "%s is not a header name",
                QUOTE(slice_of(jwt->header)));
}
