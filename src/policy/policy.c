/* policy.c - creates, reference-counts and frees policies. */
#include "policy/policy.h"

#include <stdlib.h>

#include "base/arena.h"
#include "base/memory.h"
#include "net/tls.h"
#include "policy/jwt.h"
#include "policy/remote_keys.h"

struct policy *policy_new(const char *file)
{
    struct policy *policy = xcalloc(1, sizeof *policy);
    size_t size = strlen(file) + 1;
    char *name = NULL;

    atomic_init(&policy->references, 1);
    if ((policy->arena = calloc(1, sizeof *policy->arena)) &&
        (name = arena_zeroed_or_null(policy->arena, size, 1))) {
        policy->file = memcpy(name, file, size);
        return policy;
    }
    free(policy->arena);
    free(policy);
    memory_exhausted();
}

struct policy *policy_hold(struct policy *policy)
{
    atomic_fetch_add_explicit(&policy->references, 1, memory_order_relaxed);
    return policy;
}

void policy_drop(struct policy *policy)
{
    /* acq_rel: the thread that frees sees all earlier accesses of the others. */
    if (!policy || atomic_fetch_sub_explicit(&policy->references, 1, memory_order_acq_rel) > 1)
        return;
    for (unsigned i = 0; i < policy->listen_count; i++)
        tls_server_drop(listen_tls_server(policy->listen[i].tls));
    for (unsigned i = 0; i < policy->admin_count; i++)
        tls_server_drop(listen_tls_server(policy->admin[i].tls));
    for (unsigned i = 0; i < policy->upstream_count; i++)
        tls_client_free(policy->upstreams[i].tls.client);
    tls_client_free(policy->redis.tls.client);
    for (unsigned i = 0; i < policy->identity.jwt.set_count; i++)
        jwt_keys_drop(policy->identity.jwt.sets[i]);
    for (unsigned i = 0; i < policy->identity.jwt.remote_count; i++)
        remote_keys_drop(policy->identity.jwt.remote[i]);
    address_table_clear(&policy->addresses.table);
    arena_free(policy->arena);
    free(policy->arena);
    free(policy->driver);
    free(policy);
}

const char *listen_option(const struct listen_settings *listener)
{
    return listener->decides         ? "decisions.listen"
           : listener->serves_limits ? "rate_limit_service.listen"
                                     : "listen";
}

bool listen_settings_same(const struct listen_settings *one, const struct listen_settings *other)
{
    char text[2][ADDRESS_TEXT_MAX];
    return strcmp(address_format(&one->address, text[0]),
                  address_format(&other->address, text[1])) == 0 &&
           one->proxy_protocol == other->proxy_protocol && one->decides == other->decides &&
           one->serves_limits == other->serves_limits && !one->tls == !other->tls;
}

/* Returns the equal listener of `policy`, or NULL. Prefers `index`: several may use port 0. */
static const struct listen_settings *
same_listener(const struct policy *policy, const struct listen_settings *written, unsigned index)
{
    if (index < policy->listen_count && listen_settings_same(&policy->listen[index], written))
        return &policy->listen[index];
    for (unsigned i = 0; i < policy->listen_count; i++)
        if (listen_settings_same(&policy->listen[i], written))
            return &policy->listen[i];
    return NULL;
}

static char *copy_text(struct arena *arena, const char *text)
{
    return text ? arena_text(arena, slice_of(text)) : NULL;
}

/* Copies what belongs to the arena of another policy. The reference of the server is not counted.
 * NULL is allowed. */
static struct listen_tls *listen_tls_copy(struct arena *arena, const struct listen_tls *tls)
{
    struct listen_tls *copy = tls ? arena_zeroed(arena, 1, sizeof *copy) : NULL;

    if (!copy)
        return NULL;
    *copy = *tls;
    copy->entries = arena_zeroed(arena, tls->count, sizeof *copy->entries);
    for (unsigned i = 0; i < tls->count; i++) {
        const struct listen_tls_entry *entry = &tls->entries[i];
        copy->entries[i] = *entry;
        copy->entries[i].certificate = copy_text(arena, entry->certificate);
        copy->entries[i].key = copy_text(arena, entry->key);
        copy->entries[i].client_ca = copy_text(arena, entry->client_ca);
        copy->entries[i].client_crl = copy_text(arena, entry->client_crl);
        copy->entries[i].ciphers = copy_text(arena, entry->ciphers);
    }
    return copy;
}

static struct own_hosts own_hosts_copy(struct arena *arena, const struct own_hosts *from)
{
    struct own_hosts copy = *from;

    copy.names = arena_zeroed(arena, from->count, sizeof *copy.names);
    for (unsigned i = 0; i < from->count; i++)
        copy.names[i] = arena_text(arena, slice_of(from->names[i]));
    return copy;
}

