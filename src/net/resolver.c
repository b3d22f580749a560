/* resolver.c - name resolution with evdns, and workarounds for libevent 2.1.12:
 *
 *   - A request never ends if no name server can be reached. Every lookup has a deadline here.
 *   - The functions that return a TTL ignore /etc/hosts. It is read here.
 *   - A failed server is probed with google.com until it answers. Here, a server counts as failed
 *     only after 255 failures in a row.
 *   - SERVFAIL looks like a timeout. Both are RESOLVED_FAILED.
 *   - There is no TCP. A reply that does not fit a datagram (about 28 addresses) fails. */
#include "net/resolver.h"

#include <event2/dns.h>
#include <event2/event_struct.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/queue.h>
#include <unistd.h>

#include "base/descriptors.h"
#include "base/event_timer.h"
#include "base/log.h"

enum { HOSTS_TTL_US = 10 * 1000000 }; /* interval after which callers read /etc/hosts again */

static const char resolv_conf[] = "/etc/resolv.conf", hosts_file[] = "/etc/hosts";

/* A request in evdns. Its callback always runs, perhaps after the lookup has ended. */
struct dns_query {
    struct dns_lookup *lookup; /* NULL: the lookup has ended */
    struct evdns_request *request;
};

struct dns_lookup {
    struct resolver *resolver;
    struct dns_query *query[FAMILY_COUNT]; /* NULL: answered or not sent */
    struct event deadline;
    struct resolver_answer answer;
    void (*answered)(void *context, const struct resolver_answer *answer);
    void *context;
    TAILQ_ENTRY(dns_lookup) link;
};

struct resolver {
    struct event_base *base;
    struct evdns_base *dns;
    struct resolver_settings settings;
    TAILQ_HEAD(lookups, dns_lookup) lookups;
};

/* ---- /etc/hosts ------------------------------------------------------------------------------ */

static void add_ip(struct resolver_answer *answer, const struct ip *ip)
{
    for (unsigned i = 0; i < answer->count; i++)
        if (memcmp(&answer->ips[i], ip, sizeof *ip) == 0)
            return;
    if (answer->count < RESOLVED_MAX)
        answer->ips[answer->count++] = *ip;
    answer->family[ip_is_v4(ip) ? FAMILY_V4 : FAMILY_V6] = RESOLVED;
}

/* Parses "ADDRESS NAME NAME... # comment". */
static void look_into_line(char *line, struct slice name, bool ipv6, struct resolver_answer *answer)
{
    char *rest = line, *word;
    struct ip ip;

    line[strcspn(line, "#\n")] = 0;
    word = strtok_r(line, " \t\r", &rest);
    if (!word || !ip_parse(slice_of(word), &ip) || (!ipv6 && !ip_is_v4(&ip)))
        return;
    while ((word = strtok_r(NULL, " \t\r", &rest)))
        if (slice_equal_nocase(slice_of(word), name))
            add_ip(answer, &ip);
}

static bool is_in_hosts(const char *name, bool ipv6, struct resolver_answer *answer)
{
    static const struct ip loopback = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};
    FILE *hosts = fopen(hosts_file, "re");
    char *line = NULL;
    size_t size = 0;

    if (!hosts && descriptors_lack(errno) && descriptors_give(DESCRIPTOR_FOR_MAIN, errno))
        hosts = fopen(hosts_file, "re");
    while (hosts && getline(&line, &size, hosts) > 0)
        look_into_line(line, slice_of(name), ipv6, answer);
    free(line);
    if (hosts)
        fclose(hosts);
    if (answer->count == 0 && slice_equal_nocase(slice_of(name), SLICE("localhost")))
        add_ip(answer, &loopback); /* RFC 6761 section 6.3 */
    answer->ttl_us = HOSTS_TTL_US;
    return answer->count > 0;
}

/* ---- addresses without a route --------------------------------------------------------------- */

/* Connecting a datagram socket sends nothing. It fails if there is no route, as for an IPv6 address
 * on a host without IPv6. Without a descriptor, there may be one. */
