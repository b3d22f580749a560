#include "replay/log_line.h"

#include "base/json_read.h"
#include "base/text.h"
#include "base/values.h"
#include "http/chars.h"
#include "net/address.h"
#include "policy/identity_source.h"

static const int64_t time_max_us = INT64_C(100000000000) * 1000000;

static unsigned status_in_text(struct slice text)
{
    uint64_t status = 0;
    return text.n == 3 && slice_to_u64(text, 599, &status) ? (unsigned)status : 0;
}

/* --- Common and combined ---------------------------------------------------------------------- */

/* Decodes \xHH (nginx, Apache, weir), \" and \\ (Apache) in place. */
static struct slice unescape(char *bytes, size_t size)
{
    size_t out = 0;

    for (size_t i = 0; i < size; i++) {
        if (bytes[i] != '\\' || i + 1 == size) {
            bytes[out++] = bytes[i];
        } else if (bytes[i + 1] == 'x' && i + 3 < size && char_is(bytes[i + 2], CHAR_HEX) &&
                   char_is(bytes[i + 3], CHAR_HEX)) {
            bytes[out++] = (char)(char_hex_value(bytes[i + 2]) << 4 | char_hex_value(bytes[i + 3]));
            i += 3;
        } else {
            bytes[out++] = bytes[++i];
        }
    }
    return (struct slice){bytes, out};
}

/* Finds "[TIME]". User names may hold spaces and brackets, so every bracket is tried. */
static char *find_time(char *bytes, const char *end, struct log_line *line, char **after)
{
    for (char *open = bytes; (open = memchr(open, '[', (size_t)(end - open))); open++) {
        char *close = memchr(open, ']', (size_t)(end - open));
        if (!close)
            return NULL;
        if (log_time_parse((struct slice){open + 1, (size_t)(close - open) - 1}, &line->time_us)) {
            *after = close + 1;
            return open;
        }
    }
    return NULL;
}

/* Returns the quote that ends a request: the first that is not escaped and is followed by a
 * status. Some servers do not escape quotes. */
static char *closing_quote(char *p, const char *end)
{
    for (; p < end; p++)
        if (*p == '\\')
            p++;
        else if (*p == '"' && (p + 1 == end || (p[1] == ' ' && p + 2 < end &&
                                                (p[2] == '-' || (p[2] >= '0' && p[2] <= '9')))))
            return p;
    return NULL;
}

/* "GET /x HTTP/1.1". A target may hold spaces: nginx logs a malformed request as received. */
static bool parse_request(struct slice request, struct log_line *line)
{
    const char *end = request.p + request.n, *space = memchr(request.p, ' ', request.n);

    if (!space || space == request.p)
        return false;
    line->method = (struct slice){request.p, (size_t)(space - request.p)};
    line->target = (struct slice){space + 1, (size_t)(end - space) - 1};
    const char *last = memrchr(line->target.p, ' ', line->target.n);
    if (last &&
        slice_starts_with((struct slice){last + 1, (size_t)(end - last) - 1}, SLICE("HTTP/")))
        line->target.n = (size_t)(last - line->target.p);
    return line->target.n > 0;
}

static bool is_identity(struct slice user)
{
    return identity_source_of(user) != NULL;
}

/* Removes "HOST:PORT " before the address. */
static char *take_host(char *bytes, const char *end, struct log_line *line)
{
    char *space = memchr(bytes, ' ', (size_t)(end - bytes)), *next = NULL;
    struct ip ip;

    if (space)
        next = memchr(space + 1, ' ', (size_t)(end - space) - 1);
    if (!next || ip_parse((struct slice){bytes, (size_t)(space - bytes)}, &ip) ||
        !ip_parse((struct slice){space + 1, (size_t)(next - space) - 1}, &ip))
        return bytes;
    line->host = (struct slice){bytes, (size_t)(space - bytes)};
    return space + 1;
}

/* "ADDRESS IDENT USER ", before the time. */
static bool parse_client(char *bytes, const char *end, struct log_line *line)
{
    bytes = take_host(bytes, end, line);
    char *space = memchr(bytes, ' ', (size_t)(end - bytes));
    char *user = space ? memchr(space + 1, ' ', (size_t)(end - space) - 1) : NULL;

    if (!user || user + 2 > end)
        return false;
    line->address = (struct slice){bytes, (size_t)(space - bytes)};
    struct slice name = unescape(user + 1, (size_t)(end - user) - 2);
    if (is_identity(name))
        line->client = name;
    else if (!slice_equal(name, SLICE("-")))
        line->user = name;
    return true;
}

static enum log_line_kind parse_combined(char *bytes, size_t size, struct log_line *line)
{
    char *end = bytes + size, *after, *time = find_time(bytes, end, line, &after), *quote;

