/* What both sides of rmqlite.v1 need of protobuf's wire format.

   https://protobuf.dev/programming-guides/encoding/ */

#ifndef RMQLITE_PROTOBUF_H
#define RMQLITE_PROTOBUF_H

#include "records.h"

/* Wire types, and the tag of a field: number and wire type. */
enum { VARINT = 0, CONTENT = 2 };
#define TAG(number, wire_type) ((number) << 3 | (wire_type))

/* ---- reading */

typedef struct {
    const uint8_t *at, *end;
} Wire;

/* All that read…() returns is false at the end of the bytes, and for what is no such thing. */
static inline int read_varint(Wire *wire, uint64_t *value) {
    *value = 0;
    for (int shift = 0; shift < 64 && wire->at < wire->end; shift += 7) {
        uint8_t byte = *wire->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128) return 1;
    }
    return 0;
}

static inline int read_int32(Wire *wire, int32_t *value) {
    uint64_t whole;
    if (!read_varint(wire, &whole)) return 0;
    *value = (int32_t)whole;
    return (int64_t)whole == *value;
}

static inline int read_int64(Wire *wire, int64_t *value) {
    return read_varint(wire, (uint64_t *)value);
}

static inline int read_content(Wire *wire, Text *content) {
    uint64_t size;
    if (!read_varint(wire, &size) || size > (uint64_t)(wire->end - wire->at)) return 0;
    *content = (Text){wire->at, (Py_ssize_t)size};
    wire->at += size;
    return 1;
}

/* ---- writing */

static inline uint8_t *put_bytes(uint8_t *at, const void *bytes, Py_ssize_t size) {
    memcpy(at, bytes, size);
    return at + size;
}

static inline uint8_t *put_varint(uint8_t *at, uint64_t value) {
    for (; value > 127; value >>= 7) *at++ = (uint8_t)(value | 128);
    *at++ = (uint8_t)value;
    return at;
}

static inline uint8_t *put_number(uint8_t *at, int field, int64_t value) {
    if (value == 0) return at;
    *at++ = TAG(field, VARINT);
    return put_varint(at, (uint64_t)value);
}

static inline uint8_t *put_item(uint8_t *at, int field, Text item) {
    *at++ = TAG(field, CONTENT);
    at = put_varint(at, (uint64_t)item.size);
    return put_bytes(at, item.at, item.size);
}

static inline uint8_t *put_content(uint8_t *at, int field, Text content) {
    return content.size ? put_item(at, field, content) : at;
}

static inline Py_ssize_t varint_bytes(uint64_t value) {
    Py_ssize_t size = 1;
    for (; value > 127; value >>= 7) size++;
    return size;
}

/* An entry of a map from text to text. */
static inline uint8_t *put_entry(uint8_t *at, int field, Text name, Text value) {
    Py_ssize_t size = 2 + name.size + value.size + varint_bytes((uint64_t)name.size) +
                      varint_bytes((uint64_t)value.size);
    *at++ = TAG(field, CONTENT);
    at = put_varint(at, (uint64_t)size);
    return put_item(put_item(at, 1, name), 2, value);
}

enum { LENGTH_BYTES_MAX = 5 };

/* Put the length of a content before it: it stands LENGTH_BYTES_MAX behind at, and is moved. */
static inline uint8_t *put_length(uint8_t *at, const uint8_t *content_end) {
    const uint8_t *content = at + LENGTH_BYTES_MAX;
    Py_ssize_t size = content_end - content;
    at = put_varint(at, (uint64_t)size);
    memmove(at, content, size);
    return at + size;
}

#endif
