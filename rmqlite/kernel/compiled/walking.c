/* The walk over an existing log: runs of records that wait for nothing, complete nothing, and are
   the next of their queues.  Redo.plain() in kernel/store/walk.py has the rules, and takes all others; for
   the ends of the queues alone these two make no difference. */

#include "records.h"

/* The queue of the last record, because the next one is nearly always of the same: its topic as it
   stands in the data, its tail (borrowed), what the tail has, and where its next record is put. */
typedef struct {
    const uint8_t *topic;
    int32_t id;
    PyObject *tail, *entries, *prefix;
    long long next, wait_queue;
} Queue;

/* A whole number that an object has; -1 with an error set. */
static long long number_in(PyObject *object, const char *name) {
    PyObject *found = PyObject_GetAttrString(object, name);
    long long number = found == NULL ? -1 : PyLong_AsLongLong(found);
    Py_XDECREF(found);
    return number;
}

/* Let its tail know what it has got; false with an error set. */
static int leave(Queue *queue) {
    PyObject *kind, *error, *trace, *next;
    int is_done = 1;
    if (queue->tail != NULL) {
        PyErr_Fetch(&kind, &error, &trace);
        next = PyLong_FromLongLong(queue->next);
        is_done = next != NULL && PyObject_SetAttrString(queue->tail, "next", next) == 0;
        if (is_done) PyErr_Restore(kind, error, trace);
        else Py_XDECREF(kind), Py_XDECREF(error), Py_XDECREF(trace);
        Py_XDECREF(next);
    }
    Py_CLEAR(queue->entries);
    Py_CLEAR(queue->prefix);
    queue->tail = NULL;
    return is_done;
}

/* Go to a record's queue; 0 if none is known, -1 with an error set. */
static int go_to(Queue *queue, PyObject *known, const uint8_t *topic, int32_t id) {
    if (queue->tail != NULL && queue->id == id && memcmp(queue->topic, topic, *topic + 1) == 0) return 1;
    if (!leave(queue)) return -1;
    PyObject *key = Py_BuildValue("y#i", (const char *)topic, (Py_ssize_t)*topic + 1, id);
    PyObject *tail = key == NULL ? NULL : PyDict_GetItemWithError(known, key);
    Py_XDECREF(key);
    if (tail == NULL) return PyErr_Occurred() ? -1 : 0;
    long long next = number_in(tail, "next"), wait_queue = number_in(tail, "wait_queue");
    PyObject *entries = PyObject_GetAttrString(tail, "entries");
    PyObject *prefix = PyObject_GetAttrString(tail, "prefix");
    *queue = (Queue){topic, id, NULL, entries, prefix, next, wait_queue};
    if (PyErr_Occurred() || !PyByteArray_Check(entries)) return -1;
    queue->tail = tail;
    return 1;
}

/* Add an entry to the queue, and a record's keys to the list, if there is one; false with an error set. */
static int enter(
    Queue *queue, const uint8_t *entry, PyObject *keyed, Text pairs, long long place,
    long long stored_ms) {
    Py_ssize_t size = PyByteArray_GET_SIZE(queue->entries);
    if (PyByteArray_Resize(queue->entries, size + ENTRY_BYTES) < 0) return 0;
    memcpy(PyByteArray_AS_STRING(queue->entries) + size, entry, ENTRY_BYTES);
    queue->next++;
    if (keyed == Py_None) return 1;
    PyObject *row =
        Py_BuildValue("Oy#LL", queue->prefix, pairs.at, pairs.size, place, stored_ms);
    int is_done = row != NULL && PyList_Append(keyed, row) == 0;
    Py_XDECREF(row);
    return is_done;
}

