/* json_scanner.h - reads single members of a JSON document (RFC 8259) while it passes.
 *
 * The document arrives in pieces of any size. The scanner keeps nothing of it but the text of one
 * value, if its user wants that; its state has a fixed size. It validates the whole document:
 * grammar, UTF-8, escapes with paired surrogates (RFC 8259 section 8.2).
 *
 * `usage.total_tokens` is found in {"usage": {"total_tokens": 5}}. A member whose name differs
 * from that of a path only by letter case, or by U+0000 and what follows it, is no match, but other
 * readers may take it for one: json_scanner.ambiguous has the paths for which that is so, or whose
 * name stands twice. */
#ifndef WEIR_CONTENT_JSON_SCANNER_H
#define WEIR_CONTENT_JSON_SCANNER_H

#include "base/text.h"
#include "content/json_path.h"

enum {
    JSON_DEPTH_MAX = 64,
    JSON_TOKEN_MAX = 64 * 1024 /* bytes of a name or a number */
};

/* The largest integer that is reported: what structured fields can hold (RFC 9651). */
#define JSON_INTEGER_MAX INT64_C(999999999999999)

enum scanned_kind {
    SCANNED_INTEGER, /* 0 or more, written without sign, fraction and exponent */
    SCANNED_TEXT,
    SCANNED_TRUE,
    SCANNED_FALSE,
    SCANNED_NULL,
    SCANNED_OTHER /* an object, an array, or another number */
};

/* Value of a member. Valid during the call. */
struct scanned_value {
    enum scanned_kind kind;
    int64_t integer;   /* -1: larger than JSON_INTEGER_MAX */
    struct slice text; /* of a text without its escapes, or of an integer as written */
    bool cut;          /* the text was longer than the scanner's room */
};

enum json_scan { JSON_MORE, JSON_COMPLETE, JSON_INVALID };

struct json_scanner {
    const struct json_paths *paths;
    /* Called for each value of a path, in the order of the document. */
    void (*value)(struct json_scanner *scanner, unsigned path, const struct scanned_value *value);
    /* NULL: texts that are longer than the room are cut. Else called with the room whenever it is
     * full; then scanned_value has only the rest. Set after json_scanner_begin(). */
    void (*piece)(struct json_scanner *scanner, struct slice bytes);
    /* Set before json_scanner_begin(). */
    bool objects_in_array; /* an array at the top is read as its elements, one after the other */
    bool takes_unpaired; /* reads unpaired surrogates as U+FFFD, as they are common in responses */
    bool is_object;      /* the document is an object */
    uint32_t ambiguous;  /* bit set of paths, see above */

    /* The rest is private. */
    struct text text;       /* of the value of a path, in the user's room */
    uint32_t room;          /* its size */
    int64_t integer;        /* of the current number; -1: larger than JSON_INTEGER_MAX */
    uint64_t objects;       /* bit i: the container at depth i is an object */
    uint32_t token;         /* bytes of the current name or number */
    uint32_t position;      /* code points of the current name */
    uint32_t code;          /* the code point that is being decoded */
    uint32_t pending;       /* bit set of the paths that the next value may belong to */
    uint32_t exact, folded; /* bit set of the paths whose name the current name still matches */
    uint32_t alive[JSON_PATH_NAMES_MAX]; /* in each open object of a path: the paths, */
    uint32_t seen[JSON_PATH_NAMES_MAX];  /* and those whose name was seen */
    uint16_t surrogate;                  /* the high surrogate that was read, or 0 */
    uint8_t depth;                       /* open containers */
    uint8_t skipped;         /* 1 while an array at the top is open that is read as its elements */
    uint8_t tracked;         /* open objects of a path, from the top */
    uint8_t state, literal;  /* position in "true", "false" or "null" */
    uint8_t more, low, high; /* UTF-8: bytes that are missing, and the range of the next one */
    bool negative;           /* the number has a sign */
    bool in_name, wanted;    /* the string is a name; the value belongs to a path */
    bool name_ended;         /* by U+0000, for readers with C strings */
};

/* `room` (may be empty) receives the text of values: SCANNED_TEXT and SCANNED_INTEGER. `paths` and
 * `room` must outlive the scanner. */
void json_scanner_begin(struct json_scanner *scanner, const struct json_paths *paths,
                        void (*value)(struct json_scanner *scanner, unsigned path,
                                      const struct scanned_value *value),
                        struct text room);

/* Reads the next piece. JSON_COMPLETE: a whole document was read, and only white space may follow.
 * A number at the top is complete only at json_scanner_end(). After JSON_INVALID, further calls
 * return it again. */
enum json_scan json_scanner_read(struct json_scanner *scanner, struct slice bytes);
/* The document has ended. Returns JSON_COMPLETE or JSON_INVALID. */
enum json_scan json_scanner_end(struct json_scanner *scanner);

#endif
