/* link.c - what the errors of connecting mean for a link. */
#include "upstream/link.h"

#include <errno.h>

#include "base/descriptors.h"
#include "net/resolver.h"

enum link_failure link_failure_of(int error, const struct address *to)
{
    struct ip ip;

    if (descriptors_lack(error))
        return LINK_FAILED_NO_DESCRIPTORS;
    if (error == ENOMEM || error == ENOBUFS)
        return LINK_FAILED_NO_MEMORY;
    /* else this host has no address of the family */
    return error == EADDRNOTAVAIL && ip_of_address(to, &ip) && ip_has_route(&ip)
               ? LINK_FAILED_NO_PORTS
               : LINK_FAILED_CONNECT;
}
