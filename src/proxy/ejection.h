/* ejection.h - why a worker stops sending requests to a server for a while. */
#ifndef WEIR_PROXY_EJECTION_H
#define WEIR_PROXY_EJECTION_H

/* name, label in metrics */
#define EJECTIONS(X)                                                                                         \
    X(EJECTION_CONNECT, "connect")   /* a connection, or the TLS handshake, failed */                        \
    X(EJECTION_FAILURES, "failures") /* so many requests in a row failed */                                  \
    X(EJECTION_RATE, "failure_rate") /* such a share of its recent requests failed */

enum ejection {
#define X(name, label) name,
    EJECTIONS(X)
#undef X
        EJECTION_COUNT
};

extern const char *const ejection_label[EJECTION_COUNT];

#endif
