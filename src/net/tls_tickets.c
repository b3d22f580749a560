/* tls_tickets.c - TLS server: keys of session tickets, and their rotation.
 *
 *   age of a key    0 ............ TICKET_LIFE ............ 2 * TICKET_LIFE
 *                   encrypts and decrypts     decrypts      wiped
 *
 * The last ticket of a key is valid until the key is wiped. The next key begins when it is needed,
 * so there are never more than two. */
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/macros.h"
#include "net/tls_internal.h"

enum { TICKET_LIFE_S = 2 * 60 * 60 }; /* as OpenSSL's default */

static const uint64_t life_us = (uint64_t)TICKET_LIFE_S * 1000000;

struct ticket_key {
    uint64_t begun_us; /* clock_us(); 0: there is no key */
    unsigned char name[16], cipher[32], mac[32];
};

struct tls_tickets {
    atomic_uint references;
    pthread_mutex_t lock;
    struct ticket_key keys[2]; /* under the lock; the newer one first */
};

struct tls_tickets *tls_tickets_new(void)
{
    struct tls_tickets *tickets = calloc(1, sizeof *tickets);

    if (tickets) {
        atomic_init(&tickets->references, 1);
        pthread_mutex_init(&tickets->lock, NULL);
    }
    return tickets;
}

struct tls_tickets *tls_tickets_hold(struct tls_tickets *tickets)
{
    atomic_fetch_add_explicit(&tickets->references, 1, memory_order_relaxed);
    return tickets;
}

void tls_tickets_drop(struct tls_tickets *tickets)
{
    if (!tickets || atomic_fetch_sub_explicit(&tickets->references, 1, memory_order_acq_rel) > 1)
        return;
    pthread_mutex_destroy(&tickets->lock);
    OPENSSL_cleanse(tickets->keys, sizeof tickets->keys);
    free(tickets);
}

/* ---- rotation; under the lock ---------------------------------------------------------------- */

static void wipe_old(struct tls_tickets *tickets, uint64_t now_us)
{
    for (size_t i = 0; i < COUNT_OF(tickets->keys); i++)
        if (tickets->keys[i].begun_us && now_us - tickets->keys[i].begun_us >= 2 * life_us)
            OPENSSL_cleanse(&tickets->keys[i], sizeof tickets->keys[i]);
}

/* Ensures that the first key may encrypt. Returns false if OpenSSL has no random bytes. */
static bool begin_key(struct tls_tickets *tickets, uint64_t now_us)
{
    struct ticket_key *key = &tickets->keys[0];

    if (key->begun_us && now_us - key->begun_us < life_us)
        return true;
    tickets->keys[1] = *key;
    key->begun_us = now_us;
    if (RAND_bytes(key->name, sizeof key->name) == 1 &&
        RAND_priv_bytes(key->cipher, sizeof key->cipher) == 1 &&
        RAND_priv_bytes(key->mac, sizeof key->mac) == 1)
        return true;
    *key = tickets->keys[1];
    return false;
}

void tls_tickets_wipe_old(struct tls_tickets *tickets)
{
    pthread_mutex_lock(&tickets->lock);
    wipe_old(tickets, clock_us());
    pthread_mutex_unlock(&tickets->lock);
}

/* ---- OpenSSL --------------------------------------------------------------------------------- */

/* Copies the key that encrypts now to `*key`. */
static bool key_to_encrypt(struct tls_tickets *tickets, struct ticket_key *key)
{
    uint64_t now_us = clock_us();

    pthread_mutex_lock(&tickets->lock);
    wipe_old(tickets, now_us);
    bool good = begin_key(tickets, now_us);
    *key = tickets->keys[0];
    pthread_mutex_unlock(&tickets->lock);
    return good;
}

/* Copies the key of this name to `*key`. Returns false if there is none. */
static bool key_to_decrypt(struct tls_tickets *tickets, const unsigned char *name,
                           struct ticket_key *key)
{
    pthread_mutex_lock(&tickets->lock);
    wipe_old(tickets, clock_us());
    *key = tickets->keys[memcmp(tickets->keys[0].name, name, sizeof key->name) != 0];
    pthread_mutex_unlock(&tickets->lock);
    return key->begun_us && memcmp(key->name, name, sizeof key->name) == 0;
}

static bool begin_ticket(struct ticket_key *key, const unsigned char *iv, EVP_CIPHER_CTX *cipher,
                         EVP_MAC_CTX *mac, bool encrypt)
{
    static char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, key->mac, sizeof key->mac),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0), OSSL_PARAM_END};

    return EVP_CipherInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv, encrypt) == 1 &&
           EVP_MAC_CTX_set_params(mac, params) == 1;
}

/* RFC 5077 section 4. The result is that of SSL_CTX_set_tlsext_ticket_key_evp_cb(3): -1 ends the
 * handshake, 0 refuses the ticket, and 2 accepts it and lets the client have a new one. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher,
                     EVP_MAC_CTX *mac, int encrypt)
{
    struct tls_tickets *tickets =
        *(struct tls_tickets **)SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    struct ticket_key key;
    int result = 0;

    if (encrypt) {
        bool good = key_to_encrypt(tickets, &key) && RAND_bytes(iv, EVP_MAX_IV_LENGTH) == 1 &&
                    begin_ticket(&key, iv, cipher, mac, true);
        memcpy(name, key.name, sizeof key.name);
        result = good ? 1 : -1;
    } else if (key_to_decrypt(tickets, name, &key) && begin_ticket(&key, iv, cipher, mac, false))
        result = clock_us() - key.begun_us < life_us ? 1 : 2;
    OPENSSL_cleanse(&key, sizeof key);
    return result;
}

bool tls_tickets_apply(struct tls_tickets **tickets, SSL_CTX *ctx)
{
    SSL_CTX_set_timeout(ctx, TICKET_LIFE_S);
    return SSL_CTX_set_app_data(ctx, tickets) == 1 &&
           SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket) == 1;
}