/* The listener of decisions stays open, so a policy without the section keeps it. */
static void keep_decisions(struct policy *next, const struct policy *now)
{
    const struct identity_settings *peers = &now->decisions.peers;
    struct ip_range *trusted;

    if (next->decisions.address.length || !now->decisions.address.length)
        return;
    trusted = arena_zeroed(next->arena, peers->trusted_count, sizeof *trusted);
    for (unsigned i = 0; i < peers->trusted_count; i++)
        trusted[i] = peers->trusted[i];
    next->decisions = now->decisions;
    next->decisions.peers.trusted = trusted;
    next->decisions.hosts = own_hosts_copy(next->arena, &now->decisions.hosts);
}

void policy_keep_listeners(struct policy *next, const struct policy *now,
                           const struct listen_settings *written)
{
    struct listen_settings *kept = arena_zeroed(next->arena, now->listen_count, sizeof *kept);

    for (unsigned i = 0; i < now->listen_count; i++) {
        const struct listen_settings *same = same_listener(next, &written[i], i);
        kept[i] = now->listen[i];
        kept[i].tls = same ? same->tls : listen_tls_copy(next->arena, now->listen[i].tls);
        kept[i].http2 = same ? same->http2 : now->listen[i].http2;
    }
    keep_decisions(next, now);
    for (unsigned i = 0; i < now->listen_count; i++) { /* no memory is needed from here on */
        struct tls_server *server = tls_server_hold(listen_tls_server(kept[i].tls));
        tls_server_keep_sessions(server, listen_tls_server(now->listen[i].tls));
    }
    for (unsigned i = 0; i < next->listen_count; i++)
        tls_server_drop(listen_tls_server(next->listen[i].tls));
    next->listen = kept;
    next->listen_count = now->listen_count;
}

static bool admin_same(const struct admin_listener *next, const struct admin_listener *now,
                       const struct address *written)
{
    return address_same(&next->address, written) &&
           (!address_is_unix(written) || next->mode == now->mode);
}

/* Returns the listener of `policy` for the socket `now`, or NULL. Prefers `index`: several may use
 * port 0. */
static const struct admin_listener *same_admin(const struct policy *policy,
                                               const struct admin_listener *now,
                                               const struct address *written, unsigned index)
{
    if (index < policy->admin_count && admin_same(&policy->admin[index], now, written))
        return &policy->admin[index];
    for (unsigned i = 0; i < policy->admin_count; i++)
        if (admin_same(&policy->admin[i], now, written))
            return &policy->admin[i];
    return NULL;
}

bool policy_same_admin(const struct policy *next, const struct policy *now,
                       const struct address *written)
{
    bool same = next->admin_count == now->admin_count;
    for (unsigned i = 0; i < now->admin_count && same; i++)
        same = same_admin(next, &now->admin[i], &written[i], i) != NULL;
    return same;
}

/* Copies the settings into the arena of another policy. */
static struct admin_listener admin_copy(struct arena *arena, const struct admin_listener *from)
{
    struct admin_listener copy = *from;

    copy.token = from->token ? arena_text(arena, slice_of(from->token)) : NULL;
    copy.token_file = from->token_file ? arena_text(arena, slice_of(from->token_file)) : NULL;
    copy.hosts = own_hosts_copy(arena, &from->hosts);
    copy.tls = listen_tls_copy(arena, from->tls);
    return copy;
}

void policy_keep_admin(struct policy *next, const struct policy *now, const struct address *written)
{
    struct admin_listener *kept = arena_zeroed(next->arena, now->admin_count, sizeof *kept);

    for (unsigned i = 0; i < now->admin_count; i++) {
        const struct admin_listener *same = same_admin(next, &now->admin[i], &written[i], i);
        kept[i] = same ? *same : admin_copy(next->arena, &now->admin[i]);
        kept[i].address = now->admin[i].address;
    }
    for (unsigned i = 0; i < now->admin_count; i++) { /* no memory is needed from here on */
        struct tls_server *server = tls_server_hold(listen_tls_server(kept[i].tls));
        tls_server_keep_sessions(server, listen_tls_server(now->admin[i].tls));
    }
    for (unsigned i = 0; i < next->admin_count; i++)
        tls_server_drop(listen_tls_server(next->admin[i].tls));
    next->admin = kept;
    next->admin_count = now->admin_count;
}

void policy_wipe_old_keys(const struct policy *policy)
{
    for (unsigned i = 0; i < policy->listen_count; i++)
        tls_server_wipe_old_keys(listen_tls_server(policy->listen[i].tls));
    for (unsigned i = 0; i < policy->admin_count; i++)
        tls_server_wipe_old_keys(listen_tls_server(policy->admin[i].tls));
}

unsigned policy_name_count(const struct policy *policy)
{
    unsigned count = 0;

    for (unsigned u = 0; u < policy->upstream_count; u++)
        for (unsigned s = 0; s < policy->upstreams[u].server_count; s++)
            count += server_is_name(&policy->upstreams[u].servers[s]);
    return count;
}
