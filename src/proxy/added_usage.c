#include "proxy/added_usage.h"

#include <stdlib.h>

#include "content/usage_reader.h"
#include "proxy/request_content.h"

/* Fields that are valid for the content as it came (RFC 9530, RFC 9421, RFC 1864). */
static bool is_signed(const struct fields *fields)
{
    static const struct slice names[] = {SLICE("Content-Digest"), SLICE("Repr-Digest"),
                                         SLICE("Digest"), SLICE("Content-MD5"),
                                         SLICE("Signature-Input")};

    for (unsigned i = 0; i < COUNT_OF(names); i++)
        if (fields_next_named(fields, names[i], NULL))
            return true;
    return false;
}

/* Inserts the member at `offset`. False: no memory. */
static bool insert(struct exchange *x, size_t offset)
{
    struct slice member = STREAM_USAGE_MEMBER;
    struct iobuf **kept = &x->request.kept;
    size_t before = iobuf_held(*kept), size = before + member.n;

    if (!iobuf_store_up_to(&x->worker->buffers, kept, member,
                           size > IOBUF_LARGE ? size : IOBUF_LARGE))
        return false;
    char *at = (*kept)->bytes + (*kept)->start + offset;
    memmove(at + member.n, at, before - offset);
    memcpy(at, member.p, member.n);
    return true;
}

enum stream_usage added_usage_read(const struct fields *fields, struct slice content,
                                   size_t *offset)
{
    if (request_content_is_plain(fields, content) != CONTENT_READ)
        return STREAM_USAGE_UNSURE;
    enum stream_usage usage = stream_usage_of(content, offset);
    return usage == STREAM_USAGE_UNASKED && is_signed(fields) ? STREAM_USAGE_UNSURE : usage;
}

bool added_usage_add(struct exchange *x)
{
    struct incoming *in = &x->worker->incoming;
    enum content_state state = request_content_state(x);
    size_t offset = 0;

    if (state == CONTENT_ABSENT)
        return true;
    if (state != CONTENT_VALUES || !request_content_is_whole(x))
        return false;
    switch (added_usage_read(&in->head->fields, request_content_kept(x), &offset)) {
    case STREAM_USAGE_STATED: return true;
    case STREAM_USAGE_UNSURE: return false;
    case STREAM_USAGE_UNASKED: break;
    }
    if (!insert(x, offset))
        return false;
    x->request.bytes += STREAM_USAGE_MEMBER.n;
    if (in->framing.kind == FRAMING_LENGTH)
        in->framing.length += STREAM_USAGE_MEMBER.n;
    x->cost.usage_added = STREAM_USAGE_MEMBER.n;
    return true;
}

/* Content with a length stays as it is. */
void added_usage_begin(struct exchange *x, const struct response_head *head,
                       const struct framing *framing)
{
    const struct field *type = fields_find(&head->fields, FIELD_CONTENT_TYPE);

    if (!x->cost.usage_added || x->cost.filter || framing->kind == FRAMING_NONE ||
        framing->kind == FRAMING_LENGTH || !type ||
        usage_type_of(type->value) != USAGE_TYPE_EVENTS || fields_name_coding(&head->fields))
        return;
    x->cost.filter = malloc(sizeof *x->cost.filter);
    if (x->cost.filter)
        stream_usage_filter_begin(x->cost.filter);
}

bool added_usage_remove(struct exchange *x, const struct content_piece *piece,
                        struct content_piece *sent, struct iobuf **room)
{
    _Static_assert(STREAM_USAGE_HELD_MAX + IOBUF_READ_MAX <= IOBUF_LARGE, "a piece fits");

    *sent = *piece;
    *room = iobuf_get(&x->worker->buffers, IOBUF_LARGE);
    if (!*room)
        return false;
    struct text out = text_over((*room)->bytes, (*room)->cap);
    stream_usage_filter_read(x->cost.filter, (struct slice){piece->bytes, piece->size}, piece->last,
                             &out);
    sent->bytes = (*room)->bytes;
    sent->size = out.n;
    x->response.bytes += out.n;
    x->response.bytes -= piece->size;
    return true;
}

void added_usage_end(struct exchange *x)
{
    free(x->cost.filter);
    x->cost.filter = NULL;
}
