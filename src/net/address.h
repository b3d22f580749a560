/* address.h - where to listen, where to connect, and who is at the other end. */
#ifndef WEIR_NET_ADDRESS_H
#define WEIR_NET_ADDRESS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/text.h"

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
        struct sockaddr_un local;
    };
    socklen_t length; /* 0: none */
};

enum {
    ADDRESS_TEXT_MAX = 128,   /* holds any address_format with its NUL */
    HOST_NAME_BYTES_MAX = 253 /* RFC 1035 section 2.3.4, as text */
};

/* RFC 1123 section 2.1, and the underscore that container networks use. The last label is no number, so that a mistyped
 * IPv4 address is not taken for a name. */
bool host_name_is_valid(struct slice host);

/* Reads "127.0.0.1:80", "[::1]:80", "unix:/path". With `resolve`, a host name as well, through getaddrinfo:
 * only before the workers start, since it blocks; the first address is taken. False: `*why` says what is
 * wrong (static text). */
MUST_CHECK bool address_parse(struct slice text, bool resolve, struct address *address, const char **why);

/* The same where a host name is left to be resolved later: `*host` is then the name, and `address` has length 0. Of an
 * address `*host` is its text without brackets; of a unix socket, none. */
MUST_CHECK bool address_split(struct slice text, struct address *address, struct slice *host, uint16_t *port,
                              const char **why);
/* An IP address with a port. */
struct ip;
void address_of_ip(const struct ip *ip, uint16_t port, struct address *address);

/* "127.0.0.1:80", "[::1]:80", "unix:/path" into `text`, NUL-terminated; returns `text`. */
const char *address_format(const struct address *address, char text[static ADDRESS_TEXT_MAX]);

static inline bool address_same(const struct address *a, const struct address *b)
{
    return a->length == b->length && memcmp(&a->any, &b->any, a->length) == 0;
}

static inline bool address_is_unix(const struct address *address)
{
    return address->any.sa_family == AF_UNIX;
}

/* An address but for the path of a unix socket, in a quarter of the room: what a connection keeps of its peer. */
struct peer {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    };
};

struct peer peer_of_address(const struct address *address);
/* Writes it to `address`, and returns that. */
const struct address *address_of_peer(const struct peer *peer, struct address *address);

/* An IP address without port or family: IPv4 stands as IPv4-mapped IPv6 (RFC 4291 section 2.5.5.2), so that
 * IPv4 inside IPv6 is IPv4. */
struct ip {
    unsigned char bytes[16];
};

/* False for a unix socket. */
bool ip_of_address(const struct address *address, struct ip *ip);
bool ip_is_v4(const struct ip *ip);
/* Without brackets, port or zone. */
MUST_CHECK bool ip_parse(struct slice text, struct ip *ip);
/* "203.0.113.7" or RFC 5952 "2001:db8::1". */
void ip_format(const struct ip *ip, struct text *out);
/* With all but the first `bits` of 128 cleared. */
struct ip ip_masked(const struct ip *ip, unsigned bits);

/* "10.0.0.0/8", "2001:db8::/32" or a single address. */
struct ip_range {
    struct ip ip;  /* masked */
    unsigned bits; /* of 128 (an IPv4 prefix length plus 96) */
};

/* False: `*why` (static text): not an address, bits out of range, or bits set behind the prefix. */
MUST_CHECK bool ip_range_parse(struct slice text, struct ip_range *range, const char **why);
bool ip_range_holds(const struct ip_range *range, const struct ip *ip);
void ip_range_format(const struct ip_range *range,
                     struct text *out); /* "/n" only where it is not a single address */

#endif
