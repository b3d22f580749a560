/* grpc_message.h - the frame of a gRPC message: a flag, a length of 4 bytes, the message. Source:
 * "Length-Prefixed-Message" in doc/PROTOCOL-HTTP2.md of github.com/grpc/grpc. */
#ifndef WEIR_SERVICE_GRPC_MESSAGE_H
#define WEIR_SERVICE_GRPC_MESSAGE_H

#include "base/text.h"

enum { GRPC_PREFIX = 5 };

enum grpc_message_result {
    GRPC_MESSAGE_READ,
    GRPC_MESSAGE_COMPRESSED,
    GRPC_MESSAGE_BAD /* none, several, a part of one, or an unknown flag */
};

/* Reads the one message that `content` must consist of. */
static inline enum grpc_message_result grpc_message_read(struct slice content,
                                                         struct slice *message)
{
    const unsigned char *b = (const unsigned char *)content.p;

    if (content.n < GRPC_PREFIX || b[0] > 1)
        return GRPC_MESSAGE_BAD;
    uint32_t size =
        (uint32_t)b[1] << 24 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 8 | (uint32_t)b[4];
    if (size != content.n - GRPC_PREFIX)
        return GRPC_MESSAGE_BAD;
    *message = (struct slice){content.p + GRPC_PREFIX, size};
    return b[0] ? GRPC_MESSAGE_COMPRESSED : GRPC_MESSAGE_READ;
}

/* Writes the frame of a message that follows `prefix` in memory. */
static inline void grpc_message_prefix(char *prefix, size_t size)
{
    prefix[0] = 0;
    for (unsigned i = 0; i < 4; i++)
        prefix[1 + i] = (char)(size >> (24 - 8 * i) & 0xff);
}

#endif
