/* check_http_corpus.c - the corpus of tests/http. Each NAME.req (a request) or NAME.res (a
 * response to a GET) is parsed whole, split in two at every byte, and byte by byte. Each time, the
 * result must equal NAME.out, and the forwarded message must parse to the same result.
 *
 *   check_http_corpus FILE...   prints the result in the .out format */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/chunked.h"
#include "http/path.h"
#include "http/rewrite.h"
#include "run_suite.h"

enum { MESSAGE_MAX = 64 * 1024, REPORT_MAX = 192 * 1024 };

/* Reads like the proxy: bytes arrive in pieces, the head is scanned as it grows, then the body is
 * decoded in pieces. */
struct reader {
    bool response;
    char bytes[MESSAGE_MAX];
    size_t filled, start, seen, head_size;
    bool done; /* refused or complete */
    struct request_head request;
    struct response_head answer;
    struct framing framing;
    struct refusal refusal;
    struct chunked chunked;
    uint64_t left;
    char content[MESSAGE_MAX];
    size_t content_size;
};

static struct reader reader, again;
static char report_bytes[REPORT_MAX], expected[REPORT_MAX];

static void reader_begin(struct reader *r, bool response)
{
    r->response = response;
    r->filled = r->start = r->seen = r->head_size = r->content_size = 0;
    r->done = false;
    r->refusal = (struct refusal){0, NULL};
}

static enum scan head_read(struct reader *r, struct slice bytes)
{
    enum scan scan =
        r->response ? response_head_read(bytes, &r->seen, &r->head_size, &r->answer, &r->refusal)
                    : request_head_read(bytes, &r->seen, &r->head_size, &r->request, &r->refusal);
    if (scan != SCAN_WHOLE)
        return scan;
    bool framed = r->response ? response_framing(&r->answer, METHOD_GET, &r->framing, &r->refusal)
                              : request_framing(&r->request, &r->framing, &r->refusal);
    return framed ? SCAN_WHOLE : SCAN_REFUSED;
}

/* Returns how many of the `n` bytes at `p` belong to the message. */
static size_t content_read(struct reader *r, const char *p, size_t n)
{
    static char piece[MESSAGE_MAX];
    size_t taken = n, content = n;
    if (r->framing.kind == FRAMING_CHUNKED) {
        const char *why = "";
        memcpy(piece, p, n);
        enum chunked_result result = chunked_decode(&r->chunked, piece, &taken, &content, &why);
        p = piece;
        r->done = result != CHUNKED_MORE;
        if (result == CHUNKED_BAD)
            r->refusal = (struct refusal){r->response ? 502 : 400, why};
    } else if (r->framing.kind != FRAMING_UNTIL_CLOSE) {
        taken = content = r->left < n ? (size_t)r->left : n;
        r->left -= taken;
        r->done = r->left == 0;
    }
    memcpy(r->content + r->content_size, p, content);
    r->content_size += content;
    return taken;
}

static void head_step(struct reader *r)
{
    if (!r->response && r->seen == 0)
        r->start +=
            request_skip_empty_line((struct slice){r->bytes + r->start, r->filled - r->start});
    struct slice bytes = {r->bytes + r->start, r->filled - r->start};
    enum scan scan = head_read(r, bytes);
    if (scan != SCAN_WHOLE) {
        r->done = scan == SCAN_REFUSED;
        return;
    }
    chunked_begin(&r->chunked);
    r->left = r->framing.length;
    r->start += r->head_size;
    r->done = r->framing.kind == FRAMING_NONE;
}

static void feed(struct reader *r, const char *p, size_t n)
{
    memcpy(r->bytes + r->filled, p, n);
    r->filled += n;
    if (!r->done && r->head_size == 0)
        head_step(r);
    if (!r->done && r->head_size != 0)
        r->start += content_read(r, r->bytes + r->start, r->filled - r->start);
}

static const struct forward_facts facts = {
    .peer_ip = {"192.0.2.7", 9},
    .scheme = {"http", 4},
    .host = {"upstream.test", 13},
    .client = {"id:client-2", 11},
    .request_id = {"made-by-weir", 12},
};

