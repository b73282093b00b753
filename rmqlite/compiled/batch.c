/* Batches: from the body of a send to records without places. */

#include "records.h"

/* An item: length, magic, CRC, flag, length of the body; see wire/remoting/batch.py. */
enum { ITEM_HEAD_BYTES = 20 };

PyObject *batch_spans(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer body;
    Py_ssize_t messages_max;
    if (!PyArg_ParseTuple(args, "y*n", &body, &messages_max)) return NULL;
    PyObject *result = NULL;
    int32_t *spans = NULL;
    const uint8_t *data = body.buf;
    int64_t at = 0, size = body.len;
    Py_ssize_t count = 0, room = 0;
    if (size > INT32_MAX) goto unusual;
    do {
        if (count >= messages_max || size - at < ITEM_HEAD_BYTES) goto unusual;
        if (count == room) {
            room = 2 * room + 64;
            int32_t *more = PyMem_Realloc(spans, room * SPAN_NUMBERS * sizeof(int32_t));
            if (more == NULL) {
                PyErr_NoMemory();
                goto done;
            }
            spans = more;
        }
        int64_t end = at + (int32_t)get32(data + at);
        int64_t body_at = at + ITEM_HEAD_BYTES;
        int64_t body_bytes = (int32_t)get32(data + at + 16);
        int64_t properties_at = body_at + body_bytes + 2;
        if (body_bytes < 0 || properties_at > end || end > size) goto unusual;
        int64_t properties_bytes = data[properties_at - 2] << 8 | data[properties_at - 1];
        if (properties_bytes > INT16_MAX || properties_at + properties_bytes != end) goto unusual;
        int32_t *span = spans + count++ * SPAN_NUMBERS;
        span[0] = (int32_t)get32(data + at + 12);
        span[1] = (int32_t)body_at, span[2] = (int32_t)(body_at + body_bytes);
        span[3] = (int32_t)properties_at, span[4] = (int32_t)end;
        at = end;
    } while (at < size);
    result = PyBytes_FromStringAndSize((char *)spans, count * SPAN_NUMBERS * sizeof(int32_t));
    goto done;
unusual: /* the plain form goes on with this item, and says what is wrong with it */
    result = Py_BuildValue("nL", count, (long long)at);
done:
    PyMem_Free(spans);
    PyBuffer_Release(&body);
    return result;
}

int body_crc(uint32_t *crc, const uint8_t *at, Py_ssize_t size) {
    PyObject *view = PyMemoryView_FromMemory((char *)at, size, PyBUF_READ);
    if (view == NULL) return 0;
    PyObject *found = PyObject_CallOneArg(crc32_of_zlib, view);
    Py_DECREF(view);
    if (found == NULL) return 0;
    *crc = (uint32_t)PyLong_AsUnsignedLongMask(found) & 0x7FFFFFFF;
    Py_DECREF(found);
    return !PyErr_Occurred();
}

Py_ssize_t count_of(Text text, uint8_t wanted) {
    Py_ssize_t count = 0;
    for (Py_ssize_t i = 0; i < text.size; i++) count += text.at[i] == wanted;
    return count;
}

Py_ssize_t join(uint8_t *string, Py_ssize_t size, Text part) {
    if (part.size == 0) return size;
    if (size && string[size - 1] != 2) string[size++] = 2;
    memcpy(string + size, part.at, part.size);
    return size + part.size;
}

static Text text_of(const Py_buffer *buffer) {
    return (Text){buffer->buf, buffer->len};
}

typedef struct {
    Py_buffer body, spans, head, topic, common, ending;
    unsigned int prefix;
    long long now_ms, delay_ms_max; /* of timers; 0 if the batch has none */
    Py_ssize_t body_max, properties_max, record_max, keys_max;
} Batch;

/* The most bytes that the records of a batch may take; -1 if its spans are not in its body. */
static Py_ssize_t room_of(const Batch *batch, const int32_t *spans, Py_ssize_t count) {
    Py_ssize_t room = 0;
    for (const int32_t *span = spans; span < spans + count * SPAN_NUMBERS; span += SPAN_NUMBERS) {
        int is_inside = 0 <= span[1] && span[1] <= span[2] && span[2] <= batch->body.len &&
                        0 <= span[3] && span[3] <= span[4] && span[4] <= batch->body.len;
        if (!is_inside) return -1;
        room += (Py_ssize_t)(span[2] - span[1]) + (span[4] - span[3]);
        room += HEAD_BYTES + LENGTHS_BYTES + batch->topic.len;
        room += batch->common.len + batch->ending.len + 2 + TIMER_OUT_BYTES_MAX;
    }
    return room;
}

