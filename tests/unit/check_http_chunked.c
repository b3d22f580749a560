/* check_http_chunked.c - the chunked coding: pieces of any size, decoding in place, bytes after the
 * message. Refused messages are in the corpus (tests/http). */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/chunked.h"
#include "http/trailers.h"
#include "run_suite.h"

static const char coded[] = "5\r\nhello\r\n"
                            "10;name=\"a;\\\"b\"; other = token\r\n0123456789abcdef\r\n"
                            "2\r\n\r\n\r\n"
                            "000;end\r\nChecksum: 1\r\nEmpty:\r\n\r\n";
static const char content[] = "hello0123456789abcdef\r\n";

/* Decodes `coded` in pieces of the sizes from `next_size`. Returns the number of bytes in `out`. */
static size_t decode_in_pieces(size_t (*next_size)(void), char *out)
{
    struct chunked c;
    size_t filled = 0;
    const char *why = NULL;
    enum chunked_result result = CHUNKED_MORE;
    chunked_begin(&c);
    for (size_t at = 0; at < sizeof coded - 1;) {
        size_t rest = sizeof coded - 1 - at, size = next_size(), n;
        char *piece;
        size = size < rest ? size : rest;
        piece = malloc(size); /* a separate buffer, so that AddressSanitizer detects overreads */
        memcpy(piece, coded + at, size);
        at += size;
        size_t taken = size;
        result = chunked_decode(&c, piece, &taken, &n, &why);
        ck_assert_msg(result != CHUNKED_BAD, "%s", why);
        ck_assert_uint_eq(taken, size);
        memcpy(out + filled, piece, n);
        filled += n;
        free(piece);
    }
    ck_assert_int_eq(result, CHUNKED_END);
    return filled;
}

static size_t fixed_size;

static size_t fixed(void)
{
    return fixed_size;
}

static unsigned state = 1;

static size_t varying(void)
{
    state = state * 1103515245 + 12345;
    return 1 + (state >> 16) % 9;
}

START_TEST(pieces_of_any_size_decode_to_the_same_content)
{
    char out[sizeof coded];
    for (fixed_size = 1; fixed_size <= sizeof coded; fixed_size++) {
        size_t n = decode_in_pieces(fixed, out);
        ck_assert_uint_eq(n, sizeof content - 1);
        ck_assert_mem_eq(out, content, n);
    }
    for (unsigned i = 0; i < 1000; i++)
        ck_assert_uint_eq(decode_in_pieces(varying, out), sizeof content - 1);
}
END_TEST

START_TEST(bytes_after_the_message_are_not_changed)
{
    char bytes[] = "3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
    size_t size = sizeof bytes - 1, n;
    const char *why;
    struct chunked c;
    chunked_begin(&c);
    ck_assert_int_eq(chunked_decode(&c, bytes, &size, &n, &why), CHUNKED_END);
    ck_assert_uint_eq(size, sizeof "3\r\nabc\r\n0\r\n\r\n" - 1);
    ck_assert_uint_eq(n, 3);
    ck_assert_mem_eq(bytes, "abc", 3);
    ck_assert_str_eq(bytes + size, "GET / HTTP/1.1\r\n\r\n");

    size_t more = sizeof bytes - 1 - size;
    ck_assert_int_eq(chunked_decode(&c, bytes + size, &more, &n, &why), CHUNKED_END);
    ck_assert_uint_eq(more, 0);
    ck_assert_uint_eq(n, 0);
}
END_TEST

START_TEST(content_before_an_error_is_returned)
{
    char bytes[] = "3\r\nabc\r\n2\r\nde!";
    size_t size = sizeof bytes - 1, n;
    const char *why = NULL;
    struct chunked c;
    chunked_begin(&c);
    ck_assert_int_eq(chunked_decode(&c, bytes, &size, &n, &why), CHUNKED_BAD);
    ck_assert_uint_eq(size, sizeof bytes - 2);
    ck_assert_uint_eq(n, 5);
    ck_assert_mem_eq(bytes, "abcde", 5);
    ck_assert_str_eq(why, "chunk data without CRLF");

    size = 1; /* errors are permanent */
    ck_assert_int_eq(chunked_decode(&c, bytes, &size, &n, &why), CHUNKED_BAD);
    ck_assert_uint_eq(size, 0);
    ck_assert_uint_eq(n, 0);
}
END_TEST

/* A complete message in which one element has `filler` bytes. */
static enum chunked_result decode_with_filler(const char *before, size_t filler, const char *after)
{
    static char bytes[64 * 1024];
    int n = snprintf(bytes, sizeof bytes, "%s%0*d%s", before, (int)filler, 0, after);
    size_t size = (size_t)n, decoded;
    const char *why;
    struct chunked c;
    ck_assert_int_lt(n, (int)sizeof bytes);
    chunked_begin(&c);
    return chunked_decode(&c, bytes, &size, &decoded, &why);
}

START_TEST(each_limit_is_exact)
{
    ck_assert_int_eq(decode_with_filler("1;", CHUNK_EXTENSIONS_MAX - 1, "\r\nx\r\n0\r\n\r\n"),
                     CHUNKED_END);
    ck_assert_int_eq(decode_with_filler("1;", CHUNK_EXTENSIONS_MAX, "\r\nx\r\n0\r\n\r\n"),
                     CHUNKED_BAD);
    ck_assert_int_eq(decode_with_filler("0\r\nA:", TRAILERS_MAX - 4, "\r\n\r\n"), CHUNKED_END);
    ck_assert_int_eq(decode_with_filler("0\r\nA:", TRAILERS_MAX, "\r\n\r\n"), CHUNKED_BAD);
    ck_assert_int_eq(decode_with_filler("", 16, "\r\n\r\n"), CHUNKED_END);
    ck_assert_int_eq(decode_with_filler("", 17, "\r\n\r\n"), CHUNKED_BAD);
}
END_TEST

START_TEST(extensions_are_bounded_over_the_message)
{
    char piece[] = "1;aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\nx\r\n";
    const size_t extension = sizeof piece - 1 - sizeof "1\r\nx\r\n" + 1;
    struct chunked c;
    const char *why;
    size_t chunks = 0, n;
    chunked_begin(&c);
    for (;; chunks++) {
        char bytes[sizeof piece];
        size_t size = sizeof piece - 1;
        memcpy(bytes, piece, sizeof piece);
        if (chunked_decode(&c, bytes, &size, &n, &why) == CHUNKED_BAD)
            break;
    }
    ck_assert_uint_ge((chunks + 1) * extension, CHUNK_EXTENSIONS_TOTAL_MAX);
    ck_assert_uint_le(chunks * (extension - 2), CHUNK_EXTENSIONS_TOTAL_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http chunked");
    TCase *tests = tcase_create("chunked");
    tcase_add_test(tests, pieces_of_any_size_decode_to_the_same_content);
    tcase_add_test(tests, bytes_after_the_message_are_not_changed);
    tcase_add_test(tests, content_before_an_error_is_returned);
    tcase_add_test(tests, each_limit_is_exact);
    tcase_add_test(tests, extensions_are_bounded_over_the_message);
    suite_add_tcase(suite, tests);
    return run_suite(suite);
}
