/* read_steps.c - the entries of `requests`. */
#include <stdlib.h>

#include "base/json_writer.h"
#include "base/memory.h"
#include "config/printer.h"
#include "http/chars.h"
#include "http/field_line.h"
#include "scenario/read_internal.h"

enum { LINES_MAX = 64 * 1024, STEPS_MAX = 100000 };

/* --- Texts ------------------------------------------------------------------------------------ */

static void keep_slice(struct loading *l, struct slice *field, struct slice text)
{
    *field = (struct slice){arena_text(l->arena, text), text.n};
}

static void read_method(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    if (!expect_text(l, option, node, "a method such as POST"))
        return;
    if (slice_is_token(node->text))
        keep_slice(l, field, node->text);
    else
        mistake(l, node, "%s is not a method", QUOTE(node->text));
}

static void read_step_path(struct loading *l, const struct option *option, const struct node *node,
                           void *field)
{
    if (!expect_text(l, option, node, "a path such as /v1/items"))
        return;
    if (node->text.p[0] != '/' && !slice_equal(node->text, SLICE("*")))
        mistake(l, node, "%s does not begin with \"/\"; the host has a key of its own, host",
                QUOTE(node->text));
    else if (slice_has_control_bytes(node->text) || memchr(node->text.p, ' ', node->text.n) ||
             memchr(node->text.p, '#', node->text.n))
        mistake(l, node,
                "contains a character that no client sends in a path; write a space as "
                "%%20, and no fragment");
    else
        keep_slice(l, field, node->text);
}

static void read_host(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    if (expect_text(l, option, node, "a host such as api.example.com"))
        keep_slice(l, field, node->text);
}

static const struct option_type type_method = {.name = "word", .read = read_method};
static const struct option_type type_path = {.name = "path", .read = read_step_path};
static const struct option_type type_host = {.name = "host", .read = read_host};

static void read_step_client(struct loading *l, const struct option *option,
                             const struct node *node, void *field)
{
    struct identity identity;

    (void)option;
    if (client_is_good(l, node, &identity))
        keep_slice(l, field, node->text);
}

static const struct option_type type_client = {.name = "client", .read = read_step_client};

/* --- Query ------------------------------------------------------------------------------------ */

/* Percent-encodes all but unreserved characters (RFC 3986 section 2.3). */
static void put_encoded(struct text *out, struct slice text)
{
    for (size_t i = 0; i < text.n; i++) {
        unsigned char c = (unsigned char)text.p[i];
        if (char_is((char)c, CHAR_LABEL) || c == '.')
            text_char(out, (char)c);
        else
            text_percent(out, c);
    }
}

static void read_step_query(struct loading *l, const struct option *option, const struct node *node,
                            void *field)
{
    char *bytes = arena_zeroed(&l->scratch, LINES_MAX, 1);
    struct text out = text_over(bytes, LINES_MAX);

    (void)option;
    if (node->kind == NODE_SCALAR)
        text_put(&out, node->text);
    else if (!expect_map(l, node, "a map of parameters and values, or a text such as a=1&b=2"))
        return;
    for (const struct node *name = node->first; name; name = name->next)
        EACH_ITEM (value, name) {
            if (name->broken || !expect_scalar(l, value, "a value"))
                continue;
            text_put(&out, out.n ? SLICE("&") : SLICE(""));
            put_encoded(&out, name->key);
            text_char(&out, '=');
            put_encoded(&out, value->text);
        }
    if (out.failed)
        mistake(l, node, "is longer than %d bytes", LINES_MAX);
    else
        keep_slice(l, field, text_slice(&out));
}

static const struct option_type type_query = {.name = "map", .read = read_step_query};

/* --- Headers ---------------------------------------------------------------------------------- */

/* Returns why a field of this name cannot be given; NULL: it can. */
static const char *field_fault(struct slice name)
{
    if (!slice_is_token(name))
        return "is not the name of a header";
    if (slice_equal_nocase(name, SLICE("Host")))
        return "has a key of its own, host";
    if (slice_equal_nocase(name, SLICE("Content-Length")) ||
        slice_equal_nocase(name, SLICE("Transfer-Encoding")))
        return "cannot be given; the length follows from json";
    return NULL;
}

