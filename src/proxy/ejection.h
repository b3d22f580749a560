/* ejection.h - the reasons for which a worker ejects a server. */
#ifndef WEIR_PROXY_EJECTION_H
#define WEIR_PROXY_EJECTION_H

/* name, label in metrics */
#define EJECTIONS(X)                                                                                         \
    X(EJECTION_CONNECT, "connect")   /* a connection or the TLS handshake failed */                          \
    X(EJECTION_FAILURES, "failures") /* eject.failures consecutive requests failed */                        \
    X(EJECTION_RATE, "failure_rate") /* eject.failure_rate of the recent requests failed */

enum ejection {
#define X(name, label) name,
    EJECTIONS(X)
#undef X
        EJECTION_COUNT
};

extern const char *const ejection_label[EJECTION_COUNT];

#endif
