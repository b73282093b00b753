/* Records behind the entries of a queue: which reads of the log bring them, and the look at each
   before a pull hands it out, which is read_head() and has_sound_body() of record.py.

   It says no to whatever those have to decide: IPv6 hosts, rollbacks, records without an entry in
   their queue, topics that are not of ASCII, and messages that may have expired. */

#include "records.h"

enum { TRANSACTION_TYPE = 0x0C }; /* a rollback has both bits */

static int is_topic(const uint8_t *at, Py_ssize_t size) {
    uint32_t hash = 0;
    return size > 0 && *at != '.' && hash_text(&hash, at, size) &&
           memchr(at, 0, size) == NULL && memchr(at, '/', size) == NULL;
}

static int may_expire(const uint8_t *at, const uint8_t *end) {
    static const char name[] = "XPIRES_AT_MS\1"; /* with the rarest of its letters first */
    for (; (at = memchr(at, 'X', end - at)) != NULL; at++)
        if (end - at >= (Py_ssize_t)sizeof(name) && memcmp(at, name, sizeof(name) - 1) == 0) return 1;
    return 0;
}

/* Do these bytes hold this very record, with a body whose CRC fits?  -1 with an error set. */
static int is_whole(const uint8_t *head, int64_t size, int64_t offset) {
    int64_t body_bytes = (int32_t)get32(head + BODY_SIZE_AT);
    uint32_t flags = get32(head + SYS_FLAG_AT), crc;
    if ((int32_t)get32(head + SIZE_AT) != size || get32(head + MAGIC_AT) != MAGIC ||
        (int64_t)get64(head + PHYSICAL_OFFSET_AT) != offset || head[QUEUE_ID_AT] & 128 ||
        flags & V6_FLAGS || (flags & TRANSACTION_TYPE) == TRANSACTION_TYPE || body_bytes < 0 ||
        body_bytes > size - HEAD_BYTES - LENGTHS_BYTES)
        return 0;
    const uint8_t *body_end = head + HEAD_BYTES + body_bytes, *end = head + size;
    const uint8_t *topic_end = body_end + 1 + *body_end;
    if (topic_end + 2 > end || topic_end + 2 + (topic_end[0] << 8 | topic_end[1]) != end ||
        !is_topic(body_end + 1, *body_end) || may_expire(topic_end + 2, end))
        return 0;
    if (!body_crc(&crc, head + HEAD_BYTES, body_bytes)) return -1;
    return crc == get32(head + BODY_CRC_AT);
}

/* A read of the log: where it begins and ends, and how many entries lie there. */
static int add_read(PyObject *reads, int64_t begin, int64_t end, Py_ssize_t count) {
    PyObject *read = Py_BuildValue("LLn", (long long)begin, (long long)end, count);
    int is_added = read != NULL && PyList_Append(reads, read) == 0;
    Py_XDECREF(read);
    return is_added;
}

PyObject *log_reads(PyObject *self, PyObject *args) {
    (void)self;
    const char *entries;
    Py_ssize_t size, count_max;
    long long end_max, code_max, bytes_max, gap_max, read_max;
    if (!PyArg_ParseTuple(
            args, "y#LLnLLL", &entries, &size, &end_max, &code_max, &count_max, &bytes_max,
            &gap_max, &read_max))
        return NULL;
    Py_ssize_t count = size / ENTRY_BYTES, first = 0, i = 0;
    int64_t begin = 0, end = 0, total = 0;
    PyObject *reads = PyList_New(0);
    for (; reads != NULL && i < count && i < count_max; i++) {
        const uint8_t *entry = (const uint8_t *)entries + i * ENTRY_BYTES;
        int64_t offset = (int64_t)get64(entry), bytes = (int32_t)get32(entry + 8);
        if (offset < 0 || bytes <= 0 || offset > INT64_MAX - bytes) {
            Py_DECREF(reads);
            Py_RETURN_NONE;
        }
        total += bytes;
        if (offset + bytes > end_max || (int64_t)get64(entry + 12) > code_max ||
            (i > 0 && total > bytes_max))
            break;
        if (i > first && begin <= offset && offset - end <= gap_max &&
            offset + bytes - begin <= read_max) {
            if (offset + bytes > end) end = offset + bytes;
            continue;
        }
        if (i > first && !add_read(reads, begin, end, i - first)) Py_CLEAR(reads);
        first = i, begin = offset, end = offset + bytes;
    }
    if (reads != NULL && i > first && !add_read(reads, begin, end, i - first)) Py_CLEAR(reads);
    return reads;
}

/* The length of all records, if each is an ordinary one; 0 if not, -1 with an error set.
   is_joined: do they lie one behind the other, from the first byte on? */
static int64_t whole_bytes(
    Text data, int64_t base, const uint8_t *entries, Py_ssize_t count, int *is_joined) {
    int64_t total = 0;
    *is_joined = 1;
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t offset = (int64_t)get64(entries + i * ENTRY_BYTES);
        int64_t size = (int32_t)get32(entries + i * ENTRY_BYTES + 8);
        int64_t at = (int64_t)((uint64_t)offset - (uint64_t)base);
        if (at < 0 || size < HEAD_BYTES + LENGTHS_BYTES || size > data.size ||
            at > data.size - size)
            return 0;
        int found = is_whole(data.at + at, size, offset);
        if (found <= 0) return found;
        *is_joined &= at == total;
        total += size;
    }
    return total;
}

PyObject *whole_records(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *bytes;
    long long base;
    const char *buffer;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "SLy#", &bytes, &base, &buffer, &size)) return NULL;
    Text data = {(const uint8_t *)PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)};
    const uint8_t *entries = (const uint8_t *)buffer;
    Py_ssize_t count = size / ENTRY_BYTES;
    int is_joined;
    int64_t total = whole_bytes(data, base, entries, count, &is_joined);
    if (total < 0) return NULL;
    if (total == 0) Py_RETURN_NONE;
    if (is_joined && total == data.size) return Py_NewRef(bytes);
    PyObject *result = PyBytes_FromStringAndSize(NULL, total);
    if (result == NULL) return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(result);
    for (Py_ssize_t i = 0; i < count; i++) {
        int64_t record_bytes = (int32_t)get32(entries + i * ENTRY_BYTES + 8);
        memcpy(to, data.at + (get64(entries + i * ENTRY_BYTES) - (uint64_t)base), record_bytes);
        to += record_bytes;
    }
    return result;
}