static void put_field(struct loading *l, const struct node *name, const struct node *value,
                      struct scenario_step *step, struct text *out)
{
    if (!expect_scalar(l, value, "the value of a header"))
        return;
    if (slice_has_control_bytes(value->text)) {
        mistake(l, value, "contains control bytes; expected printable text");
        return;
    }
    field_line_put(out, name->key, value->text);
    step->field_count++;
    step->has_type |= slice_equal_nocase(name->key, SLICE("Content-Type"));
}

static void read_fields(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    char *bytes = arena_zeroed(&l->scratch, LINES_MAX, 1);
    struct text out = text_over(bytes, LINES_MAX);
    struct scenario_step *step = field;
    const char *fault;

    (void)option;
    if (!expect_map(l, node, "a map of headers and values"))
        return;
    for (const struct node *name = node->first; name; name = name->next) {
        if (name->broken)
            continue;
        if ((fault = field_fault(name->key)))
            mistake_of_key(l, name, "%s %s", QUOTE(name->key), fault);
        for (const struct node *value = list_first(name); value && !fault;
             value = list_next(name, value))
            put_field(l, name, value, step, &out);
    }
    if (out.failed)
        mistake(l, node, "are longer than %d bytes", LINES_MAX);
    else
        keep_slice(l, &step->field_lines, text_slice(&out));
}

static const struct option_type type_headers = {.name = "map", .read = read_fields};

/* --- JSON ------------------------------------------------------------------------------------- */

/* A text is the document itself, so that invalid ones can be tested. */
static void read_json(struct loading *l, const struct option *option, const struct node *node,
                      void *field)
{
    struct text out;
    struct json_writer json = json_writer_growing(&out);

    (void)option;
    if (node->kind == NODE_SCALAR)
        json_put_verbatim(&json, NULL, node->text);
    else
        print_json(&json, node);
    if (out.failed)
        memory_exhausted();
    keep_slice(l, field, text_slice(&out));
    free(out.p);
}

static const struct option_type type_json = {.name = "map", .read = read_json};

static void read_claims(struct loading *l, const struct option *option, const struct node *node,
                        void *field)
{
    if (l->policy->identity.claim_count == 0)
        mistake_of_key(l, node, "the policy reads no claims of tokens, in identity.from or in per");
    else if (node->kind != NODE_MAP)
        mistake(l, node, "expected a map of claims, such as { sub: alice }");
    else
        read_json(l, option, node, field);
}

static const struct option_type type_claims = {.name = "map", .read = read_claims};

/* --- Entries ---------------------------------------------------------------------------------- */

#define REQUEST      "tests[].requests[]"
#define STEP(member) MEMBER(scenario_step, member)
#define LONGEST      (INT64_C(366) * 86400 * 1000000)

static const char *const schemes[] = {"http", "https", NULL};

/* clang-format off */
static const struct option rows[] = {
    {.path = REQUEST ".wait", .type = &type_duration, STEP(wait_us), .high = LONGEST},
    {.path = REQUEST ".client", .type = &type_client, STEP(client)},
    {.path = REQUEST ".method", .type = &type_method, STEP(method), .low = 1, .high = 32},
    {.path = REQUEST ".path", .type = &type_path, STEP(path), .low = 1, .high = LINES_MAX / 2},
    {.path = REQUEST ".query", .type = &type_query, STEP(query)},
    {.path = REQUEST ".host", .type = &type_host, STEP(host), .low = 1, .high = 255},
    {.path = REQUEST ".scheme", .type = &type_enum, STEP(https), .names = schemes},
    {.path = REQUEST ".headers", .type = &type_headers},
    {.path = REQUEST ".json", .type = &type_json, STEP(content)},
    {.path = REQUEST ".claims", .type = &type_claims, STEP(claims)},
    {.path = REQUEST ".from", .type = &type_from, STEP(address)},
    {.path = REQUEST ".repeat", .type = &type_number, STEP(repeat), .low = 1, .high = REPEAT_MAX},
    {.path = REQUEST ".every", .type = &type_duration, STEP(every_us), .high = LONGEST},
    {.path = REQUEST ".duration", .type = &type_duration, STEP(duration_us), .high = LONGEST},
    {.path = REQUEST ".status", .type = &type_count, STEP(status), .low = 200, .high = STATUS_MAX},
    {.path = REQUEST ".cost", .type = &type_step_costs, STEP(costs)},
    {.path = REQUEST ".expect", .type = &type_expect, STEP(expected)},
};
/* clang-format on */

