/* Batches: from the body of a send to records without places. */

#include "records.h"

/* An item: length, magic, CRC, flag, length of the body; see protocols/remoting/bytes/batch.py. */
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
