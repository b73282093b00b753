/* Keys on their way into a file of the index; kernel/store/index_file.py has its layout. */

#include "records.h"

enum { SLOTS_AT = 40, SLOT_BYTES = 4, INDEX_ENTRY_BYTES = 20, PAGE_BYTES = 4096 };

typedef struct {
    Py_buffer image;
    PyObject *dirty, *touch;
    uint32_t slots, number;
    long long begin_ms;
    Py_ssize_t used;
} Entering;

/* False with an error set. */
static int note_page(const Entering *entering, Py_ssize_t page) {
    PyObject *number = PyLong_FromSsize_t(page);
    int is_noted = number == NULL ? -1 : PySet_Contains(entering->dirty, number);
    if (is_noted == 0) {
        PyObject *none = PyObject_CallOneArg(entering->touch, number);
        is_noted = none == NULL ? -1 : 1;
        Py_XDECREF(none);
    }
    Py_XDECREF(number);
    return is_noted > 0;
}

static uint32_t seconds_since(long long begin_ms, long long timestamp_ms) {
    if (timestamp_ms <= begin_ms) return 0;
    uint64_t seconds = ((uint64_t)timestamp_ms - (uint64_t)begin_ms) / 1000;
    return seconds < INT32_MAX ? (uint32_t)seconds : INT32_MAX;
}

/* Write an entry, and its number into its slot; false with an error set. */
static int enter_key(Entering *entering, uint8_t *entry, PyObject *const *key) {
    unsigned long hash = PyLong_AsUnsignedLong(key[0]);
    long long place = PyLong_AsLongLong(key[1]), timestamp_ms = PyLong_AsLongLong(key[2]);
    if (PyErr_Occurred()) return 0;
    Py_ssize_t position = SLOTS_AT + SLOT_BYTES * (Py_ssize_t)(hash % entering->slots);
    if (position + SLOT_BYTES > entering->image.len) {
        PyErr_SetString(PyExc_ValueError, "the image has no such slot");
        return 0;
    }
    if (!note_page(entering, position / PAGE_BYTES)) return 0;
    uint8_t *slot = (uint8_t *)entering->image.buf + position;
    uint32_t previous = get32(slot);
    entering->used += !previous;
    put32(slot, entering->number++);
    put32(entry, (uint32_t)hash);
    put64(entry + 4, (uint64_t)place);
    put32(entry + 12, seconds_since(entering->begin_ms, timestamp_ms));
    put32(entry + 16, previous);
    return 1;
}

PyObject *enter_keys(PyObject *self, PyObject *args) {
    (void)self;
    Entering entering = {.used = 0};
    PyObject *columns[3], *fast[3] = {NULL}, *entries = NULL, *result = NULL;
    if (!PyArg_ParseTuple(
            args, "w*OOOILIO!O", &entering.image, &columns[0], &columns[1], &columns[2],
            &entering.slots, &entering.begin_ms, &entering.number, &PySet_Type, &entering.dirty,
            &entering.touch))
        return NULL;
    int is_good = entering.slots > 0;
    for (int i = 0; i < 3; i++) {
        fast[i] = PySequence_Fast(columns[i], "hashes, places and times are sequences");
        is_good = is_good && fast[i] != NULL &&
                  PySequence_Fast_GET_SIZE(fast[i]) == PySequence_Fast_GET_SIZE(fast[0]);
    }
    Py_ssize_t count = is_good ? PySequence_Fast_GET_SIZE(fast[0]) : 0;
    if (is_good) entries = PyBytes_FromStringAndSize(NULL, count * INDEX_ENTRY_BYTES);
    else if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "hashes, places and times are as many, and slots");
    uint8_t *entry = entries == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(entries);
    is_good = entry != NULL;
    for (Py_ssize_t i = 0; is_good && i < count; i++, entry += INDEX_ENTRY_BYTES) {
        PyObject *key[3];
        for (int k = 0; k < 3; k++) key[k] = PySequence_Fast_GET_ITEM(fast[k], i);
        is_good = enter_key(&entering, entry, key);
    }
    if (is_good) result = Py_BuildValue("On", entries, entering.used);
    Py_XDECREF(entries);
    for (int i = 0; i < 3; i++) Py_XDECREF(fast[i]);
    PyBuffer_Release(&entering.image);
    return result;
}
