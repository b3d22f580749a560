#include "http/framing.h"

#include "http/parse.h"

/* Reads Content-Length and Transfer-Encoding (RFC 9112 section 6.3) for requests and responses.
 * FRAMING_NONE: neither is present, or the length is 0. Section 6.3 allows repairs: merging equal
 * Content-Lengths, or preferring Transfer-Encoding. weir refuses instead. */
static inline bool fields_framing(const struct fields *fields, uint8_t minor,
                                  struct framing *framing, struct refusal *refusal)
{
    const struct field *length = fields_find(fields, FIELD_CONTENT_LENGTH);
    const struct field *coding = fields_find(fields, FIELD_TRANSFER_ENCODING);

    *framing = (struct framing){FRAMING_NONE, 0};
    if (length && coding)
        return refuse(refusal, 400, "both Content-Length and Transfer-Encoding");
    if (fields_repeat(fields, FIELD_CONTENT_LENGTH))
        return refuse(refusal, 400, "more than one Content-Length");
    if (length && !slice_to_u64(length->value, INT64_MAX, &framing->length))
        return refuse(refusal, 400, "invalid Content-Length");
    if (coding && minor == 0) /* RFC 9112 section 6.1 */
        return refuse(refusal, 400, "Transfer-Encoding in HTTP/1.0");
    if (coding && (fields_repeat(fields, FIELD_TRANSFER_ENCODING) ||
                   !slice_equal_nocase(coding->value, SLICE("chunked"))))
        return refuse(refusal, 400, "Transfer-Encoding other than chunked");
    if (coding)
        framing->kind = FRAMING_CHUNKED;
    else if (framing->length)
        framing->kind = FRAMING_LENGTH;
    return true;
}

bool request_framing(const struct request_head *head, struct framing *framing,
                     struct refusal *refusal)
{
    if (!fields_framing(&head->fields, head->minor, framing, refusal))
        return false;
    if (head->method == METHOD_TRACE && framing->kind != FRAMING_NONE) /* RFC 9110 section 9.3.8 */
        return refuse(refusal, 400, "TRACE with content");
    return true;
}

bool response_framing(const struct response_head *head, enum method method, struct framing *framing,
                      struct refusal *refusal)
{
    if (!fields_framing(&head->fields, head->minor, framing, refusal)) {
        refusal->status = 502;
        return false;
    }
    if (method == METHOD_HEAD || head->status < 200 || head->status == 204 || head->status == 304)
        *framing = (struct framing){FRAMING_NONE, 0};
    else if (framing->kind == FRAMING_NONE && !fields_have(&head->fields, FIELD_CONTENT_LENGTH))
        framing->kind = FRAMING_UNTIL_CLOSE;
    return true;
}
