/* Deliveries: from scheduled records, as they lie in the log, to records without places. */

#include "records.h"

enum { DESTINATIONS_MAX = 64, DIGITS_MAX = 9 };

/* A number of 1 to 9 digits; -1 for any other text. */
static int32_t number_of(Text text) {
    if (text.size < 1 || text.size > DIGITS_MAX) return -1;
    int32_t number = 0;
    for (Py_ssize_t i = 0; i < text.size; i++) {
        if (text.at[i] < '0' || text.at[i] > '9') return -1;
        number = 10 * number + (text.at[i] - '0');
    }
    return number;
}

typedef struct {
    Text topic;
    int32_t queue_id;
    uint32_t prefix;
    Py_ssize_t count, body_max, size_max;
} Destination;

/* data: bytes of the log from the physical offset base on, of the present one of the reads.  Topics
   point into them all, and the caller holds the list. */
typedef struct {
    PyObject *reads;
    Py_buffer data, entries, topic;
    long long base;
    int queue_id, level;
} Slice;

/* The number of a destination, a new one if need be; -1 if there are too many, or an odd one. */
static int destination_of(Destination *all, int *count, Text topic, int32_t queue_id) {
    for (int i = 0; i < *count; i++)
        if (all[i].queue_id == queue_id && all[i].topic.size == topic.size &&
            memcmp(all[i].topic.at, topic.at, topic.size) == 0)
            return i;
    uint32_t prefix = 0;
    if (*count == DESTINATIONS_MAX || topic.size < 1 || topic.size > TOPIC_BYTES_MAX ||
        queue_id < 0 || !hash_text(&prefix, topic.at, topic.size))
        return -1;
    all[*count] = (Destination){topic, queue_id, 31 * prefix + '#', 0, 0, 0};
    return (*count)++;
}

/* Where the parts of a scheduled record are; false if it is out of the ordinary. */
typedef struct {
    const uint8_t *at, *body_end, *topic_end, *end;
    Properties found;
} Waited;

static int read_waited(Waited *waited, const Slice *slice, const uint8_t *entry) {
    uint64_t offset = get64(entry);
    int64_t at = (int64_t)(offset - (uint64_t)slice->base);
    int64_t size = (int32_t)get32(entry + 8);
    if (at < 0 || size < HEAD_BYTES + LENGTHS_BYTES || at > slice->data.len - size) return 0;
    const uint8_t *head = (const uint8_t *)slice->data.buf + at, *end = head + size;
    int64_t body_bytes = (int32_t)get32(head + BODY_SIZE_AT);
    if (get32(head + SIZE_AT) != (uint32_t)size || get32(head + MAGIC_AT) != MAGIC ||
        get64(head + PHYSICAL_OFFSET_AT) != offset ||
        get32(head + QUEUE_ID_AT) != (uint32_t)slice->queue_id ||
        get32(head + SYS_FLAG_AT) & ODD_FLAGS || body_bytes < 0 ||
        body_bytes > size - HEAD_BYTES - LENGTHS_BYTES)
        return 0;
    const uint8_t *body_end = head + HEAD_BYTES + body_bytes;
    const uint8_t *topic_end = body_end + 1 + *body_end;
    if (*body_end != slice->topic.len || topic_end + 2 > end ||
        memcmp(body_end + 1, slice->topic.buf, slice->topic.len) != 0 ||
        topic_end + 2 + (topic_end[0] << 8 | topic_end[1]) != end)
        return 0;
    *waited = (Waited){.at = head, .body_end = body_end, .topic_end = topic_end, .end = end};
    find_properties(&waited->found, topic_end + 2, end - topic_end - 2);
    /* The level of the timers is -1: their records have no DELAY. */
    return number_of(waited->found.delay) == slice->level &&
           (slice->level > 0 || waited->found.timer_out.size > 0);
}

/* Write the record that delivers a scheduled one; its length. */
static Py_ssize_t write_delivery(
    uint8_t *out, const Waited *waited, Text topic, uint64_t completes) {
    uint8_t *at = out + (waited->body_end - waited->at);
    memcpy(out, waited->at, at - out);
    *at++ = (uint8_t)topic.size;
    memcpy(at, topic.at, topic.size);
    at += topic.size;
    memcpy(at, waited->topic_end, waited->end - waited->topic_end);
    Py_ssize_t size = at + (waited->end - waited->topic_end) - out;
    put32(out + SIZE_AT, (uint32_t)size);
    put64(out + PREPARED_TRANSACTION_OFFSET_AT, completes);
    return size;
}

