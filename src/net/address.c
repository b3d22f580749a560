#include "net/address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stddef.h>

static const unsigned char v4_mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool parse_unix(struct slice path, struct address *address, const char **why)
{
    if (path.n == 0 || path.n >= sizeof address->local.sun_path || memchr(path.p, 0, path.n)) {
        *why = "the path of a unix socket is 1 to 107 bytes long";
        return false;
    }
    if (path.p[0] != '/') {
        *why = "the path of a unix socket begins with /";
        return false;
    }
    memset(&address->local, 0, sizeof address->local);
    address->local.sun_family = AF_UNIX;
    memcpy(address->local.sun_path, path.p, path.n);
    address->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + path.n + 1);
    return true;
}

void address_of_ip(const struct ip *ip, uint16_t port, struct address *address)
{
    if (ip_is_v4(ip)) {
        address->v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port)};
        memcpy(&address->v4.sin_addr, ip->bytes + 12, 4);
        address->length = sizeof address->v4;
    } else {
        address->v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
        memcpy(&address->v6.sin6_addr, ip->bytes, 16);
        address->length = sizeof address->v6;
    }
}

/* Used only at start: getaddrinfo() blocks. */
static bool resolve_name(struct slice host, uint16_t port, struct address *address,
                         const char **why)
{
    char name[HOST_NAME_BYTES_MAX + 1];
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *found;

    memcpy(name, host.p, host.n);
    name[host.n] = 0;
    int failure = getaddrinfo(name, NULL, &hints, &found);
    if (failure) {
        *why = gai_strerror(failure);
        return false;
    }
    memcpy(&address->any, found->ai_addr, found->ai_addrlen);
    address->length = found->ai_addrlen;
    if (address->any.sa_family == AF_INET)
        address->v4.sin_port = htons(port);
    else
        address->v6.sin6_port = htons(port);
    freeaddrinfo(found);
    return true;
}

/* `text` has no comma and does not begin with a colon. */
static const char *what_is_wrong_with_port(struct slice text)
{
    const char *colon = text.n ? memrchr(text.p, ':', text.n) : NULL;
    struct slice host = {text.p, colon ? (size_t)(colon - text.p) : 0},
                 port = {text.p + host.n + 1, colon ? text.n - host.n - 1 : 0};
    bool bracketed = text.n && text.p[0] == '[';
    uint64_t number;

    if (text.n == 0 || text.p[0] == '/')
        return "expected host:port, [ipv6]:port or unix:/path";
    if (!bracketed && colon && memchr(host.p, ':', host.n))
        return "an IPv6 address takes brackets, as in [::1]:8080";
    if (!colon || (bracketed && text.p[text.n - 1] == ']'))
        return "no port; expected host:port, [ipv6]:port or unix:/path";
    if (slice_to_u64(port, UINT64_MAX, &number) && number > 65535)
        return "the port is out of range; expected 1 to 65535";
    return "expected host:port, [ipv6]:port or unix:/path";
}

/* Returns an error message for common mistakes in an address. */
static const char *what_is_expected(struct slice text)
{
    size_t digits = 0;

    while (digits < text.n && text.p[digits] >= '0' && text.p[digits] <= '9')
        digits++;
    if (text.n && memmem(text.p, text.n, "://", 3))
        return "a URL; expected host:port, without a scheme and a path";
    if (text.n && digits == text.n)
        return "a port without a host; expected host:port, such as 127.0.0.1:8080, or 0.0.0.0:8080 "
               "for every IPv4 "
               "address";
    if (text.n && ((text.p[0] == ':' && !memchr(text.p + 1, ':', text.n - 1)) ||
                   slice_starts_with(text, SLICE("*:"))))
        return "no host; expected one before the port, such as 127.0.0.1, or 0.0.0.0 for every "
               "IPv4 address";
    if (text.n && memchr(text.p, ',', text.n))
        return "expected one address; several are a list, as [ A, B ]";
    return what_is_wrong_with_port(text);
}

/* Splits "host:port" or "[v6]:port". `host` excludes the brackets. */
static bool split_port(struct slice text, struct slice *host, uint16_t *port, bool *bracketed,
                       const char **why)
{
    const char *colon = text.n ? memrchr(text.p, ':', text.n) : NULL;
    uint64_t number;

    *why = what_is_expected(text);
    if (!colon || !slice_to_u64((struct slice){colon + 1, text.n - (size_t)(colon + 1 - text.p)},
                                65535, &number))
        return false;
    *host = (struct slice){text.p, (size_t)(colon - text.p)};
    if (slice_equal(*host, SLICE("*")))
        return false;
    *bracketed = host->n >= 2 && host->p[0] == '[' && host->p[host->n - 1] == ']';
    if (*bracketed)
        *host = (struct slice){host->p + 1, host->n - 2};
    if (host->n == 0 || (!*bracketed && memchr(host->p, ':', host->n)))
        return false;
    *port = (uint16_t)number;
    return true;
}

