/* address.h - socket addresses, IP addresses, IP ranges and host names. */
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
    socklen_t length; /* 0: no address */
};

enum {
    IP_TEXT_MAX = 45,         /* of ip_format() */
    ADDRESS_TEXT_MAX = 128,   /* enough for address_format() including NUL */
    HOST_NAME_BYTES_MAX = 253 /* RFC 1035 section 2.3.4, in text form */
};

/* Returns whether the host name is valid: RFC 1123 section 2.1, plus the underscore that container
 * networks use. The last label must not be a number, so that a mistyped IPv4 address is not taken
 * for a name. */
bool host_name_is_valid(struct slice host);

/* Parses "127.0.0.1:80", "[::1]:80" or "unix:/path". If `resolve` is set, also resolves host names
 * with getaddrinfo() and uses the first address; this blocks, so only before the workers start. On
 * failure, returns false and sets `*why` (static text). */
MUST_CHECK bool address_parse(struct slice text, bool resolve, struct address *address,
                              const char **why);

/* Same as address_parse(), but a host name is not resolved: `*host` is set to it and
 * address->length to 0. For an IP address, `*host` is its text without brackets; for a Unix socket,
 * it is empty. */
MUST_CHECK bool address_split(struct slice text, struct address *address, struct slice *host,
                              uint16_t *port, const char **why);
/* Combines an IP address and a port. */
struct ip;
void address_of_ip(const struct ip *ip, uint16_t port, struct address *address);

/* Writes "127.0.0.1:80", "[::1]:80" or "unix:/path" to `text`, NUL-terminated. Returns `text`. */
const char *address_format(const struct address *address, char text[static ADDRESS_TEXT_MAX]);

static inline bool address_same(const struct address *a, const struct address *b)
{
    return a->length == b->length && memcmp(&a->any, &b->any, a->length) == 0;
}

static inline bool address_is_unix(const struct address *address)
{
    return address->any.sa_family == AF_UNIX;
}

/* Returns the port of an IP address; sin6_port has the same offset as sin_port. */
static inline uint16_t address_port(const struct address *address)
{
    return ntohs(address->v4.sin_port);
}

/* Returns whether only one socket can listen on both: they are the same, or one is the wildcard
 * address of the other's family and port. Port 0 never conflicts. [::] is without IPv4, as
 * listener_open() makes it. */
bool address_conflicts(const struct address *a, const struct address *b);

/* An IP address without port and family. IPv4 is stored as IPv4-mapped IPv6 (RFC 4291 section
 * 2.5.5.2), so an IPv4-mapped address equals its IPv4 address. */
struct ip {
    unsigned char bytes[16];
};

/* An address without the path of a Unix socket, in a sixth of the memory. Each connection stores
 * its peer in this form. */
struct peer {
    struct ip ip;         /* undefined without `has_ip`, as is `port` */
    uint16_t port;        /* host byte order */
    bool has_ip, is_unix; /* neither: no address */
};

struct peer peer_of_address(const struct address *address);
/* Copies the peer to `address`. Returns `address`. */
const struct address *address_of_peer(const struct peer *peer, struct address *address);

/* Returns the IPv4 address of four bytes in network order. */
struct ip ip_of_v4(const void *bytes);
/* Returns false for a Unix socket. */
bool ip_of_address(const struct address *address, struct ip *ip);
static inline bool ip_is_v4(const struct ip *ip)
{
    return memcmp(ip->bytes, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) == 0;
}
/* 127.0.0.0/8 or ::1. */
static inline bool ip_is_loopback(const struct ip *ip)
{
    return ip_is_v4(ip) ? ip->bytes[12] == 127 : memcmp(ip->bytes, &in6addr_loopback, 16) == 0;
}
/* Parses an IP address without brackets, port and zone. On failure, may change `*ip`. */
MUST_CHECK bool ip_parse(struct slice text, struct ip *ip);
/* The same for IPv4: four numbers from 0 to 255 without leading zeros (RFC 3986 section 3.2.2). */
MUST_CHECK bool ip_parse_v4(struct slice text, struct ip *ip);
/* Writes "203.0.113.7" or, as in RFC 5952, "2001:db8::1". */
void ip_format(const struct ip *ip, struct text *out);
/* Clears all but the first `bits` of 128 bits. */
struct ip ip_masked(const struct ip *ip, unsigned bits);

/* An IP range: "10.0.0.0/8", "2001:db8::/32" or a single address. */
struct ip_range {
    struct ip ip;  /* masked */
    unsigned bits; /* prefix length, of 128 (for IPv4: prefix length plus 96) */
};

/* Returns false and sets `*why` (static text) if the text is not an address, the prefix length is
 * out of range, or bits after the prefix are set. */
MUST_CHECK bool ip_range_parse(struct slice text, struct ip_range *range, const char **why);
bool ip_range_holds(const struct ip_range *range, const struct ip *ip);
/* Writes the range; omits "/n" for a single address. */
void ip_range_format(const struct ip_range *range, struct text *out);

#endif
