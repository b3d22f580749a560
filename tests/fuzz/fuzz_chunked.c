/* Properties: how an input is split into pieces does not change the decoded content, the position
 * of its end, or whether it is refused. Decoding works in place, and the content never grows. */
#include "fuzz.h"
#include "http/chunked.h"

enum { CODED_MAX = 64 * 1024 };

struct decoded {
    enum chunked_result result;
    size_t taken, content;
    const char *why;
    char bytes[CODED_MAX];
};

static struct decoded whole, pieces;

/* `split_seed` chooses the sizes of the pieces; 0: one piece. */
static void decode(struct decoded *d, const uint8_t *data, size_t size, unsigned split_seed)
{
    struct chunked c;
    chunked_begin(&c);
    d->result = CHUNKED_MORE;
    d->taken = d->content = 0;
    d->why = NULL;
    while (d->result == CHUNKED_MORE && d->taken < size) {
        size_t piece = size - d->taken, n;
        if (split_seed) {
            split_seed = split_seed * 1103515245 + 12345;
            size_t wish = 1 + (split_seed >> 16) % 17;
            piece = wish < piece ? wish : piece;
        }
        char *bytes = fuzz_copy(data + d->taken, piece);
        size_t taken = piece;
        d->result = chunked_decode(&c, bytes, &taken, &n, &d->why);
        PROPERTY(taken <= piece && n <= taken);
        PROPERTY(d->result != CHUNKED_MORE || taken == piece);
        PROPERTY(memcmp(bytes + taken, data + d->taken + taken, piece - taken) ==
                 0); /* unchanged */
        memcpy(d->bytes + d->content, bytes, n);
        d->taken += taken;
        d->content += n;
        free(bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > CODED_MAX)
        return 0;
    decode(&whole, data, size, 0);
    decode(&pieces, data, size, fuzz_choice(data, size) | 1);
    PROPERTY(whole.result == pieces.result && whole.taken == pieces.taken &&
             whole.content == pieces.content);
    PROPERTY(memcmp(whole.bytes, pieces.bytes, whole.content) == 0);
    PROPERTY(whole.result == CHUNKED_BAD ? whole.why == pieces.why : whole.why == NULL);
    PROPERTY(whole.result != CHUNKED_END || memcmp(data + whole.taken - 2, "\r\n", 2) == 0);
    return 0;
}