/* Write one record; its length, 0 if it is out of the ordinary, -1 with an error set. */
static Py_ssize_t write_message(
    const Batch *batch, const int32_t *span, Block *block, Py_ssize_t number) {
    uint8_t *out = (uint8_t *)PyByteArray_AS_STRING(block->data) + block->size;
    const uint8_t *source = batch->body.buf;
    Py_ssize_t body_bytes = span[2] - span[1], own_bytes = span[4] - span[3];
    if (body_bytes < 1 || body_bytes > batch->body_max) return 0;
    memcpy(out, batch->head.buf, HEAD_BYTES);
    uint8_t *at = out + HEAD_BYTES;
    memcpy(at, source + span[1], body_bytes);
    uint32_t crc;
    if (!body_crc(&crc, at, body_bytes)) return -1;
    at += body_bytes;
    *at++ = (uint8_t)batch->topic.len;
    memcpy(at, batch->topic.buf, batch->topic.len);
    at += batch->topic.len;
    uint8_t *string = at + 2;
    memcpy(string, source + span[3], own_bytes);
    Py_ssize_t bytes = join(string, own_bytes, text_of(&batch->common));
    Properties found = {0};
    find_properties(&found, string, bytes);
    bytes = join(string, bytes, text_of(&batch->ending));
    int64_t due_ms = 0;
    if (batch->now_ms) {
        due_ms = asked_due(&found, batch->now_ms, batch->delay_ms_max);
        if (!due_ms || found.real_topic.size || found.real_qid.size) return 0;
        bytes = join_due(string, bytes, due_ms);
    } else if (has_timer(&found)) return 0;
    if (found.delay.size || found.cluster.size || found.tran_msg.size) return 0;
    Py_ssize_t size = string + bytes - out;
    if (bytes > batch->properties_max || size > batch->record_max) return 0;
    if (count_of(found.keys, ' ') >= batch->keys_max) return 0;
    uint32_t tags_code = 0;
    if (!hash_text(&tags_code, found.tags.at, found.tags.size)) return 0;
    if (!add_keys(&block->keys, &found, batch->prefix, (uint32_t)number))
        return PyErr_Occurred() ? -1 : 0;
    at[0] = (uint8_t)(bytes >> 8), at[1] = (uint8_t)bytes;
    put32(out + SIZE_AT, (uint32_t)size);
    put32(out + BODY_CRC_AT, crc);
    put32(out + FLAG_AT, (uint32_t)span[0]);
    put32(out + BODY_SIZE_AT, (uint32_t)body_bytes);
    block->rows[number] = (Row){(uint32_t)size, 0, due_ms ? due_ms : (int32_t)tags_code};
    return size;
}

static PyObject *batch_records(const Batch *batch) {
    const int32_t *spans = batch->spans.buf;
    Py_ssize_t count = batch->spans.len / (SPAN_NUMBERS * (Py_ssize_t)sizeof(int32_t));
    Py_ssize_t room = room_of(batch, spans, count);
    if (room < 0 || count < 1 || count > INT32_MAX || batch->head.len != HEAD_BYTES ||
        batch->topic.len > TOPIC_BYTES_MAX || batch->properties_max > INT16_MAX)
        Py_RETURN_NONE;
    Block block;
    if (!begin_block(&block, count, room)) return NULL;
    PyObject *result = NULL;
    Py_ssize_t bytes = 1;
    for (Py_ssize_t i = 0; bytes > 0 && i < count; i++) {
        bytes = write_message(batch, spans + i * SPAN_NUMBERS, &block, i);
        if (bytes > 0) block.size += bytes;
    }
    if (bytes > 0) result = packed(&block);
    else if (bytes == 0) result = Py_NewRef(Py_None);
    free_block(&block);
    return result;
}

PyObject *pack_batch(PyObject *self, PyObject *args) {
    (void)self;
    Batch batch;
    if (!PyArg_ParseTuple(
            args, "y*y*y*y*y*y*ILLnnnn", &batch.body, &batch.spans, &batch.head, &batch.topic,
            &batch.common, &batch.ending, &batch.prefix, &batch.now_ms, &batch.delay_ms_max,
            &batch.body_max, &batch.properties_max, &batch.record_max, &batch.keys_max))
        return NULL;
    PyObject *result = batch_records(&batch);
    PyBuffer_Release(&batch.body);
    PyBuffer_Release(&batch.spans);
    PyBuffer_Release(&batch.head);
    PyBuffer_Release(&batch.topic);
    PyBuffer_Release(&batch.common);
    PyBuffer_Release(&batch.ending);
    return result;
}