    if (!time || end - after < 3 || after[0] != ' ' || after[1] != '"' ||
        !(quote = closing_quote(after + 2, end)) || !parse_client(bytes, time, line))
        return LOG_LINE_ODD;
    if (end - quote >= 5)
        line->status = status_in_text((struct slice){quote + 2, 3});
    struct slice request = unescape(after + 2, (size_t)(quote - after) - 2);
    return parse_request(request, line) ? LOG_LINE_REQUEST : LOG_LINE_ODD;
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* Copies a member's text, or a number, to the end of `room`. A decoded text is no longer than the
 * line that it is from. A number is written with at most microseconds. */
static struct slice take_text(struct text *room, const json_t *object, const char *name)
{
    const json_t *member = json_object_get(object, name);
    size_t start = room->n;

    if (json_is_integer(member))
        text_i64(room, json_integer_value(member));
    else if (json_is_real(member))
        text_printf(room, "%.6f", json_real_value(member));
    else
        text_put(room, json_text(member));
    return (struct slice){room->p + start, room->n - start};
}

static uint64_t count_in(const json_t *object, const char *name)
{
    json_int_t count = json_integer_value(json_object_get(object, name));

    return count > 0 ? (uint64_t)count : 0;
}

/* Takes the first member of these names that is there. */
static struct slice take_first(struct text *room, const json_t *object, const char *const *names)
{
    for (; *names; names++)
        if (json_object_get(object, *names))
            return take_text(room, object, *names);
    return SLICE_NONE;
}

/* Names in weir's lines, then those of nginx's variables, and what they are often called. */
static const char *const method_names[] = {"method", "request_method", NULL};
static const char *const target_names[] = {"target", "request_uri", "uri", NULL};
static const char *const host_names[] = {"host", "http_host", "server_name", NULL};
static const char *const address_names[] = {"client_ip", "peer", "remote_addr", NULL};
static const char *const time_names[] = {"time",       "time_iso8601", "@timestamp", "timestamp",
                                         "time_local", "msec",         NULL};

/* `bytes` held the line; the slices of the result point into it. */
static enum log_line_kind take_members(const json_t *object, char *bytes, size_t size,
                                       struct log_line *line)
{
    struct text room = text_over(bytes, size);

    line->method = take_first(&room, object, method_names);
    line->target = take_first(&room, object, target_names);
    struct slice request = take_text(&room, object, "request");
    if (!line->method.n && request.n && !parse_request(request, line))
        return LOG_LINE_ODD;
    if (line->method.n == 0 && line->target.n == 0)
        return LOG_LINE_OTHER;
    line->host = take_first(&room, object, host_names);
    line->client = take_text(&room, object, "client");
    line->status = status_in_text(take_text(&room, object, "status"));
    line->left_out = count_in(object, "left_out");
    line->address = take_first(&room, object, address_names);
    if (!is_identity(line->client)) { /* another program's: its address, or a name */
        line->address = line->address.n ? line->address : line->client;
        line->client = SLICE_NONE;
    }
    struct slice time = take_first(&room, object, time_names);
    bool timed = log_time_parse(time, &line->time_us) || /* or nginx's $msec, "1790000000.123" */
                 decimal_read(time, 6, time_max_us, &line->time_us) == VALUE_GOOD;
    return line->method.n && line->target.n && timed ? LOG_LINE_REQUEST : LOG_LINE_ODD;
}

static enum log_line_kind parse_json(char *bytes, size_t size, struct log_line *line)
{
    json_t *object = json_loadb(bytes, size, 0, NULL);
    enum log_line_kind kind = object ? take_members(object, bytes, size, line) : LOG_LINE_ODD;

    json_decref(object);
    return kind;
}

/* "2026-11-24T14:03:35.803Z warn  ...", a line of weir's log beside its access lines. */
static bool is_event(const char *bytes, size_t size)
{
    static const char *const levels[] = {"debug ", "info ", "warn ", "error "};
    const char *space = memchr(bytes, ' ', size);
    struct slice rest = {space ? space + 1 : NULL, space ? size - (size_t)(space - bytes) - 1 : 0};
    int64_t time_us;

    if (!space || !log_time_parse((struct slice){bytes, (size_t)(space - bytes)}, &time_us))
        return false;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (slice_starts_with(rest, slice_of(levels[i])))
            return true;
    return false;
}

enum log_line_kind log_line_parse(char *bytes, size_t size, struct log_line *line)
{
    *line = (struct log_line){0};
    if (size && bytes[size - 1] == '\r')
        size--;
    if (size == 0 || bytes[0] == '#' || is_event(bytes, size))
        return LOG_LINE_OTHER;
    return bytes[0] == '{' ? parse_json(bytes, size, line) : parse_combined(bytes, size, line);
}
