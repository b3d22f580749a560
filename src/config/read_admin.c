/* read_admin.c - option admin: the listeners for operators and monitoring. */
#include "config/sections.h"
#include "net/address.h"

enum { TOKEN_FILE_MAX = 4096, MODE_MAX = 0777 };

/* --- hosts --- */

/* Accepts a Host name as browsers send it: letters, digits, "-", "." and "_", without a port. */
static bool host_name_is_good(struct loading *l, const struct node *node)
{
    bool good = node->text.n >= 1 && node->text.n <= HOST_NAME_BYTES_MAX &&
                node->text.p[0] != '.' && slice_is_alnum_or(node->text, "-._");

    if (!good)
        mistake(l, node,
                "%s is not a host name; expected a name without a port, such as weir.internal",
                QUOTE(node->text));
    return good;
}

static void read_own_hosts(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    struct own_hosts *hosts = field;
    unsigned count = list_count(node);

    if (!expect_items(l, option, node, "host names"))
        return;
    hosts->names = arena_zeroed(l->arena, count, sizeof *hosts->names);
    EACH_ITEM (item, node) {
        if (!expect_scalar(l, item, "a host name") || !host_name_is_good(l, item))
            continue;
        char *name = keep_text(l, item);
        size_t n = item->text.n - (item->text.p[item->text.n - 1] == '.');
        for (size_t i = 0; i < n; i++)
            name[i] = ascii_lower(name[i]);
        name[n] = 0;
        hosts->names[hosts->count++] = name;
    }
}

static void print_host(FILE *out, const void *hosts, unsigned index)
{
    print_scalar(out, slice_of(((const struct own_hosts *)hosts)->names[index]));
}

PRINT_ITEMS(print_own_hosts, own_hosts, count, print_host)

const struct option_type type_own_hosts = {"list of host names", read_own_hosts, print_own_hosts,
                                           true, 0};

/* --- token_file --- */

/* RFC 6750 section 2.1: b64token. */
static bool is_token(struct slice text)
{
    while (text.n && text.p[text.n - 1] == '=')
        text.n--;
    return text.n > 0 && slice_is_alnum_or(text, "-._~+/");
}

static void read_token_file(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    struct admin_listener *listener = field;
    struct slice token;
    const char *path = file_path(l, option, node);

    if (!path || !named_file_read(l, node, &l->scratch, path, TOKEN_FILE_MAX, &token))
        return;
    token = without_newline(slice_after_bom(token));
    if (token.n < TOKEN_MIN || token.n > TOKEN_MAX || !is_token(token)) {
        mistake(l, node,
                "%s does not contain a token: expected one line of %d to %d letters, digits or "
                "-._~+/; create one with "
                "\"openssl rand -hex 32\"",
                path, TOKEN_MIN, TOKEN_MAX);
        return;
    }
    warn_of_file_mode(l, node, path);
    listener->token = arena_text(l->arena, token);
    listener->token_file = keep_text(l, node);
}

const struct option_type type_token_file = {"path", read_token_file, NULL, true, 0};

/* --- mode --- */

static void read_admin_mode(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    unsigned mode = 0;
    (void)option;

    if (!expect_scalar(l, node, "permissions in octal, such as 0660"))
        return;
    bool good = node->text.n >= 3 && node->text.n <= 4;
    for (size_t i = 0; i < node->text.n && good; i++) {
        good = node->text.p[i] >= '0' && node->text.p[i] <= '7';
        mode = mode * 8 + (unsigned)(node->text.p[i] - '0');
    }
    if (good && mode <= MODE_MAX)
        *(unsigned *)field = mode;
    else
        mistake(l, node, "%s is not an octal permission; expected 0600 to 0777, such as 0660",
                QUOTE(node->text));
}

const struct option_type type_admin_mode = {"octal number", read_admin_mode, NULL, false,
                                            sizeof(unsigned)};

/* --- admin --- */

/* Reads "host:port", or a map with `address`. */
static void read_admin_listener(struct loading *l, const struct option *option,
                                const struct node *item, struct admin_listener *listener)
{
    listener->mode = 0600;
    if (item->broken)
        return;
    if (item->kind == NODE_MAP)
        options_read(l, item, "admin[]", listener);
    else if (expect_scalar(l, item, "an address, or a map with one"))
        type_address.read(l, option, item, &listener->address);
    if (item->kind == NODE_MAP && node_find(item, "mode") && listener->address.length &&
        !address_is_unix(&listener->address))
        mistake(l, node_find(item, "mode"), "applies to unix sockets only; remove it");
}

static void read_admin(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    struct policy *policy = field;
    unsigned count = list_count(node);

    if (count > (unsigned)option->high) {
        mistake(l, node, "has %u addresses; expected at most %d", count, (int)option->high);
        return;
    }
    policy->admin = arena_zeroed(l->arena, count, sizeof *policy->admin);
    EACH_ITEM (item, node) {
        read_admin_listener(l, option, item, &policy->admin[policy->admin_count]);
        refuse_same_address(l, item, &policy->admin->address,
                            &policy->admin[policy->admin_count].address, sizeof *policy->admin);
        policy->admin_count++;
    }
}

void admin_finish(struct loading *l)
{
    const struct policy *policy = l->policy;
    const struct node *node = node_find(l->root, "admin");
    const struct node *item = list_first(node);

    for (unsigned i = 0; i < policy->admin_count && item; i++, item = list_next(node, item))
        for (unsigned j = 0; j < policy->listen_count; j++)
            (void)refuse_conflict(l, item, &policy->admin[i].address, &policy->listen[j].address,
                                  listen_option(&policy->listen[j]));
}

/* Prints a map only if there is more than an address. */
static void print_listener(FILE *out, const void *listeners, unsigned index)
{
    const struct admin_listener *listener = (const struct admin_listener *)listeners + index;
    bool has_mode = address_is_unix(&listener->address) && listener->mode != 0600;

    if (!listener->read_only && !listener->token_file && !listener->hosts.count && !has_mode &&
        !listener->tls) {
        print_address(out, &listener->address);
        return;
    }
    fputs("{ address: ", out);
    print_address(out, &listener->address);
    if (listener->read_only)
        fputs(", read_only: true", out);
    if (listener->token_file) {
        fputs(", token_file: ", out);
        print_scalar(out, slice_of(listener->token_file));
    }
    if (listener->hosts.count) {
        fputs(", hosts: ", out);
        print_list(out, listener->hosts.count, print_host, &listener->hosts);
    }
    listen_tls_print_inline(out, listener->tls);
    if (has_mode)
        fprintf(out, ", mode: %04o", listener->mode);
    fputs(" }", out);
}

static void print_admin(const struct printer *printer, const void *field)
{
    const struct policy *policy = field;

    if (!policy->admin_count) {
        fputs(" null\n", printer->out);
        return;
    }
    print_items(printer, policy->admin_count, print_listener, policy->admin);
}

const struct option_type type_admin = {"list of addresses", read_admin, print_admin, true, 0};
