/* listen_tls.h - option tls of listeners: of listen, admin and others. */
#ifndef WEIR_POLICY_LISTEN_TLS_H
#define WEIR_POLICY_LISTEN_TLS_H

enum client_certificate { CLIENT_CERTIFICATE_REQUIRED, CLIENT_CERTIFICATE_OPTIONAL };
enum min_version { MIN_VERSION_1_2, MIN_VERSION_1_3 };

/* An entry of the option. The first entry has the settings of the listener. Paths are as written,
 * and NULL if not set. */
struct listen_tls_entry {
    char *certificate, *key;
    char *client_ca, *client_crl;
    enum client_certificate client_certificate;
    enum min_version min_version;
    char *ciphers;
};

struct listen_tls {
    struct listen_tls_entry *entries; /* one per certificate */
    unsigned count;
    struct tls_server *server; /* holds a reference */
};

/* Returns the TLS server of a listener, or NULL. */
static inline struct tls_server *listen_tls_server(const struct listen_tls *tls)
{
    return tls ? tls->server : NULL;
}

#endif
