/* Reading a log into columns: where its records begin, their fixed parts, and their topics. */

#include "records.h"

/* Where the parts of a record are, as spark/arrow/records.py keeps them: one array for each. */
enum { BODY_BEGIN, BODY_END, TOPIC_BEGIN, TOPIC_END, PAIRS_BEGIN, END, PART_COUNT };

enum { LINE_BYTES = 64, AHEAD_BYTES = 2048 }; /* of the processor's cache */

PyObject *record_starts(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data;
    long long base, at, upto;
    if (!PyArg_ParseTuple(args, "y*LLL", &data, &base, &at, &upto)) return NULL;
    const uint8_t *bytes = data.buf;
    int64_t last = data.len - (HEAD_BYTES + LENGTHS_BYTES), *starts = NULL;
    Py_ssize_t count = 0, room = 0;
    PyObject *result = NULL;
    if (last >= upto) last = upto - 1;
    while (at >= 0 && at <= last) {
        const uint8_t *head = bytes + at;
        int64_t size = (int32_t)get32(head + SIZE_AT);
        if (get32(head + MAGIC_AT) != MAGIC || size < HEAD_BYTES + LENGTHS_BYTES ||
            get64(head + PHYSICAL_OFFSET_AT) != (uint64_t)at + (uint64_t)base)
            break;
        if (count == room) {
            room = 2 * room + 4096;
            int64_t *more = PyMem_Realloc(starts, room * sizeof(int64_t));
            if (more == NULL) {
                PyErr_NoMemory();
                goto done;
            }
            starts = more;
        }
        starts[count++] = at;
        /* Otherwise every step waits for the memory: the next one is known only by this one. */
        for (int64_t ahead = 0; ahead < size && ahead < AHEAD_BYTES; ahead += LINE_BYTES)
            __builtin_prefetch(head + AHEAD_BYTES + ahead);
        at += size;
    }
    const char *found = count ? (char *)starts : "";
    result = Py_BuildValue("y#L", found, count * (Py_ssize_t)sizeof(int64_t), at);
done:
    PyMem_Free(starts);
    PyBuffer_Release(&data);
    return result;
}

/* Take one record apart: its head, in the form of one with IPv4 hosts, and its parts, of which
   each array has `count` places.  begin: -1, or the physical offset of the first byte. */
static int take_apart(
    Text data, int64_t begin, int64_t start, uint8_t *head, int64_t *parts, Py_ssize_t count) {
    if (start < 0 || start > data.size - (HEAD_BYTES + LENGTHS_BYTES)) return 0;
    const uint8_t *at = data.at + start;
    uint32_t flags = get32(at + SYS_FLAG_AT);
    int born = flags & BORN_V6_FLAG ? V6_MORE_BYTES : 0;
    int more = born + (flags & V6_FLAGS & ~BORN_V6_FLAG ? V6_MORE_BYTES : 0);
    int64_t size = (int32_t)get32(at + SIZE_AT);
    if (get32(at + MAGIC_AT) != MAGIC || at[QUEUE_ID_AT] & 128 ||
        (begin >= 0 && get64(at + PHYSICAL_OFFSET_AT) != (uint64_t)start + (uint64_t)begin) ||
        size < HEAD_BYTES + LENGTHS_BYTES + more || size > data.size - start)
        return 0;
    memcpy(head, at, STORE_TIMESTAMP_AT);
    memcpy(head + STORE_TIMESTAMP_AT, at + STORE_TIMESTAMP_AT + born,
        RECONSUME_TIMES_AT - STORE_TIMESTAMP_AT);
    memcpy(head + RECONSUME_TIMES_AT, at + RECONSUME_TIMES_AT + more,
        HEAD_BYTES - RECONSUME_TIMES_AT);
    int64_t end = start + size, body_bytes = (int32_t)get32(head + BODY_SIZE_AT);
    int64_t body = start + HEAD_BYTES + more, body_end = body + body_bytes;
    if (body_bytes < 0 || body_end > end - LENGTHS_BYTES) return 0;
    int64_t topic_end = body_end + 1 + data.at[body_end];
    if (topic_end > end - 2) return 0;
    int64_t pairs = topic_end + 2;
    if (pairs + (data.at[topic_end] << 8 | data.at[topic_end + 1]) != end) return 0;
    parts[BODY_BEGIN * count] = body, parts[BODY_END * count] = body_end;
    parts[TOPIC_BEGIN * count] = body_end + 1, parts[TOPIC_END * count] = topic_end;
    parts[PAIRS_BEGIN * count] = pairs, parts[END * count] = end;
    return 1;
}

