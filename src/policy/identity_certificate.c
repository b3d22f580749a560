/* identity_certificate.c - ids from the client's verified certificate. Its names were read once,
 * when the connection was opened (net/tls_certificate.h). */
#include "net/tls_certificate.h"
#include "policy/identity_internal.h"

bool identity_is_certificate_name(struct slice name)
{
    return slice_equal(name, SLICE("cn")) || slice_equal(name, SLICE("san")) ||
           slice_equal(name, SLICE("fingerprint"));
}

enum found identity_find_certificate(const struct identity_search *search,
                                     const struct identity_from *from)
{
    const struct tls_certificate *certificate = search->input->certificate;

    if (!certificate)
        return FOUND_NONE;
    return identity_write_id(&search->input->policy->identity, from->source,
                             from->name[0] == 'c'   ? certificate->cn
                             : from->name[0] == 's' ? certificate->san
                                                    : certificate->fingerprint,
                             search->identity, search->why);
}
