#include "http/response.h"

#include "http/field_line.h"

/* RFC 9110 section 8.6: no Content-Length in 1xx and 204. */
static bool status_has_length(unsigned status)
{
    return status >= 200 && status != 204;
}

static enum body_kind body_kind_of(const struct framing *framing)
{
    switch (framing->kind) {
    case FRAMING_NONE: return BODY_NONE;
    case FRAMING_LENGTH: return BODY_LENGTH;
    case FRAMING_CHUNKED:
    case FRAMING_UNTIL_CLOSE: break;
    }
    return BODY_UNKNOWN;
}

void response_forward(struct response *response, struct text *lines,
                      const struct response_head *head, const struct framing *framing,
                      struct slice date)
{
    *response = (struct response){.status = head->status,
                                  .reason = head->reason,
                                  .fields = &head->fields,
                                  .body = body_kind_of(framing)};
    if (!status_has_length(head->status))
        response->dropped |= FIELD_BIT(FIELD_CONTENT_LENGTH);
    if (!fields_have(&head->fields, FIELD_DATE)) /* RFC 9110 section 6.6.1 */
        WRITE_FIELD(lines, "Date", date);
    via_write(lines, head->version, head->minor);
}

void response_add_request_id(struct text *lines, const struct response_head *head, struct slice id)
{
    if (id.n && !fields_have(&head->fields, FIELD_X_REQUEST_ID))
        WRITE_FIELD(lines, "X-Request-Id", id);
}

struct response response_interim(const struct response_head *head)
{
    return (struct response){.status = head->status,
                             .reason = head->reason,
                             .fields = &head->fields,
                             .dropped = FIELD_BIT(FIELD_CONTENT_LENGTH)};
}

void response_image_store(struct response_image *image, unsigned form, struct slice head,
                          size_t lines_at, const struct response *response,
                          const struct iovec *content, int count)
{
    struct text all = text_over(image->bytes, sizeof image->bytes);

    text_put(&all, head);
    for (int i = 0; i < count; i++)
        text_bytes(&all, content[i].iov_base, content[i].iov_len);
    if (all.failed)
        return;
    image->form = form;
    image->status = response->status;
    image->size = all.n;
    image->lines = response->lines.n;
    image->lines_at = lines_at;
    image->content = all.n - head.n;
    image->content_at = head.n;
}