static void forward_response(struct text *out, const struct reader *r)
{
    char line_bytes[1024];
    struct text lines = text_over(line_bytes, sizeof line_bytes);
    struct response response;
    struct response_connection connection = {
        .client_minor = 1,
        .chunked = r->framing.kind == FRAMING_CHUNKED || r->framing.kind == FRAMING_UNTIL_CLOSE,
    };
    response_forward(&response, &lines, &r->answer, &r->framing,
                     SLICE("Sat, 21 Nov 2026 12:00:00 GMT"));
    response.dropped |=
        FIELD_BIT(FIELD_RATELIMIT) | FIELD_BIT(FIELD_X_RATELIMIT) | FIELD_BIT(FIELD_X_RATE_LIMIT);
    text_literal(&lines, "X-RateLimit-Limit: 9\r\n");
    response_add_request_id(&lines, &r->answer, SLICE("made-by-weir"));
    response.lines = text_slice(&lines);
    response_head_write(out, &response, &connection);
}

static void forward(struct text *out, const struct reader *r)
{
    struct response interim = response_interim(&r->answer);

    if (!r->response)
        request_head_write(out, &r->request, &r->framing, &facts);
    else if (r->answer.status < 200)
        interim_head_write(out, &interim);
    else
        forward_response(out, r);
}

static void framing_report(struct text *out, const struct reader *r)
{
    static const char *const kinds[] = {"none", "length", "chunked", "until close"};
    text_printf(out, "framing: %s", kinds[r->framing.kind]);
    if (r->framing.kind == FRAMING_LENGTH)
        text_printf(out, " %llu", (unsigned long long)r->framing.length);
    text_printf(out, "%s\n",
                r->response                   ? ""
                : r->request.expects_continue ? ", expects 100-continue"
                                              : "");
}

static void request_report(struct text *out, const struct request_head *head)
{
    static const char *const forms[] = {"origin", "absolute", "authority", "asterisk"};
    static char normal[MESSAGE_MAX];
    struct text path = text_over(normal, sizeof normal);
    bool ok = path_normalise(head->path, &path);
    text_printf(out, "request: %.*s, %s-form, HTTP/1.%u, %s\n", SLICE_ARG(head->method_text),
                forms[head->form], head->minor, head->keep_alive ? "keep-alive" : "close");
    text_printf(out, "path: %.*s%s%s\n", ok ? (int)path.n : 7, ok ? normal : "refused",
                head->path_is_plain ? "" : ", not plain",
                path_has_dot_segments(head->path) ? ", with dot segments" : "");
    text_printf(out, "host: %.*s\n", SLICE_ARG(head->host));
}

/* Writes the parse result as text. */
static void report(struct text *out, const struct reader *r)
{
    if (r->refusal.status) {
        text_printf(out, "refused: %u %s\n", r->refusal.status, r->refusal.why);
        return;
    }
    if (r->head_size == 0) {
        text_literal(out, "partial\n");
        return;
    }
    if (r->response)
        text_printf(out, "response: %u \"%.*s\", HTTP/1.%u, %s\n", r->answer.status,
                    SLICE_ARG(r->answer.reason), r->answer.minor,
                    r->answer.keep_alive ? "keep-alive" : "close");
    else
        request_report(out, &r->request);
    framing_report(out, r);
    if (r->framing.kind != FRAMING_NONE)
        text_printf(out, "content: %zu bytes%s\n", r->content_size,
                    r->done ? "" : ", more to come");
    text_printf(out, "after it: %zu bytes\n", r->filled - r->start);
    forward(out, r);
}

static bool same_slices(struct slice a, struct slice b, const char *what)
{
    if (!slice_equal(a, b))
        printf("%s: \"%.*s\" reads back as \"%.*s\"\n", what, SLICE_ARG(a), SLICE_ARG(b));
    return slice_equal(a, b);
}

/* Checks that the forwarded message parses to the same result. */
static void assert_round_trip(const struct reader *r)
{
    static char bytes[REPORT_MAX];
    struct text out = text_over(bytes, sizeof bytes);
    if (r->request.fields.count > HEAD_FIELDS_MAX - 8)
        return; /* with weir's own fields, the number exceeds its limit */
    forward(&out, r);
    ck_assert(!out.failed);
    reader_begin(&again, r->response);
    feed(&again, out.p, out.n);
    ck_assert_msg(again.refusal.status == 0 && again.head_size == out.n, "refused: %s",
                  again.refusal.why);
    enum framing_kind kind =
        r->response && r->framing.kind == FRAMING_UNTIL_CLOSE ? FRAMING_CHUNKED : r->framing.kind;
    ck_assert_int_eq(again.framing.kind, kind);
    ck_assert_uint_eq(again.framing.length, r->framing.length);
    if (r->response) {
        ck_assert_int_eq(again.answer.status, r->answer.status);
        ck_assert(same_slices(r->answer.reason, again.answer.reason, "reason"));
        return;
    }
    ck_assert(same_slices(r->request.method_text, again.request.method_text, "method"));
    ck_assert(same_slices(r->request.path, again.request.path, "path"));
    ck_assert(same_slices(r->request.query, again.request.query, "query"));
    ck_assert(
        same_slices(r->request.host.n ? r->request.host : facts.host, again.request.host, "host"));
    ck_assert(again.request.expects_continue ==
              (r->request.expects_continue && r->framing.kind != FRAMING_NONE));
}

