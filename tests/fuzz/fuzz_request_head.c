/* Properties: how the input is split into pieces does not change the parsed request head, and the
 * head that weir forwards is parsed as the same request. */
#include "fuzz.h"
#include "http/path.h"
#include "http/readings.h"
#include "http/rewrite.h"

enum { HEAD_MAX = 64 * 1024 };

static const struct forward_facts facts = {
    .peer_ip = {"192.0.2.7", 9},
    .scheme = {"http", 4},
    .host = {"upstream.test", 13},
    .client = {"id:client-2", 11},
    .request_id = {"made-by-weir", 12},
};

struct verdict {
    enum scan scan;
    bool ok;
    size_t size;
    struct refusal refusal;
    struct request_head head;
    struct framing framing;
};

static struct verdict whole, pieces, forwarded;

/* Parses `bytes` as they arrive in pieces of `step` bytes. */
static void read_head(struct verdict *v, struct slice bytes, size_t step)
{
    size_t seen = 0, there = 0;
    v->refusal = (struct refusal){0, NULL};
    v->ok = false;
    do {
        there = step < bytes.n - there ? there + step : bytes.n;
        v->scan = request_head_read((struct slice){bytes.p, there}, &seen, &v->size, &v->head,
                                    &v->refusal);
    } while (v->scan == SCAN_PARTIAL && there < bytes.n);
    v->ok = v->scan == SCAN_WHOLE && request_framing(&v->head, &v->framing, &v->refusal);
}

/* Parsing at once gives the same result as looking for the end of the head first. */
static void assert_scan_agrees(const struct verdict *v, struct slice bytes)
{
    static struct request_head head;
    struct refusal refusal;
    size_t seen = 0, size = 0;
    enum scan scan = request_scan(bytes, &seen, &size, &refusal);
    bool good =
        scan == SCAN_WHOLE && request_head_parse((struct slice){bytes.p, size}, &head, &refusal);

    PROPERTY((scan == SCAN_PARTIAL) == (v->scan == SCAN_PARTIAL) &&
             good == (v->scan == SCAN_WHOLE));
    PROPERTY(scan != SCAN_WHOLE || size == v->size);
}

static bool is_clean(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (((unsigned char)s.p[i] < ' ' && s.p[i] != '\t') || s.p[i] == 0x7f)
            return false;
    return true;
}

/* A path that is reported as plain has one reading, its normal form. */
static void assert_path(const struct request_head *head)
{
    static char bytes[HEAD_MAX];
    struct text normal = text_over(bytes, sizeof bytes);
    bool ok = path_normalise(head->path, &normal);
    static struct readings readings;
    struct slice reading;

    PROPERTY(head->path.n && (head->path.p[0] == '/' || slice_equal(head->path, SLICE("*"))));
    PROPERTY(head->query.n == 0 || head->query.p[0] == '?');
    if (!head->path_is_plain)
        return;
    PROPERTY(ok && slice_equal(text_slice(&normal), head->path) &&
             !path_has_dot_segments(head->path));
    readings_begin(&readings, head->path);
    PROPERTY(readings_next(&readings, &reading) && !readings_next(&readings, &reading) &&
             !readings.too_many);
}

static void assert_clean(const struct request_head *head)
{
    assert_path(head);
    PROPERTY(is_clean(head->method_text) && is_clean(head->target) && is_clean(head->host));
    PROPERTY(head->fields.count <= HEAD_FIELDS_MAX);
    for (unsigned i = 0; i < head->fields.count; i++) {
        const struct field *field = &head->fields.at[i];
        PROPERTY(field->name.n && is_clean(field->name) && is_clean(field->value));
        PROPERTY(slice_equal(slice_trim_ows(field->value), field->value));
        PROPERTY(fields_have(&head->fields, field->id));
    }
}

static unsigned count_of(const struct fields *fields, struct slice name)
{
    unsigned n = 0;
    for (const struct field *field = NULL;
         (field = fields_next_named(fields, name, field)) != NULL;)
        n++;
    return n;
}

/* The length of weir's own element at the end of the value; 0 if it is missing. */
static size_t weir_element_length(struct slice value, struct slice host, const char *quote)
{
    static char bytes[2 * HEAD_MAX];
    struct text ours = text_over(bytes, sizeof bytes);

    text_literal(&ours, "for=192.0.2.7");
    if (host.n)
        text_printf(&ours, ";host=%s%.*s%s", quote, SLICE_ARG(host), quote);
    text_literal(&ours, ";proto=http");
    bool there = value.n >= ours.n && memcmp(value.p + value.n - ours.n, ours.p, ours.n) == 0;
    return there ? ours.n : 0;
}