/* The destinations as [(topic, queue id, count, longest body, longest record)]. */
static PyObject *destinations(const Destination *all, int count) {
    PyObject *list = PyList_New(count);
    for (int i = 0; list != NULL && i < count; i++) {
        PyObject *each = Py_BuildValue(
            "s#innn", (char *)all[i].topic.at, all[i].topic.size, all[i].queue_id, all[i].count,
            all[i].body_max, all[i].size_max);
        if (each == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, each);
    }
    return list;
}

typedef struct {
    Destination all[DESTINATIONS_MAX];
    int count;
} Destinations;

/* Add the record that delivers an entry's one; false if it is out of the ordinary, or on an error. */
static int add_delivery(
    Block *block, Destinations *to, const Slice *slice, const uint8_t *entry, Py_ssize_t number) {
    Waited waited;
    if (!read_waited(&waited, slice, entry)) return 0;
    const Properties *found = &waited.found;
    int place =
        destination_of(to->all, &to->count, found->real_topic, number_of(found->real_qid));
    uint32_t tags_code = 0;
    if (place < 0 || !hash_text(&tags_code, found->tags.at, found->tags.size) ||
        !add_keys(&block->keys, found, to->all[place].prefix, (uint32_t)number))
        return 0;
    Destination *its = to->all + place;
    uint64_t completes = get64(waited.at + PHYSICAL_OFFSET_AT) + (waited.end - waited.at);
    uint8_t *out = (uint8_t *)PyByteArray_AS_STRING(block->data) + block->size;
    Py_ssize_t bytes = write_delivery(out, &waited, its->topic, completes);
    Py_ssize_t body_bytes = waited.body_end - waited.at - HEAD_BYTES;
    its->count++;
    if (its->body_max < body_bytes) its->body_max = body_bytes;
    if (its->size_max < bytes) its->size_max = bytes;
    block->rows[number] = (Row){(uint32_t)bytes, (uint32_t)place, (int32_t)tags_code};
    block->size += bytes;
    return 1;
}

/* Add the records of a read, from an entry on; how many, -1 as add_delivery() is false. */
static Py_ssize_t add_read(
    Block *block, Destinations *to, Slice *slice, PyObject *read, Py_ssize_t first) {
    Py_ssize_t count;
    if (!PyArg_ParseTuple(read, "Ly*n", &slice->base, &slice->data, &count)) return -1;
    int is_ordinary = count >= 0 && count <= block->count - first;
    const uint8_t *entry = (const uint8_t *)slice->entries.buf + first * ENTRY_BYTES;
    for (Py_ssize_t i = 0; is_ordinary && i < count; i++, entry += ENTRY_BYTES)
        is_ordinary = add_delivery(block, to, slice, entry, first + i);
    PyBuffer_Release(&slice->data);
    return is_ordinary ? count : -1;
}

static PyObject *slice_records(Slice *slice) {
    Py_ssize_t count = slice->entries.len / ENTRY_BYTES, room = 0, done = 0;
    const uint8_t *entries = slice->entries.buf;
    for (Py_ssize_t i = 0; i < count; i++) {
        int32_t bytes = (int32_t)get32(entries + i * ENTRY_BYTES + 8);
        if (bytes < 0) Py_RETURN_NONE;
        room += (Py_ssize_t)bytes + TOPIC_BYTES_MAX;
    }
    if (count < 1 || count > INT32_MAX || room > INT32_MAX) Py_RETURN_NONE;
    Block block;
    if (!begin_block(&block, count, room)) return NULL;
    Destinations to;
    to.count = 0;
    for (Py_ssize_t i = 0; done >= 0 && i < PyList_GET_SIZE(slice->reads); i++) {
        Py_ssize_t added = add_read(&block, &to, slice, PyList_GET_ITEM(slice->reads, i), done);
        done = added < 0 ? -1 : done + added;
    }
    PyObject *result = NULL;
    if (done == count) result = Py_BuildValue("NN", packed(&block), destinations(to.all, to.count));
    else if (!PyErr_Occurred()) result = Py_NewRef(Py_None);
    free_block(&block);
    return result;
}

PyObject *pack_deliveries(PyObject *self, PyObject *args) {
    (void)self;
    Slice slice;
    if (!PyArg_ParseTuple(
            args, "O!y*y*ii", &PyList_Type, &slice.reads, &slice.entries, &slice.topic,
            &slice.queue_id, &slice.level))
        return NULL;
    PyObject *result = slice_records(&slice);
    PyBuffer_Release(&slice.entries);
    PyBuffer_Release(&slice.topic);
    return result;
}