const struct option_group options_steps = {rows, COUNT_OF(rows)};

static void set_target(struct loading *l, struct scenario_step *step)
{
    size_t room = step->path.n + step->query.n + 2;
    struct text out = text_over(arena_zeroed(l->arena, room, 1), room);
    bool has_query = step->path.n && memchr(step->path.p, '?', step->path.n);

    text_put(&out, step->path.n ? step->path : SLICE("/"));
    if (step->query.n) {
        text_char(&out, has_query ? '&' : '?');
        text_put(&out, step->query);
    }
    step->target = text_slice(&out);
}

/* Returns true if the key is one that makes the entry a request. */
static bool has_request(const struct node *item)
{
    return item->count > 1 || (item->count == 1 && !node_find(item, "wait"));
}

/* Servers take JSON without this field as something else. */
static void add_content_type(struct loading *l, struct scenario_step *step)
{
    static const struct slice line = SLICE("Content-Type: application/json\r\n");
    size_t size = line.n + step->field_lines.n;
    struct text out = text_over(arena_zeroed(&l->scratch, size, 1), size);

    text_put(&out, line);
    text_put(&out, step->field_lines);
    keep_slice(l, &step->field_lines, text_slice(&out));
    step->field_count++;
}

static void complete(struct loading *l, const struct node *item, struct scenario_step *step,
                     const struct scenario *scenario)
{
    const struct node *every = node_find(item, "every");

    if (item->count == 0)
        mistake(l, item,
                "is empty; expected a request such as { path: /, expect: admitted }, or "
                "{ wait: 1s }");
    if (every && step->repeat == 1)
        mistake_of_key(l, every, "every is the time between repeats; it needs repeat: N");
    step->is_request = has_request(item);
    if (!step->method.n)
        step->method = step->content.p ? SLICE("POST") : SLICE("GET");
    if (step->content.p && !step->has_type)
        add_content_type(l, step);
    if (!step->address.n)
        step->address = scenario->address;
    set_target(l, step);
}

/* Virtual time ends before time zones are unknown. */
static bool fits_in_time(struct loading *l, const struct node *item,
                         const struct scenario_step *step, int64_t *now_us)
{
    __int128 last =
        (__int128)*now_us + step->wait_us + (__int128)step->every_us * (step->repeat - 1);
    bool fits = last + step->duration_us < TIME_END_US;

    if (fits)
        *now_us = (int64_t)last; /* the next request does not wait for the response */
    else
        mistake(l, item, "is later than 2059, the end of virtual time");
    return fits;
}

static void read_steps(struct loading *l, const struct option *option, const struct node *node,
                       void *field)
{
    struct scenario *scenario = field;
    struct scenario_step *step, **end = &scenario->steps;
    int64_t now_us = scenario->start_us;

    (void)option;
    if (!expect_list(l, node, "a list of requests"))
        return;
    if (list_count(node) == 0 || list_count(node) > STEPS_MAX)
        mistake(l, node, "expected a list of 1 to %d requests", STEPS_MAX);
    EACH_ITEM (item, node) {
        if (!expect_map(l, item, "a request such as { path: /, expect: admitted }"))
            continue;
        step = arena_zeroed(l->arena, 1, sizeof *step);
        step->position = item->position;
        step->repeat = 1;
        step->status = 200;
        options_read(l, item, REQUEST, step);
        complete(l, item, step, scenario);
        if (!fits_in_time(l, item, step, &now_us))
            return;
        *end = step;
        end = &step->next;
    }
}

const struct option_type type_steps = {.name = "list", .read = read_steps};
