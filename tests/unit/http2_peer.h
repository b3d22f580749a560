/* http2_peer.h - raw HTTP/2 frames of a client, for tests of sessions. */
#ifndef WEIR_TESTS_HTTP2_PEER_H
#define WEIR_TESTS_HTTP2_PEER_H

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "http2/session.h"

enum { PEER_BYTES_MAX = 512 * 1024, END_STREAM = 1, END_HEADERS = 4, PADDED = 8, ACK = 1 };

struct peer {
    char bytes[PEER_BYTES_MAX];
    size_t n;
    nghttp2_hd_deflater *deflater;
};

static inline void peer_put(struct peer *peer, const void *bytes, size_t n)
{
    if (n > sizeof peer->bytes - peer->n)
        abort();
    if (n)
        memcpy(peer->bytes + peer->n, bytes, n);
    peer->n += n;
}

static inline void peer_frame(struct peer *peer, unsigned type, unsigned flags, unsigned stream,
                              const void *payload, size_t n)
{
    unsigned char header[9] = {
        (unsigned char)(n >> 16),      (unsigned char)(n >> 8),      (unsigned char)n,
        (unsigned char)type,           (unsigned char)flags,         (unsigned char)(stream >> 24),
        (unsigned char)(stream >> 16), (unsigned char)(stream >> 8), (unsigned char)stream};
    peer_put(peer, header, sizeof header);
    peer_put(peer, payload, n);
}

static inline void peer_u32_frame(struct peer *peer, unsigned type, unsigned stream, uint32_t value)
{
    unsigned char payload[4] = {(unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                (unsigned char)(value >> 8), (unsigned char)value};
    peer_frame(peer, type, 0, stream, payload, sizeof payload);
}

static inline void peer_setting(struct peer *peer, unsigned id, uint32_t value)
{
    unsigned char payload[6] = {(unsigned char)(id >> 8),     (unsigned char)id,
                                (unsigned char)(value >> 24), (unsigned char)(value >> 16),
                                (unsigned char)(value >> 8),  (unsigned char)value};
    peer_frame(peer, NGHTTP2_SETTINGS, 0, 0, payload, sizeof payload);
}

/* Encodes "name=value|name=value" to `block`; returns its size. */
static inline size_t peer_encode(struct peer *peer, const char *fields, uint8_t *block, size_t size)
{
    char bytes[8192], *save = NULL;
    nghttp2_nv pairs[200];
    size_t count = 0;

    if (strlen(fields) >= sizeof bytes ||
        (!peer->deflater && nghttp2_hd_deflate_new(&peer->deflater, 4096) != 0))
        abort();
    strcpy(bytes, fields);
    for (char *field = strtok_r(bytes, "|", &save); field; field = strtok_r(NULL, "|", &save)) {
        char *equals = strchr(field + 1, '=');
        pairs[count++] =
            (nghttp2_nv){(uint8_t *)field, (uint8_t *)equals + 1, (size_t)(equals - field),
                         strlen(equals + 1), NGHTTP2_NV_FLAG_NONE};
    }
    ssize_t n = nghttp2_hd_deflate_hd(peer->deflater, block, size, pairs, count);
    if (n < 0)
        abort();
    return (size_t)n;
}

static inline void peer_headers(struct peer *peer, unsigned flags, unsigned stream,
                                const char *fields)
{
    uint8_t block[16384];
    size_t n = peer_encode(peer, fields, block, sizeof block);
    peer_frame(peer, NGHTTP2_HEADERS, flags | END_HEADERS, stream, block, n);
}

static inline void peer_begin(struct peer *peer)
{
    peer->n = 0;
    peer->deflater = NULL;
    peer_put(peer, http2_preface, HTTP2_PREFACE_SIZE);
    peer_frame(peer, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    peer_frame(peer, NGHTTP2_SETTINGS, ACK, 0, NULL, 0);
}

static inline void peer_end(struct peer *peer)
{
    if (peer->deflater)
        nghttp2_hd_deflate_del(peer->deflater);
    peer->deflater = NULL;
}

#define PEER_GET  ":method=GET|:scheme=https|:authority=a.test|:path=/"
#define PEER_POST ":method=POST|:scheme=https|:authority=a.test|:path=/"

#endif