PyObject *record_parts(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data, starts;
    long long begin;
    if (!PyArg_ParseTuple(args, "y*Ly*", &data, &begin, &starts)) return NULL;
    Py_ssize_t count = starts.len / (Py_ssize_t)sizeof(int64_t);
    PyObject *heads = PyBytes_FromStringAndSize(NULL, count * HEAD_BYTES), *result = NULL;
    PyObject *parts = PyBytes_FromStringAndSize(NULL, count * PART_COUNT * sizeof(int64_t));
    if (heads == NULL || parts == NULL) goto done;
    Text text = {data.buf, data.len};
    const int64_t *start = starts.buf;
    uint8_t *head = (uint8_t *)PyBytes_AS_STRING(heads);
    int64_t *part = (int64_t *)PyBytes_AS_STRING(parts);
    uint32_t flags = 0;
    for (Py_ssize_t i = 0; i < count; i++, head += HEAD_BYTES) {
        if (!take_apart(text, begin, start[i], head, part + i, count)) {
            result = Py_NewRef(Py_None);
            goto done;
        }
        flags |= get32(head + SYS_FLAG_AT);
    }
    result = Py_BuildValue("OON", heads, parts, PyBool_FromLong(flags & V6_FLAGS));
done:
    Py_XDECREF(heads);
    Py_XDECREF(parts);
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    return result;
}

/* A name of ASCII without a zero and a slash, and of more than two bytes. */
static int is_plain_name(const uint8_t *at, int64_t size) {
    uint8_t odd = size < 3;
    for (int64_t i = 0; i < size; i++) odd |= (at[i] & 128) | (at[i] == 0) | (at[i] == '/');
    return !odd;
}

PyObject *topic_texts(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data, begins, ends;
    if (!PyArg_ParseTuple(args, "y*y*y*", &data, &begins, &ends)) return NULL;
    Py_ssize_t count = begins.len / (Py_ssize_t)sizeof(int64_t), total = 0;
    const int64_t *begin = begins.buf, *end = ends.buf;
    PyObject *offsets = NULL, *texts = NULL, *result = NULL;
    if (ends.len != begins.len) goto unusual;
    for (Py_ssize_t i = 0; i < count; i++) {
        if (begin[i] < 0 || end[i] < begin[i] || end[i] > data.len || end[i] - begin[i] > UINT8_MAX)
            goto unusual;
        total += end[i] - begin[i];
    }
    if (total > INT32_MAX) goto unusual;
    offsets = PyBytes_FromStringAndSize(NULL, (count + 1) * sizeof(int32_t));
    texts = PyBytes_FromStringAndSize(NULL, total);
    if (offsets == NULL || texts == NULL) goto done;
    int32_t *offset = (int32_t *)PyBytes_AS_STRING(offsets), at = 0;
    uint8_t *text = (uint8_t *)PyBytes_AS_STRING(texts);
    for (Py_ssize_t i = 0; i < count; i++) {
        const uint8_t *name = (const uint8_t *)data.buf + begin[i];
        int32_t size = (int32_t)(end[i] - begin[i]), is_same;
        /* Neighbours are mostly of few topics: a name is judged once in a row. */
        is_same = i > 0 && at - offset[i - 1] == size && !memcmp(text + at - size, name, size);
        if (!is_same && !is_plain_name(name, size)) goto unusual;
        memcpy(text + at, name, size);
        offset[i] = at;
        at += size;
    }
    offset[count] = at;
    result = PyTuple_Pack(2, offsets, texts);
    goto done;
unusual:
    result = Py_NewRef(Py_None);
done:
    Py_XDECREF(offsets);
    Py_XDECREF(texts);
    PyBuffer_Release(&data);
    PyBuffer_Release(&begins);
    PyBuffer_Release(&ends);
    return result;
}