/* For any Forwarded field in the request, weir's element is the last one, in a single line. */
static void assert_forwarded_ends_with_weir_element(const struct verdict *v)
{
    static char bytes[2 * HEAD_MAX];
    struct text out = text_over(bytes, sizeof bytes);
    struct forward_facts trusted = facts;

    trusted.forwarded = trusted.peer_trusted = true;
    request_head_write(&out, &v->head, &v->framing, &trusted);
    PROPERTY(!out.failed);
    read_head(&forwarded, text_slice(&out), out.n);
    PROPERTY(forwarded.ok && fields_have(&forwarded.head.fields, FIELD_FORWARDED));
    PROPERTY(!fields_repeat(&forwarded.head.fields, FIELD_FORWARDED));
    struct slice value = fields_find(&forwarded.head.fields, FIELD_FORWARDED)->value;
    size_t size = weir_element_length(value, v->head.host, "\""), quotes = 0;
    if (size == 0)
        size = weir_element_length(value, v->head.host, "");
    PROPERTY(size);
    const char *ours = value.p + value.n - size;
    for (const char *p = value.p; p < ours; p++)
        quotes += *p == '"';
    PROPERTY(quotes % 2 == 0 && (ours == value.p || ours[-1] == ' '));
}

static void assert_parses_back(const struct verdict *v)
{
    static char bytes[2 * HEAD_MAX];
    struct text out = text_over(bytes, sizeof bytes);
    const struct request_head *head = &v->head, *again = &forwarded.head;

    request_head_write(&out, head, &v->framing, &facts);
    PROPERTY(!out.failed);
    read_head(&forwarded, text_slice(&out), out.n);
    PROPERTY(forwarded.ok && forwarded.size == out.n);
    PROPERTY(slice_equal(again->method_text, head->method_text));
    PROPERTY(slice_equal(again->path, head->path) && slice_equal(again->query, head->query));
    PROPERTY(slice_equal(again->host, head->host.n ? head->host : facts.host));
    PROPERTY(forwarded.framing.kind == v->framing.kind &&
             forwarded.framing.length == v->framing.length);
    PROPERTY(again->expects_continue ==
             (head->expects_continue && v->framing.kind != FRAMING_NONE));
    PROPERTY(again->keep_alive && again->minor == 1);
    PROPERTY(count_of(&again->fields, SLICE("X-Weir-Client")) == 1);
    PROPERTY(count_of(&again->fields, SLICE("X_Weir_Client")) == 0);
    PROPERTY(count_of(&again->fields, SLICE("X-Request-Id")) == 1);
    PROPERTY(count_of(&again->fields, SLICE("X-Forwarded-For")) == 1);
    PROPERTY(!fields_have(&again->fields, FIELD_CONNECTION) &&
             !fields_have(&again->fields, FIELD_UPGRADE));
    PROPERTY(!fields_have(&again->fields, FIELD_FORWARDED));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > HEAD_MAX)
        return 0;
    char *bytes = fuzz_copy(data, size);
    struct slice rest = {bytes, size};
    size_t skipped = request_skip_empty_line(rest);
    rest.p += skipped, rest.n -= skipped;

    read_head(&whole, rest, rest.n);
    assert_scan_agrees(&whole, rest);
    read_head(&pieces, rest, fuzz_choice(data, size) % 64 + 1);
    /* With pieces, a first line may be refused before the rest has arrived; the reason is the
     * same. */
    PROPERTY((whole.scan == SCAN_PARTIAL) == (pieces.scan == SCAN_PARTIAL) &&
             whole.ok == pieces.ok && whole.refusal.why == pieces.refusal.why);
    PROPERTY(whole.scan == SCAN_PARTIAL || whole.ok ||
             (whole.refusal.status >= 400 && whole.refusal.why));
    if (whole.ok) {
        assert_clean(&whole.head);
        if (whole.head.fields.count <= HEAD_FIELDS_MAX - 10) { /* weir adds some fields */
            assert_parses_back(&whole);
            assert_forwarded_ends_with_weir_element(&whole);
        }
    }
    free(bytes);
    return 0;
}
