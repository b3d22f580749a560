/* lint_admin.c - warnings about admin listeners. */
#include "config/lint.h"

static bool is_loopback(const struct address *address)
{
    struct ip ip;

    if (!ip_of_address(address, &ip)) /* a Unix socket */
        return true;
    return IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)ip.bytes)
               ? ip.bytes[12] == 127
               : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)ip.bytes);
}

void warn_of_admin(struct loading *l)
{
    const struct node *admin = node_find(l->root, "admin");
    const struct node *item = !admin ? NULL : admin->kind == NODE_MAP ? admin : list_first(admin);

    for (unsigned i = 0; item && i < l->policy->admin_count; i++, item = list_next(admin, item)) {
        const struct admin_listener *listener = &l->policy->admin[i];
        if (!listener->token && !listener->read_only && !is_loopback(&listener->address))
            warning(l, item,
                    "anyone who can connect to this address may read the policy and reset and "
                    "grant limits; "
                    "add token_file, or read_only: true");
    }
}
