#include "config/lookalike.h"

#include "base/macros.h"

static const struct lookalike lookalikes[] = {
    {"\xc2\xa0", "a no-break space (U+00A0); replace it by a space", true},
    {"\xe2\x80\x8b", "a zero-width space (U+200B); remove it", true},
    {"\xe2\x80\xaf", "a narrow no-break space (U+202F); replace it by a space", true},
    {"\xe3\x80\x80", "an ideographic space (U+3000); replace it by a space", true},
    {"\xef\xbb\xbf", "a byte order mark (U+FEFF); remove it", true},
    {"\xe2\x80\x98", "a typographic quote (U+2018); write ' or \"", false},
    {"\xe2\x80\x99", "a typographic quote (U+2019); write ' or \"", false},
    {"\xe2\x80\x9c", "a typographic quote (U+201C); write \"", false},
    {"\xe2\x80\x9d", "a typographic quote (U+201D); write \"", false},
    {"\xe2\x80\x93", "an en dash (U+2013); write -", false},
    {"\xe2\x80\x94", "an em dash (U+2014); write -", false},
};

const struct lookalike *find_lookalike(struct slice text)
{
    for (size_t at = 0; at < text.n; at++)
        for (size_t i = 0; (text.p[at] & 0x80) && i < COUNT_OF(lookalikes); i++)
            if (slice_starts_with((struct slice){text.p + at, text.n - at},
                                  slice_of(lookalikes[i].utf8)))
                return &lookalikes[i];
    return NULL;
}
