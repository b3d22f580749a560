/* identity_hash.c - keyed hashes of the values of identities. */
#include "base/text.h"
#include "http/credentials.h"
#include "policy/identity_internal.h"
#include "policy/pairs.h"

/* Bytes on their way into a hash. */
struct hashing {
    SHA256_CTX *hash;
    size_t n;
    char bytes[SHA256_CBLOCK];
};

static void flush_bytes(struct hashing *hashing)
{
    hmac_add(hashing->hash, (struct slice){hashing->bytes, hashing->n});
    hashing->n = 0;
}

static void hash_byte(struct hashing *hashing, char c)
{
    if (hashing->n == sizeof hashing->bytes)
        flush_bytes(hashing);
    hashing->bytes[hashing->n++] = c;
}

/* Control bytes that no value has. With `keep_malformed`, all others are accepted. */
static bool is_refused(int c, bool keep_malformed)
{
    if (keep_malformed)
        return c == 0 || c == '\r' || c == '\n';
    return (c < ' ' && c != '\t') || c == 0x7f;
}

const char *identity_hash_value(SHA256_CTX *hash, struct slice value, bool keep_malformed,
                                bool *empty)
{
    struct hashing hashing = {.hash = hash};
    char edges[8]; /* the first and the last four bytes */
    size_t spaces = 0, n = 0;
    int c;

    bool quoted = value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"';
    if (quoted)
        value = (struct slice){value.p + 1, value.n - 2};
    struct percent percent = {value.p, value.p + value.n, quoted};
    *empty = true;
    while ((c = percent_next(&percent)) != PERCENT_END) {
        if (c == PERCENT_MALFORMED && keep_malformed)
            c = '%';
        if (c < 0 || is_refused(c, keep_malformed))
            return keep_malformed ? "the identity's cookie contains NUL, CR or LF"
                                  : "the identity's value has malformed percent-encoding or "
                                    "control bytes";
        if (c == ' ' || c == '\t' || c == '+') {
            spaces++;
            continue;
        }
        for (; spaces && !*empty; spaces--)
            hash_byte(&hashing, ' ');
        hash_byte(&hashing, (char)c);
        *empty = false;
        spaces = 0;
        if (n == sizeof edges)
            memmove(edges + 4, edges + 5, --n - 4);
        edges[n++] = (char)c;
    }
    if (!keep_malformed && value_may_be_trimmed((struct slice){edges, n}))
        return "the identity's value begins or ends with a blank of Unicode";
    flush_bytes(&hashing);
    return NULL;
}

const char *identity_hash_item(SHA256_CTX *hash, struct slice value, bool *empty)
{
    hmac_add(hash, (struct slice){"", 1});
    return identity_hash_value(hash, value, true, empty);
}

void identity_write_hash(struct text *out, const struct hmac_key *key, SHA256_CTX *hash)
{
    unsigned char digest[HMAC_SIZE];

    hmac_end(key, hash, digest);
    for (unsigned i = 0; i < IDENTITY_HASH_BYTES; i++)
        text_hex_fixed(out, digest[i], 2);
}