/* Take the record that begins there; its length, 0 if it is not for this loop, -1 with an error. */
static int64_t take(
    Queue *queue, Text data, int64_t at, int64_t base, PyObject *known, PyObject *keyed,
    int64_t *newest_ms) {
    const uint8_t *head = data.at + at, *body = head + HEAD_BYTES;
    if (at < 0 || data.size - at < HEAD_BYTES + LENGTHS_BYTES) return 0;
    int64_t size = (int32_t)get32(head + SIZE_AT), body_bytes = (int32_t)get32(head + BODY_SIZE_AT);
    uint64_t place = (uint64_t)base + (uint64_t)at;
    if (get32(head + MAGIC_AT) != MAGIC || get64(head + PHYSICAL_OFFSET_AT) != place ||
        get32(head + SYS_FLAG_AT) & ODD_FLAGS ||
        (keyed != Py_None && get64(head + PREPARED_TRANSACTION_OFFSET_AT)) ||
        size > data.size - at || body_bytes < 0 || body_bytes > size - HEAD_BYTES - LENGTHS_BYTES)
        return 0;
    const uint8_t *topic = body + body_bytes, *end = head + size, *pairs = topic + 1 + *topic + 2;
    uint32_t crc, code = 0;
    if (pairs > end || (pairs[-2] << 8 | pairs[-1]) != end - pairs || memchr(pairs, 0, end - pairs))
        return 0;
    int is_known = go_to(queue, known, topic, (int32_t)get32(head + QUEUE_ID_AT));
    if (is_known <= 0) return is_known;
    if (!body_crc(&crc, body, body_bytes)) return -1;
    Properties found = {0};
    find_properties(&found, pairs, end - pairs);
    if ((keyed != Py_None && queue->wait_queue) ||
        (uint64_t)queue->next != get64(head + QUEUE_OFFSET_AT) ||
        crc != get32(head + BODY_CRC_AT) || !hash_text(&code, found.tags.at, found.tags.size))
        return 0;
    uint8_t entry[ENTRY_BYTES];
    put64(entry, place);
    put32(entry + 8, (uint32_t)size);
    put64(entry + 12, (uint64_t)(int64_t)(int32_t)code);
    int64_t stored_ms = (int64_t)get64(head + STORE_TIMESTAMP_AT);
    Text own = {pairs, end - pairs};
    if (!enter(queue, entry, keyed, own, (long long)place, stored_ms)) return -1;
    if (stored_ms > *newest_ms) *newest_ms = stored_ms;
    return size;
}

PyObject *plain_run(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data;
    long long at, base, upto;
    PyObject *known, *keyed;
    if (!PyArg_ParseTuple(
            args, "y*LLLO!O", &data, &at, &base, &upto, &PyDict_Type, &known, &keyed))
        return NULL;
    Text text = {data.buf, upto < data.len ? upto : data.len};
    int64_t newest_ms = 0, size = -1;
    Py_ssize_t count = 0;
    Queue queue = {0};
    if (keyed != Py_None && !PyList_Check(keyed)) PyErr_BadArgument();
    else
        for (; (size = take(&queue, text, at, base, known, keyed, &newest_ms)) > 0; count++) at += size;
    if (!leave(&queue)) size = -1;
    PyBuffer_Release(&data);
    return size < 0 ? NULL : Py_BuildValue("LLn", at, (long long)newest_ms, count);
}

PyObject *whole_length(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer data;
    long long base;
    if (!PyArg_ParseTuple(args, "y*L", &data, &base)) return NULL;
    int64_t at = 0;
    while (data.len - at >= HEAD_BYTES + LENGTHS_BYTES) {
        const uint8_t *head = (const uint8_t *)data.buf + at;
        int64_t size = (int32_t)get32(head + SIZE_AT);
        if (size < HEAD_BYTES + LENGTHS_BYTES || size > data.len - at ||
            get32(head + MAGIC_AT) != MAGIC ||
            get64(head + PHYSICAL_OFFSET_AT) != (uint64_t)base + (uint64_t)at)
            break;
        at += size;
    }
    PyBuffer_Release(&data);
    return PyLong_FromLongLong(at);
}
