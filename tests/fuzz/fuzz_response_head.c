/* Properties: how the input is split into pieces does not change the parsed response head, and the
 * head that weir sends on is parsed as the same response. */
#include "fuzz.h"
#include "http/rewrite.h"

enum { HEAD_MAX = 64 * 1024 };

struct verdict {
    enum scan scan;
    bool ok;
    size_t size;
    struct refusal refusal;
    struct response_head head;
    struct framing framing;
};

static struct verdict whole, pieces, forwarded;

static void read_head(struct verdict *v, struct slice bytes, size_t step, enum method method)
{
    size_t seen = 0, there = 0;
    v->refusal = (struct refusal){0, NULL};
    v->ok = false;
    do {
        there = step < bytes.n - there ? there + step : bytes.n;
        v->scan = response_head_read((struct slice){bytes.p, there}, &seen, &v->size, &v->head,
                                     &v->refusal);
    } while (v->scan == SCAN_PARTIAL && there < bytes.n);
    v->ok = v->scan == SCAN_WHOLE && response_framing(&v->head, method, &v->framing, &v->refusal);
    PROPERTY(v->ok || v->scan == SCAN_PARTIAL || v->refusal.status == 502);
}

/* Parsing at once gives the same result as looking for the end of the head first, if the first
 * bytes are those of HTTP. */
static void assert_scan_agrees(const struct verdict *v, struct slice bytes)
{
    static struct response_head head;
    struct refusal refusal;
    size_t seen = 0, size = 0, first = bytes.n < 5 ? bytes.n : 5;

    if (memcmp(bytes.p, "HTTP/", first) != 0) {
        PROPERTY(v->scan == SCAN_REFUSED && v->size == 0);
        return;
    }
    enum scan scan = head_scan(bytes, &seen, &size, &refusal);
    bool good =
        scan == SCAN_WHOLE && response_head_parse((struct slice){bytes.p, size}, &head, &refusal);

    PROPERTY((scan == SCAN_PARTIAL) == (v->scan == SCAN_PARTIAL) &&
             good == (v->scan == SCAN_WHOLE));
    PROPERTY(scan != SCAN_WHOLE || size == v->size);
}

static void assert_parses_back(const struct verdict *v, enum method method, bool limited)
{
    static char bytes[2 * HEAD_MAX];
    struct text out = text_over(bytes, sizeof bytes);
    bool interim = v->head.status < 200;
    char line_bytes[256];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    struct response response = response_interim(&v->head);
    struct response_connection connection = {
        .client_minor = 1,
        .chunked = v->framing.kind == FRAMING_CHUNKED || v->framing.kind == FRAMING_UNTIL_CLOSE,
    };
    if (interim)
        interim_head_write(&out, &response);
    else {
        response_forward(&response, &lines, &v->head, &v->framing,
                         SLICE("Sat, 21 Nov 2026 12:00:00 GMT"));
        response.dropped |= limited ? FIELD_BIT(FIELD_RATELIMIT) : 0;
        response.lines = text_slice(&lines);
        response_head_write(&out, &response, &connection);
    }
    PROPERTY(!out.failed);
    read_head(&forwarded, text_slice(&out), out.n, method);
    PROPERTY(forwarded.ok && forwarded.size == out.n);
    PROPERTY(forwarded.head.status == v->head.status &&
             slice_equal(forwarded.head.reason, v->head.reason));
    PROPERTY(forwarded.framing.kind == (connection.chunked ? FRAMING_CHUNKED : v->framing.kind));
    PROPERTY(forwarded.framing.length == v->framing.length);
    PROPERTY(!fields_have(&forwarded.head.fields, FIELD_CONNECTION));
    PROPERTY(interim || !limited || !fields_have(&forwarded.head.fields, FIELD_RATELIMIT));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > HEAD_MAX)
        return 0;
    char *bytes = fuzz_copy(data, size);
    struct slice rest = {bytes, size};
    uint32_t choice = fuzz_choice(data, size);
    enum method method = choice & 0x80 ? METHOD_HEAD : METHOD_GET;

    read_head(&whole, rest, rest.n, method);
    assert_scan_agrees(&whole, rest);
    read_head(&pieces, rest, choice % 64 + 1, method);
    PROPERTY(whole.scan == pieces.scan && whole.ok == pieces.ok &&
             whole.refusal.why == pieces.refusal.why);
    if (whole.ok && whole.head.fields.count <= RESPONSE_FIELDS_MAX - 10)
        assert_parses_back(&whole, method, choice & 0x40);
    free(bytes);
    return 0;
}
