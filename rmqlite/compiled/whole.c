/* The look at records before they are handed out: read_head() and has_sound_body() of record.py.

   It says no to whatever those have to decide: IPv6 hosts, rollbacks, records without an entry in
   their queue, and topics that are not of ASCII. */

#include "records.h"

enum { TRANSACTION_TYPE = 0x0C }; /* a rollback has both bits */

static int is_topic(const uint8_t *at, Py_ssize_t size) {
    uint32_t hash = 0;
    return size > 0 && *at != '.' && hash_text(&hash, at, size) &&
           memchr(at, 0, size) == NULL && memchr(at, '/', size) == NULL;
}

/* Do these bytes hold this very record, with a body whose CRC fits?  -1 with an error set. */
static int is_whole(const uint8_t *head, int64_t size, int64_t offset) {
    int64_t body_bytes = (int32_t)get32(head + BODY_BYTES_AT);
    uint32_t flags = get32(head + SYS_FLAG_AT), crc;
    if ((int32_t)get32(head + SIZE_AT) != size || get32(head + MAGIC_AT) != MAGIC ||
        (int64_t)get64(head + PHYSICAL_OFFSET_AT) != offset || head[QUEUE_ID_AT] & 128 ||
        flags & V6_FLAGS || (flags & TRANSACTION_TYPE) == TRANSACTION_TYPE || body_bytes < 0 ||
        body_bytes > size - HEAD_BYTES - LENGTHS_BYTES)
        return 0;
    const uint8_t *body_end = head + HEAD_BYTES + body_bytes, *end = head + size;
    const uint8_t *topic_end = body_end + 1 + *body_end;
    if (topic_end + 2 > end || topic_end + 2 + (topic_end[0] << 8 | topic_end[1]) != end ||
        !is_topic(body_end + 1, *body_end))
        return 0;
    if (!body_crc(&crc, head + HEAD_BYTES, body_bytes)) return -1;
    return crc == get32(head + CRC_AT);
}

/* The physical offset and the size of an entry; false with an error set. */
static int read_entry(PyObject *entry, long long *offset, long long *size) {
    if (!PyTuple_Check(entry) || PyTuple_GET_SIZE(entry) < 2) {
        PyErr_SetString(PyExc_TypeError, "entries: tuples of a physical offset and a size");
        return 0;
    }
    *offset = PyLong_AsLongLong(PyTuple_GET_ITEM(entry, 0));
    *size = PyLong_AsLongLong(PyTuple_GET_ITEM(entry, 1));
    return !PyErr_Occurred();
}

PyObject *whole_records(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *bytes, *sequence;
    long long base, offset = 0, size = 0;
    if (!PyArg_ParseTuple(args, "SLO", &bytes, &base, &sequence)) return NULL;
    PyObject *entries = PySequence_Fast(sequence, "entries: a sequence");
    if (entries == NULL) return NULL;
    const uint8_t *data = (const uint8_t *)PyBytes_AS_STRING(bytes);
    int64_t end = PyBytes_GET_SIZE(bytes);
    Py_ssize_t count = PySequence_Fast_GET_SIZE(entries);
    PyObject *result = PyBytes_FromStringAndSize(NULL, count);
    for (Py_ssize_t i = 0; result != NULL && i < count; i++) {
        int found = read_entry(PySequence_Fast_GET_ITEM(entries, i), &offset, &size) - 1;
        int64_t at = (int64_t)((uint64_t)offset - (uint64_t)base);
        if (found == 0 && at >= 0 && size >= HEAD_BYTES + LENGTHS_BYTES && size <= end &&
            at <= end - size)
            found = is_whole(data + at, size, offset);
        if (found < 0) Py_CLEAR(result);
        else PyBytes_AS_STRING(result)[i] = (char)found;
    }
    Py_DECREF(entries);
    return result;
}