bool host_name_is_valid(struct slice host)
{
    size_t label = 0;
    bool number = true; /* whether the last label so far is a number */

    for (size_t i = 0; i < host.n; i++) {
        char c = host.p[i];
        bool letter = ascii_is_alnum(c) || c == '_';
        if (c == '.' ? label == 0 : (!letter && (c != '-' || label == 0)) || label == 63)
            return false;
        if (c != '.')
            number = (label == 0 || number) && c >= '0' && c <= '9';
        label = c == '.' ? 0 : label + 1;
    }
    return host.n > 0 && host.n <= HOST_NAME_BYTES_MAX && !number;
}

bool address_split(struct slice text, struct address *address, struct slice *host, uint16_t *port,
                   const char **why)
{
    bool bracketed;
    struct ip ip;

    *host = SLICE_NONE;
    *port = 0;
    if (slice_starts_with(text, SLICE("unix:")))
        return parse_unix((struct slice){text.p + 5, text.n - 5}, address, why);
    if (!split_port(text, host, port, &bracketed, why))
        return false;
    if (ip_parse(*host, &ip)) {
        /* An IPv4-mapped literal in brackets is converted to IPv4. */
        address_of_ip(&ip, *port, address);
        return bracketed == (memchr(host->p, ':', host->n) != NULL);
    }
    address->length = 0;
    *why = bracketed                       ? "not an IPv6 address"
           : host->n > HOST_NAME_BYTES_MAX ? "the host name is too long"
                                           : "not a host name";
    return !bracketed && host_name_is_valid(*host);
}

bool address_parse(struct slice text, bool resolve, struct address *address, const char **why)
{
    struct slice host;
    uint16_t port;

    if (!address_split(text, address, &host, &port, why))
        return false;
    if (address->length)
        return true;
    *why = "expected an IP address, not a name";
    return resolve && resolve_name(host, port, address, why);
}

const char *address_format(const struct address *address, char text[static ADDRESS_TEXT_MAX])
{
    struct text t = text_over(text, ADDRESS_TEXT_MAX);
    struct ip ip;

    if (address->length == 0)
        text_literal(&t, "(none)");
    else if (address_is_unix(address)) {
        text_literal(&t, "unix:");
        text_put(&t, slice_of(address->length > offsetof(struct sockaddr_un, sun_path)
                                  ? address->local.sun_path
                                  : ""));
    } else {
        bool v6 = address->any.sa_family == AF_INET6;
        (void)ip_of_address(address, &ip);
        bool brackets = v6 && !ip_is_v4(&ip);
        text_put(&t, brackets ? SLICE("[") : SLICE_NONE);
        ip_format(&ip, &t);
        text_put(&t, brackets ? SLICE("]:") : SLICE(":"));
        text_u64(&t, address_port(address));
    }
    text_char(&t, 0);
    return text;
}

static bool is_wildcard(const struct address *address)
{
    return address->any.sa_family == AF_INET
               ? address->v4.sin_addr.s_addr == INADDR_ANY
               : memcmp(&address->v6.sin6_addr, &in6addr_any, sizeof in6addr_any) == 0;
}

bool address_conflicts(const struct address *a, const struct address *b)
{
    if (address_is_unix(a) || address_is_unix(b) || a->any.sa_family != b->any.sa_family)
        return address_same(a, b);
    return address_port(a) != 0 && address_port(a) == address_port(b) &&
           (address_same(a, b) || is_wildcard(a) || is_wildcard(b));
}

struct peer peer_of_address(const struct address *address)
{
    struct peer peer = {.has_ip = false};

    peer.has_ip = ip_of_address(address, &peer.ip);
    if (peer.has_ip)
        peer.port = address_port(address);
    else
        peer.is_unix = address->length > 0;
    return peer;
}

const struct address *address_of_peer(const struct peer *peer, struct address *address)
{
    if (peer->has_ip) {
        address_of_ip(&peer->ip, peer->port, address);
        return address;
    }
    address->any.sa_family = peer->is_unix ? AF_UNIX : AF_UNSPEC;
    address->length = peer->is_unix ? offsetof(struct sockaddr_un, sun_path) : 0;
    return address;
}

