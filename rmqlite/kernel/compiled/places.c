/* Places: writes into packed records where they are, and makes the entries of their queues. */

#include "records.h"

typedef struct {
    Py_buffer data, rows, keys;
    Py_ssize_t first_row, first_byte;
    long long begin, end_max, timestamp_ms;
    PyObject *queues;
} Placing;

typedef struct {
    int32_t queue_id;
    long long queue_offset, due_ms; /* EACH_ITS_OWN of encoding.py is below 0 */
    Py_ssize_t count;
    uint8_t *entries; /* of a bytes object; NULL until it is made */
} Queue;

/* How many rows from the first on end at or before end_max; -1 if they do not fit the data. */
static Py_ssize_t rows_that_fit(const Placing *placing, Queue *queues, Py_ssize_t queue_count) {
    const Row *rows = placing->rows.buf;
    Py_ssize_t all = placing->rows.len / (Py_ssize_t)sizeof(Row), row = placing->first_row;
    Py_ssize_t byte = placing->first_byte;
    long long position = placing->begin;
    if (row < 0 || byte < 0 || byte > placing->data.len) return -1;
    for (; row < all; row++) {
        Py_ssize_t size = rows[row].size;
        if (size < HEAD_BYTES || size > placing->data.len - byte || rows[row].queue >= queue_count)
            return -1;
        position += size;
        if (position > placing->end_max) break;
        byte += size;
        queues[rows[row].queue].count++;
    }
    return row - placing->first_row;
}

/* The entries of each queue, as a list of bytes still to be filled; NULL with an error set. */
static PyObject *new_entries(Queue *queues, Py_ssize_t queue_count) {
    PyObject *entries = PyList_New(queue_count);
    for (Py_ssize_t i = 0; entries != NULL && i < queue_count; i++) {
        PyObject *bytes = PyBytes_FromStringAndSize(NULL, queues[i].count * ENTRY_BYTES);
        if (bytes == NULL) {
            Py_CLEAR(entries);
            break;
        }
        queues[i].entries = (uint8_t *)PyBytes_AS_STRING(bytes);
        PyList_SET_ITEM(entries, i, bytes);
    }
    return entries;
}

/* Write the places into count rows; (positions, bytes), NULL with an error set. */
static PyObject *place_rows(
    const Placing *placing, Queue *queues, Py_ssize_t count, Py_ssize_t *bytes) {
    const Row *row = (const Row *)placing->rows.buf + placing->first_row;
    uint8_t *first = (uint8_t *)placing->data.buf + placing->first_byte, *at = first;
    PyObject *positions = PyList_New(count);
    for (Py_ssize_t i = 0; positions != NULL && i < count; i++, row++) {
        Queue *queue = queues + row->queue;
        long long position = placing->begin + (at - first);
        put32(at + QUEUE_ID_AT, queue->queue_id);
        put64(at + QUEUE_OFFSET_AT, queue->queue_offset++);
        put64(at + PHYSICAL_OFFSET_AT, position);
        int more = get32(at + SYS_FLAG_AT) & BORN_V6_FLAG ? V6_MORE_BYTES : 0;
        put64(at + STORE_TIMESTAMP_AT + more, placing->timestamp_ms);
        put64(queue->entries, position);
        put32(queue->entries + 8, row->size);
        long long code = queue->due_ms > 0 ? queue->due_ms : row->code;
        put64(queue->entries + 12, queue->due_ms < 0 && !code ? placing->timestamp_ms : code);
        queue->entries += ENTRY_BYTES;
        PyObject *number = PyLong_FromLongLong(position);
        if (number == NULL) Py_CLEAR(positions);
        else PyList_SET_ITEM(positions, i, number);
        at += row->size;
    }
    *bytes = at - first;
    return positions;
}

/* (hashes, places) of the keys of these rows; NULL with an error set. */
static PyObject *placed_keys(const Placing *placing, Py_ssize_t count, PyObject *positions) {
    const Key *keys = placing->keys.buf;
    Py_ssize_t all = placing->keys.len / (Py_ssize_t)sizeof(Key);
    PyObject *hashes = PyList_New(0), *places = PyList_New(0), *result = NULL;
    if (hashes == NULL || places == NULL) goto done;
    for (Py_ssize_t i = 0; i < all; i++) {
        Py_ssize_t row = (Py_ssize_t)keys[i].row - placing->first_row;
        if (row < 0 || row >= count) continue;
        PyObject *hash = PyLong_FromUnsignedLong(keys[i].hash);
        int is_added = hash != NULL && PyList_Append(hashes, hash) == 0 &&
                       PyList_Append(places, PyList_GET_ITEM(positions, row)) == 0;
        Py_XDECREF(hash);
        if (!is_added) goto done;
    }
    result = PyTuple_Pack(2, hashes, places);
done:
    Py_XDECREF(hashes);
    Py_XDECREF(places);
    return result;
}

static PyObject *placed(const Placing *placing, Queue *queues, Py_ssize_t queue_count) {
    for (Py_ssize_t i = 0; i < queue_count; i++) {
        PyObject *pair = PyList_GET_ITEM(placing->queues, i);
        if (!PyArg_ParseTuple(
                pair, "iLL", &queues[i].queue_id, &queues[i].queue_offset, &queues[i].due_ms))
            return NULL;
    }
    Py_ssize_t count = rows_that_fit(placing, queues, queue_count), bytes = 0;
    if (count < 0) {
        PyErr_SetString(PyExc_ValueError, "the rows do not fit the data");
        return NULL;
    }
    PyObject *entries = new_entries(queues, queue_count), *result = NULL;
    PyObject *positions = entries ? place_rows(placing, queues, count, &bytes) : NULL;
    PyObject *keys = positions ? placed_keys(placing, count, positions) : NULL;
    if (keys != NULL) {
        result = Py_BuildValue(
            "nOOOO", bytes, positions, entries, PyTuple_GET_ITEM(keys, 0),
            PyTuple_GET_ITEM(keys, 1));
    }
    Py_XDECREF(keys);
    Py_XDECREF(positions);
    Py_XDECREF(entries);
    return result;
}

PyObject *place(PyObject *self, PyObject *args) {
    (void)self;
    Placing placing;
    if (!PyArg_ParseTuple(
            args, "w*y*y*nnLLLO!", &placing.data, &placing.rows, &placing.keys, &placing.first_row,
            &placing.first_byte, &placing.begin, &placing.end_max, &placing.timestamp_ms,
            &PyList_Type, &placing.queues))
        return NULL;
    Py_ssize_t queue_count = PyList_GET_SIZE(placing.queues);
    Queue *queues = PyMem_Calloc(queue_count, sizeof(Queue));
    PyObject *result = queues ? placed(&placing, queues, queue_count) : PyErr_NoMemory();
    PyMem_Free(queues);
    PyBuffer_Release(&placing.data);
    PyBuffer_Release(&placing.rows);
    PyBuffer_Release(&placing.keys);
    return result;
}