/* Returns SIZE_MAX if the file cannot be read whole. */
static size_t file_read(const char *path, char *bytes, size_t cap)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return SIZE_MAX;
    size_t n = fread(bytes, 1, cap, file);
    fclose(file);
    return n < cap ? n : SIZE_MAX;
}

static void assert_report(const struct reader *r, struct slice wanted, const char *name,
                          const char *how, size_t cut)
{
    struct text out = text_over(report_bytes, sizeof report_bytes);
    report(&out, r);
    ck_assert_msg(slice_equal(text_slice(&out), wanted), "%s, %s %zu:\n%.*s\nbut expected:\n%.*s",
                  name, how, cut, (int)out.n, out.p, SLICE_ARG(wanted));
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n > m && strcmp(name + n - m, suffix) == 0;
}

static void case_check(const char *directory, const char *name)
{
    static char bytes[MESSAGE_MAX];
    char path[8192];
    bool response = has_suffix(name, ".res");
    snprintf(path, sizeof path, "%s/%s", directory, name);
    size_t n = file_read(path, bytes, sizeof bytes);
    snprintf(path, sizeof path, "%s/%.*s.out", directory, (int)strlen(name) - 4, name);
    struct slice wanted = {expected, file_read(path, expected, sizeof expected)};
    ck_assert_msg(n != SIZE_MAX && wanted.n != SIZE_MAX, "%s or its .out cannot be read", name);

    /* STEPS is set under sanitizers, to save time. A large message repeats short parts; a prime
     * step cuts them at each of their bytes. */
    size_t step = n > 4096 && getenv("STEPS") ? 13 : 1;
    for (size_t cut = 0; cut < n; cut += step) {
        reader_begin(&reader, response);
        feed(&reader, bytes, cut);
        feed(&reader, bytes + cut, n - cut);
        assert_report(&reader, wanted, name, "split at byte", cut);
    }
    reader_begin(&reader, response);
    for (size_t i = 0; i < n; i++)
        feed(&reader, bytes + i, 1);
    assert_report(&reader, wanted, name, "byte by byte", n);
    if (reader.refusal.status == 0 && reader.head_size)
        assert_round_trip(&reader);
}

static void corpus_check(const char *suffix, unsigned at_least)
{
    char directory[4096];
    const char *srcdir = getenv("srcdir");
    unsigned cases = 0;
    snprintf(directory, sizeof directory, "%s/tests/http", srcdir ? srcdir : ".");
    DIR *files = opendir(directory);
    ck_assert_msg(files != NULL, "%s cannot be read", directory);
    for (const struct dirent *entry; (entry = readdir(files)) != NULL;)
        if (has_suffix(entry->d_name, suffix)) {
            case_check(directory, entry->d_name);
            cases++;
        }
    closedir(files);
    ck_assert_uint_ge(cases, at_least); /* fails if the corpus was not found */
}

START_TEST(requests)
{
    corpus_check(".req", 100);
}
END_TEST

START_TEST(responses)
{
    corpus_check(".res", 30);
}
END_TEST

static int print(int count, char **files)
{
    for (int i = 0; i < count; i++) {
        static char bytes[MESSAGE_MAX];
        size_t n = file_read(files[i], bytes, sizeof bytes);
        if (n == SIZE_MAX) {
            fprintf(stderr, "%s cannot be read\n", files[i]);
            return 1;
        }
        reader_begin(&reader, has_suffix(files[i], ".res"));
        feed(&reader, bytes, n);
        struct text out = text_over(report_bytes, sizeof report_bytes);
        report(&out, &reader);
        fwrite(out.p, 1, out.n, stdout);
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return print(argc - 1, argv + 1);
    Suite *suite = suite_create("http corpus");
    TCase *tests = tcase_create("corpus");
    tcase_set_timeout(tests, 600);
    tcase_add_test(tests, requests);
    tcase_add_test(tests, responses);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