struct ip ip_of_v4(const void *bytes)
{
    struct ip ip;

    memcpy(ip.bytes, v4_mapped, 12);
    memcpy(ip.bytes + 12, bytes, 4);
    return ip;
}

bool ip_of_address(const struct address *address, struct ip *ip)
{
    if (address->any.sa_family == AF_INET) {
        *ip = ip_of_v4(&address->v4.sin_addr);
        return true;
    }
    if (address->any.sa_family == AF_INET6) {
        memcpy(ip->bytes, &address->v6.sin6_addr, 16);
        return true;
    }
    return false;
}

/* inet_pton(3), which takes a copy with a NUL, would cost 3 % of a request of a proxy. */
bool ip_parse_v4(struct slice text, struct ip *ip)
{
    const char *p = text.p, *end = text.p + text.n, *first;

    memcpy(ip->bytes, v4_mapped, 12);
    for (unsigned i = 0; i < 4; i++) {
        unsigned value = 0, digit;
        if (i > 0 && (p == end || *p++ != '.'))
            return false;
        for (first = p; p < end && (digit = (unsigned)(*p - '0')) <= 9; p++)
            value = value * 10 + digit;
        if (p == first || p - first > 3 || value > 255 || (*first == '0' && p - first > 1))
            return false;
        ip->bytes[12 + i] = (unsigned char)value;
    }
    return p == end;
}

bool ip_parse(struct slice text, struct ip *ip)
{
    char copy[INET6_ADDRSTRLEN + 1];

    if (text.n == 0)
        return false;
    if (!memchr(text.p, ':', text.n))
        return ip_parse_v4(text, ip);
    if (text.n >= sizeof copy || memchr(text.p, 0, text.n))
        return false;
    memcpy(copy, text.p, text.n);
    copy[text.n] = 0;
    return inet_pton(AF_INET6, copy, ip->bytes) == 1;
}

void ip_format(const struct ip *ip, struct text *out)
{
    char copy[INET6_ADDRSTRLEN];

    if (!ip_is_v4(ip)) {
        inet_ntop(AF_INET6, ip->bytes, copy, sizeof copy);
        text_put(out, slice_of(copy));
        return;
    }
    /* faster than inet_ntop, which uses printf; called for every request */
    text_dotted(out, ip->bytes + 12);
}

struct ip ip_masked(const struct ip *ip, unsigned bits)
{
    struct ip masked = *ip;
    if (bits >= 128)
        return masked;
    for (unsigned i = 0; i < 16; i++, bits -= bits < 8 ? bits : 8)
        if (bits < 8)
            masked.bytes[i] &= (unsigned char)(0xff00 >> bits);
    return masked;
}

bool ip_range_parse(struct slice text, struct ip_range *range, const char **why)
{
    const char *slash = text.n ? memchr(text.p, '/', text.n) : NULL;
    struct slice address = {text.p, slash ? (size_t)(slash - text.p) : text.n};
    uint64_t bits;

    *why = "expected an address or a range like 10.0.0.0/8 or 2001:db8::/32";
    if (!ip_parse(address, &range->ip))
        return false;
    unsigned family_bits = memchr(address.p, ':', address.n) ? 128 : 32;
    bits = family_bits;
    if (slash &&
        !slice_to_u64((struct slice){slash + 1, text.n - address.n - 1}, family_bits, &bits))
        return false;
    range->bits = (unsigned)bits + 128 - family_bits;
    struct ip masked = ip_masked(&range->ip, range->bits);
    if (memcmp(masked.bytes, range->ip.bytes, 16) != 0) {
        *why = "the address has bits set after its prefix length";
        return false;
    }
    return true;
}

bool ip_range_holds(const struct ip_range *range, const struct ip *ip)
{
    unsigned whole = range->bits / 8, rest = range->bits % 8;
    if (range->bits < 96 && ip_is_v4(ip))
        return false; /* ::/0 does not match IPv4-mapped addresses: those are IPv4 */
    return memcmp(range->ip.bytes, ip->bytes, whole) == 0 &&
           (rest == 0 ||
            ((range->ip.bytes[whole] ^ ip->bytes[whole]) & (0xff00 >> rest) & 0xff) == 0);
}

void ip_range_format(const struct ip_range *range, struct text *out)
{
    bool v4 = ip_is_v4(&range->ip) && range->bits >= 96;
    ip_format(&range->ip, out);
    if (range->bits < 128) {
        text_char(out, '/');
        text_u64(out, range->bits - (v4 ? 96 : 0));
    }
}