bool ip_has_route(const struct ip *ip)
{
    enum { DISCARD = 9 };
    struct address address;
    address_of_ip(ip, DISCARD, &address);
    int fd = socket(address.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd < 0 ? descriptors_lack(errno) : connect(fd, &address.any, address.length) == 0;

    if (fd >= 0)
        close(fd);
    return good;
}

static void leave_out_unreachable(struct resolver_answer *answer)
{
    struct ip reached[RESOLVED_MAX];
    unsigned count = 0;

    for (unsigned i = 0; i < answer->count; i++)
        if (ip_has_route(&answer->ips[i]))
            reached[count++] = answer->ips[i];
    if (count) {
        memcpy(answer->ips, reached, count * sizeof *reached);
        answer->count = count;
    }
}

/* ---- name servers ---------------------------------------------------------------------------- */

/* Messages of evdns are logged at debug level only; callers report failed lookups. */
static void on_log(int is_warning, const char *message)
{
    (void)is_warning;
    log_debug("DNS: %s", message);
}

/* Name servers need a descriptor each. If /etc/resolv.conf cannot be opened, evdns uses
 * 127.0.0.1. */
static bool has_descriptor(void)
{
    int fd = open(resolv_conf, O_RDONLY | O_CLOEXEC);

    if (fd < 0 && descriptors_lack(errno) && descriptors_give(DESCRIPTOR_FOR_MAIN, errno))
        fd = open(resolv_conf, O_RDONLY | O_CLOEXEC);
    bool lacks = fd < 0 && descriptors_lack(errno);
    if (fd >= 0)
        close(fd);
    return !lacks;
}

/* Without a descriptor, there are no name servers, and the next lookup applies the settings. */
static void apply_settings(struct resolver *resolver)
{
    const struct resolver_settings *settings = &resolver->settings;
    int from_file = DNS_OPTION_SEARCH | DNS_OPTION_MISC;
    char a_try[32];

    if (!has_descriptor())
        return;
    for (unsigned i = 0; i < settings->nameserver_count; i++)
        (void)evdns_base_nameserver_sockaddr_add(resolver->dns, &settings->nameservers[i].any,
                                                 settings->nameservers[i].length, 0);
    if (settings->nameserver_count == 0)
        from_file |= DNS_OPTION_NAMESERVERS;
    (void)evdns_base_resolv_conf_parse(resolver->dns, from_file, resolv_conf);
    /* Three attempts; the last one ends with the lookup. */
    snprintf(a_try, sizeof a_try, "%.3f", (double)settings->timeout_us / 1e6 / 3);
    (void)evdns_base_set_option(resolver->dns, "timeout", a_try);
    (void)evdns_base_set_option(resolver->dns, "attempts", "3");
    (void)evdns_base_set_option(resolver->dns, "max-timeouts", "255");
}

/* ---- lookups --------------------------------------------------------------------------------- */

void lookup_cancel(struct dns_lookup *lookup)
{
    struct resolver *resolver = lookup->resolver;

    for (unsigned i = 0; i < FAMILY_COUNT; i++)
        if (lookup->query[i]) {
            lookup->query[i]->lookup = NULL;
            evdns_cancel_request(resolver->dns, lookup->query[i]->request);
        }
    event_del(&lookup->deadline);
    TAILQ_REMOVE(&resolver->lookups, lookup, link);
    free(lookup);
}

static void answer_lookup(struct dns_lookup *lookup)
{
    struct resolver_answer answer = lookup->answer;
    void (*answered)(void *, const struct resolver_answer *) = lookup->answered;
    void *context = lookup->context;

    lookup_cancel(lookup);
    leave_out_unreachable(&answer);
    answered(context, &answer);
}

/* Runs if the name was found in /etc/hosts, if no query could be sent, or on timeout. */
static void lookup_timed_out(evutil_socket_t fd, short what, void *arg)
{
    struct dns_lookup *lookup = arg;
    (void)fd, (void)what;

    for (unsigned i = 0; i < FAMILY_COUNT; i++)
        if (lookup->query[i])
            lookup->answer.why = "no response from the name servers";
    answer_lookup(lookup);
}

static void take_reply(struct resolver_answer *answer, unsigned family, int result, int count,
                       int ttl, const unsigned char *addresses)
{
    /* in answer->ttl_us, 0 means unknown */
    uint64_t ttl_us = ttl > 0 ? (uint64_t)ttl * 1000000 : 1;

    if (result == DNS_ERR_NONE && count > 0) {
        for (int i = 0; i < count; i++) {
            struct ip ip;
            if (family == FAMILY_V4)
                ip = ip_of_v4(addresses + (size_t)i * 4);
            else
                memcpy(ip.bytes, addresses + (size_t)i * sizeof ip.bytes, sizeof ip.bytes);
            add_ip(answer, &ip);
        }
        answer->family[family] = RESOLVED;
        if (answer->ttl_us == 0 || ttl_us < answer->ttl_us)
            answer->ttl_us = ttl_us;
    } else if (result == DNS_ERR_NONE || result == DNS_ERR_NOTEXIST || result == DNS_ERR_NODATA) {
        answer->family[family] = RESOLVED_NOTHING;
        if (!answer->why)
            answer->why = "the name does not exist";
    } else
        answer->why = result == DNS_ERR_TRUNCATED ? "the response does not fit a datagram"
                                                  : "no response from the name servers";
}

static void on_reply(int result, char type, int count, int ttl, void *addresses, void *arg)
{
    struct dns_query *query = arg;
    struct dns_lookup *lookup = query->lookup;
    (void)type;

    if (lookup) {
        unsigned family = lookup->query[FAMILY_V4] == query ? FAMILY_V4 : FAMILY_V6;
        lookup->query[family] = NULL;
        take_reply(&lookup->answer, family, result, count, ttl, addresses);
        if (!lookup->query[FAMILY_V4] && !lookup->query[FAMILY_V6])
            answer_lookup(lookup);
    }
    free(query);
}

static void send_query(struct dns_lookup *lookup, unsigned family, const char *name)
{
    struct dns_query *query = calloc(1, sizeof *query);

    if (!query)
        return;
    query->lookup = lookup;
    query->request = family == FAMILY_V4
                         ? evdns_base_resolve_ipv4(lookup->resolver->dns, name, 0, on_reply, query)
                         : evdns_base_resolve_ipv6(lookup->resolver->dns, name, 0, on_reply, query);
    if (query->request)
        lookup->query[family] = query;
    else
        free(query);
}

struct dns_lookup *resolver_look_up(struct resolver *resolver, const char *name,
                                    void (*answered)(void *context,
                                                     const struct resolver_answer *answer),
                                    void *context)
{
    struct dns_lookup *lookup = calloc(1, sizeof *lookup);
    bool known, ipv6 = resolver->settings.ipv6;

    if (!lookup)
        return NULL;
    if (evdns_base_count_nameservers(resolver->dns) == 0)
        apply_settings(resolver);
    *lookup = (struct dns_lookup){.resolver = resolver, .answered = answered, .context = context};
    lookup->answer.family[FAMILY_V4] = lookup->answer.family[FAMILY_V6] = RESOLVED_NOTHING;
    TAILQ_INSERT_TAIL(&resolver->lookups, lookup, link);
    evtimer_assign(&lookup->deadline, resolver->base, lookup_timed_out, lookup);
    event_timer_arm(&lookup->deadline, resolver->settings.timeout_us);
    if (!(known = is_in_hosts(name, ipv6, &lookup->answer))) {
        lookup->answer = (struct resolver_answer){
            .family = {RESOLVED_FAILED, ipv6 ? RESOLVED_FAILED : RESOLVED_NOTHING}};
        send_query(lookup, FAMILY_V4, name);
        if (ipv6)
            send_query(lookup, FAMILY_V6, name);
    }
    if (!lookup->query[FAMILY_V4] && !lookup->query[FAMILY_V6]) {
        lookup->answer.why = known ? NULL : "the name servers cannot be queried";
        event_active(&lookup->deadline, EV_TIMEOUT, 0);
    }
    return lookup;
}

/* ---- the resolver ---------------------------------------------------------------------------- */

struct resolver *resolver_new(struct event_base *base, const struct resolver_settings *settings)
{
    struct resolver *resolver = calloc(1, sizeof *resolver);

    if (!resolver || !(resolver->dns = evdns_base_new(base, 0))) {
        free(resolver);
        return NULL;
    }
    evdns_set_log_fn(on_log);
    resolver->base = base;
    resolver->settings = *settings;
    TAILQ_INIT(&resolver->lookups);
    apply_settings(resolver);
    return resolver;
}

void resolver_free(struct resolver *resolver)
{
    if (!resolver)
        return;
    for (struct dns_lookup *lookup = TAILQ_FIRST(&resolver->lookups), *next; lookup;
         lookup = next) {
        next = TAILQ_NEXT(lookup, link);
        lookup_cancel(lookup);
    }
    evdns_base_free(resolver->dns, 0);
    free(resolver);
}
