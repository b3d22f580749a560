#include "http/rewrite.h"

#include "http/field_line.h"
#include "http/forwarded.h"

static void crlf(struct text *out)
{
    text_literal(out, "\r\n");
}

/* Returns the line as received if it equals that of field_line_put(), else an empty slice. */
static struct slice line_as_it_came(const struct field *field)
{
    const char *colon = field->name.p + field->name.n;
    if (field->value.p != colon + 2 || colon[1] != ' ' || field->value.p[field->value.n] != '\r')
        return SLICE_NONE;
    return (struct slice){field->name.p, field->name.n + 2 + field->value.n + 2};
}

/* Writes all end-to-end fields except those whose id is in `dropped`, in order (RFC 9110 section
 * 5.3). Adjacent lines that need no change are copied together. */
static void fields_write(struct text *out, const struct fields *fields, uint64_t dropped)
{
    struct slice run = SLICE_NONE;
    for (const struct field *field = fields->at; field < fields->at + fields->count; field++) {
        if (field->hop_by_hop || dropped >> field->id & 1)
            continue;
        struct slice line = line_as_it_came(field);
        if (line.n && run.n && line.p == run.p + run.n) {
            run.n += line.n;
            continue;
        }
        text_put(out, run);
        run = line;
        if (line.n == 0)
            field_line_put(out, field->name, field->value);
    }
    text_put(out, run);
}

/* The hop-by-hop fields of a protocol switch: RFC 9110 section 7.8. */
static void upgrade_write(struct text *out, struct slice protocol)
{
    text_literal(out, "Connection: upgrade\r\n");
    WRITE_FIELD(out, "Upgrade", protocol);
}

/* Writes one field with all received addresses, then the peer's address. Of an untrusted peer
 * without an address (a unix socket) no field is written: its last element would be taken for
 * weir's. */
static void forwarded_for_write(struct text *out, const struct fields *fields,
                                const struct forward_facts *facts)
{
    struct slice peer_ip = facts->peer_ip;
    bool some = false;

    if (peer_ip.n == 0 && !facts->peer_trusted)
        return;
    if (!fields_have(fields, FIELD_X_FORWARDED_FOR)) {
        if (peer_ip.n)
            WRITE_FIELD(out, "X-Forwarded-For", peer_ip);
        return;
    }
    for (const struct field *field = fields->at; field <= fields->at + fields->count; field++) {
        bool last = field == fields->at + fields->count;
        struct slice part = last                                 ? peer_ip
                            : field->id == FIELD_X_FORWARDED_FOR ? field->value
                                                                 : SLICE_NONE;
        if (part.n == 0)
            continue;
        text_put(out, some ? SLICE(", ") : SLICE("X-Forwarded-For: "));
        text_put(out, part);
        some = true;
    }
    if (some)
        crlf(out);
}

/* Returns the value of a forwarding field: from a trusted peer if it sent exactly one, else
 * `known`. */
static struct slice forwarded_value(const struct request_head *head, enum field_id id,
                                    const struct forward_facts *facts, struct slice known)
{
    const struct field *field = facts->peer_trusted ? fields_find(&head->fields, id) : NULL;
    return field && field->value.n && !fields_repeat(&head->fields, id) ? field->value : known;
}

static void forwarding_write(struct text *out, const struct request_head *head,
                             const struct forward_facts *facts)
{
    struct slice host = forwarded_value(head, FIELD_X_FORWARDED_HOST, facts, head->host);
    forwarded_for_write(out, &head->fields, facts);
    WRITE_FIELD(out, "X-Forwarded-Proto",
                forwarded_value(head, FIELD_X_FORWARDED_PROTO, facts, facts->scheme));
    if (host.n)
        WRITE_FIELD(out, "X-Forwarded-Host", host);
    if (facts->forwarded) {
        struct forwarded_element element = {facts->peer_ip, head->host, facts->scheme};
        forwarded_write(out, facts->peer_trusted ? &head->fields : NULL, &element);
    }
    via_write(out, facts->version, head->minor);
    if (facts->request_id.n)
        WRITE_FIELD(out, "X-Request-Id", facts->request_id);
    if (facts->client.n)
        WRITE_FIELD(out, "X-Weir-Client", facts->client);
    if (facts->certificate_subject.n)
        field_line_put(out, facts->certificate_name, facts->certificate_subject);
}

/* Writes the framing as parsed, not as received. "Content-Length: 0" is sent only if the client
 * sent it (RFC 9110 section 8.6). */
static void framing_write(struct text *out, const struct request_head *head,
                          const struct framing *framing)
{
    if (framing->kind == FRAMING_CHUNKED) {
        text_literal(out, "Transfer-Encoding: chunked\r\n");
    } else if (framing->kind == FRAMING_LENGTH ||
               fields_have(&head->fields, FIELD_CONTENT_LENGTH)) {
        text_literal(out, "Content-Length: ");
        text_u64(out, framing->length);
        crlf(out);
    }
    /* RFC 9110 section 10.1.1: no 100-continue in a request without content. */
    if (head->expects_continue && framing->kind != FRAMING_NONE)
        text_literal(out, "Expect: 100-continue\r\n");
}

/* RFC 9110 section 7.6.2: decrement by 1. */
static void max_forwards_write(struct text *out, int32_t max_forwards)
{
    text_literal(out, "Max-Forwards: ");
    text_i64(out, max_forwards > 0 ? max_forwards - 1 : 0);
    crlf(out);
}

void request_head_write(struct text *out, const struct request_head *head,
                        const struct framing *framing, const struct forward_facts *facts)
{
    uint64_t own = FIELD_BIT(FIELD_HOST) | FIELD_BIT(FIELD_CONTENT_LENGTH) |
                   FIELD_BIT(FIELD_EXPECT) | FIELD_BIT(FIELD_X_FORWARDED_FOR) |
                   FIELD_BIT(FIELD_X_FORWARDED_PROTO) | FIELD_BIT(FIELD_X_FORWARDED_HOST) |
                   FIELD_BIT(FIELD_X_REQUEST_ID) | FIELD_BIT(FIELD_X_WEIR_CLIENT) |
                   FIELD_BIT(FIELD_NEVER_FORWARDED);
    if (!facts->peer_trusted)
        own |= FIELD_BIT(FIELD_PROXY_CLAIM);
    /* The last element received from an untrusted peer would be taken for weir's. */
    if (!facts->peer_trusted || facts->forwarded)
        own |= FIELD_BIT(FIELD_FORWARDED);
    if (head->max_forwards >= 0)
        own |= FIELD_BIT(FIELD_MAX_FORWARDS);
    if (facts->identity_coding)
        own |= FIELD_BIT(FIELD_ACCEPT_ENCODING);

    text_put(out, head->method_text);
    text_char(out, ' ');
    text_put(out, facts->path.n ? facts->path : head->path);
    text_put(out, head->query);
    text_literal(out, " HTTP/1.1\r\n");
    WRITE_FIELD(out, "Host", head->host.n ? head->host : facts->host);
    fields_write(out, &head->fields, own);
    framing_write(out, head, framing);
    if (head->max_forwards >= 0)
        max_forwards_write(out, head->max_forwards);
    if (facts->identity_coding)
        text_literal(out, "Accept-Encoding: identity\r\n");
    if (facts->upgrade.n)
        upgrade_write(out, facts->upgrade);
    if (facts->trailers) /* Connection: RFC 9110 section 10.1.4 */
        text_literal(out, "Connection: TE\r\nTE: trailers\r\n");
    forwarding_write(out, head, facts);
    crlf(out);
}

static void status_line_write(struct text *out, const struct response *response)
{
    /* the space is required even without a reason: RFC 9112 section 4 */
    char start[] = "HTTP/1.1 200 ";
    start[9] = (char)('0' + response->status / 100);
    start[10] = (char)('0' + response->status / 10 % 10);
    start[11] = (char)('0' + response->status % 10);
    field_line_write(out, start, sizeof start - 1, response->reason);
}

/* Writes the protocols that a 426 requires (RFC 9110 section 15.5.22) and the Connection field that
 * goes with them. HTTP/1.0 clients cannot upgrade (section 7.8). */
static void required_protocols_write(struct text *out, const struct fields *fields,
                                     uint8_t client_minor)
{
    bool any = false;

    if (!fields || client_minor == 0 || !fields_have(fields, FIELD_UPGRADE))
        return;
    for (unsigned i = 0; i < fields->count; i++) {
        const struct field *field = &fields->at[i];
        if (field->id == FIELD_UPGRADE && field->value.n) {
            WRITE_FIELD(out, "Upgrade", field->value);
            any = true;
        }
    }
    if (any)
        text_literal(out, "Connection: upgrade\r\n");
}

static void response_connection_write(struct text *out, const struct response *response,
                                      const struct response_connection *connection)
{
    if (response->status == 426)
        required_protocols_write(out, response->fields, connection->client_minor);
    if (response->upgrade.n)
        upgrade_write(out, response->upgrade);
    else if (connection->close)
        text_literal(out, "Connection: close\r\n");
    else if (connection->keep_alive.n)
        text_put(out, connection->keep_alive);
    else if (connection->client_minor == 0)
        text_literal(out, "Connection: keep-alive\r\n");
    if (connection->chunked)
        text_literal(out, "Transfer-Encoding: chunked\r\n");
}

void response_head_write(struct text *out, const struct response *response,
                         const struct response_connection *connection)
{
    uint64_t dropped =
        response->dropped | (connection->chunked ? FIELD_BIT(FIELD_CONTENT_LENGTH) : 0);

    status_line_write(out, response);
    if (response->fields)
        fields_write(out, response->fields, dropped);
    response_connection_write(out, response, connection);
    text_put(out, response->lines);
    crlf(out);
}

void interim_head_write(struct text *out, const struct response *response)
{
    status_line_write(out, response);
    fields_write(out, response->fields, response->dropped);
    crlf(out);
}
