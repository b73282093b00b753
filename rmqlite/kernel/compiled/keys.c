/* Property strings, the keys under which the index has a record, and blocks of records.

   The rules are those of property_string.py and kernel/records/key_hashes.py. */

#include "records.h"

enum { DUE_DIGITS_MAX = 15 };

static Text *place_of(Properties *found, const uint8_t *name, Py_ssize_t size) {
#define IS(text, place) \
    if (size == sizeof(text) - 1 && memcmp(name, text, sizeof(text) - 1) == 0) return &found->place
    switch (name[0]) {
    case 'C': IS("CLUSTER", cluster); break;
    case 'D': IS("DELAY", delay); break;
    case 'E': IS("EXPIRES_AT_MS", timer); break; /* the plain form compares it with the due time */
    case 'K': IS("KEYS", keys); break;
    case 'R': IS("REAL_TOPIC", real_topic); IS("REAL_QID", real_qid); break;
    case 'T':
        IS("TAGS", tags);
        IS("TRAN_MSG", tran_msg);
        IS("TIMER_DELAY_SEC", timer_delay_s);
        IS("TIMER_DELAY_MS", timer_delay_ms);
        IS("TIMER_DELIVER_MS", timer_at_ms);
        IS("TIMER_OUT_MS", timer_out);
        IS("TIMER_EXACT", timer_exact);
        if (size > 6 && memcmp(name, "TIMER_", 6) == 0) return &found->timer;
        break;
    case 'U': IS("UNIQ_KEY", uniq_key); break;
    case 'W': IS("WAIT", wait); break;
    case '_': IS("__STARTDELIVERTIME", timer); break;
    }
#undef IS
    return NULL;
}

void find_properties(Properties *found, const uint8_t *at, Py_ssize_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        const uint8_t *pair_end = memchr(at, 2, end - at);
        if (pair_end == NULL) pair_end = end;
        const uint8_t *name_end = memchr(at, 1, pair_end - at);
        if (name_end != NULL && name_end > at && name_end + 1 < pair_end) {
            Text *place = place_of(found, at, name_end - at);
            if (place != NULL) *place = (Text){name_end + 1, pair_end - name_end - 1};
        }
        at = pair_end + 1;
    }
}

/* A number of 1 to 15 digits; 0 for any other text. */
static int64_t number_of(Text digits) {
    int64_t number = 0;
    if (digits.size > DUE_DIGITS_MAX) return 0;
    for (Py_ssize_t i = 0; i < digits.size; i++) {
        if (digits.at[i] < '0' || digits.at[i] > '9') return 0;
        number = 10 * number + (digits.at[i] - '0');
    }
    return number;
}

int timer_due(int64_t *due_ms, const Properties *found) {
    *due_ms = number_of(found->timer_out);
    return found->timer_exact.size && *due_ms > 0;
}

int64_t asked_due(const Properties *found, long long now_ms, long long delay_ms_max) {
    int64_t due_ms = 0;
    if (found->timer.size || found->timer_out.size || found->timer_exact.size) return 0;
    if (found->timer_delay_s.size) due_ms = now_ms + 1000 * number_of(found->timer_delay_s);
    else if (found->timer_delay_ms.size) due_ms = now_ms + number_of(found->timer_delay_ms);
    else due_ms = number_of(found->timer_at_ms);
    return due_ms > now_ms && due_ms - now_ms <= delay_ms_max ? due_ms : 0;
}

Py_ssize_t join_due(uint8_t *string, Py_ssize_t size, int64_t due_ms) {
    return size + snprintf(
        (char *)string + size, TIMER_OUT_BYTES_MAX, "\2TIMER_OUT_MS\1%lld", (long long)due_ms);
}

int hash_text(uint32_t *hash, const uint8_t *at, Py_ssize_t size) {
    uint8_t all = 0;
    uint32_t value = *hash;
    for (Py_ssize_t i = 0; i < size; i++) {
        all |= at[i];
        value = 31 * value + at[i];
    }
    *hash = value;
    return all < 0x80;
}

/* Add a key to the index's; false with an error set if there is no memory. */
static int add_key(Keys *keys, uint32_t hash, uint32_t row) {
    if (keys->count == keys->room) {
        Py_ssize_t room = 2 * keys->room + 64;
        Key *all = PyMem_Realloc(keys->all, room * sizeof(Key));
        if (all == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        keys->all = all, keys->room = room;
    }
    if (hash & 0x80000000) hash = -hash & 0x7FFFFFFF;
    keys->all[keys->count++] = (Key){hash, row};
    return 1;
}

int add_keys(Keys *keys, const Properties *found, uint32_t prefix, uint32_t row) {
    uint32_t hash = prefix;
    if (!hash_text(&hash, found->uniq_key.at, found->uniq_key.size)) return 0;
    if (found->uniq_key.size && !add_key(keys, hash, row)) return 0;
    const uint8_t *at = found->keys.at, *end = at + found->keys.size;
    while (at < end) {
        const uint8_t *token_end = memchr(at, ' ', end - at);
        if (token_end == NULL) token_end = end;
        hash = prefix;
        if (!hash_text(&hash, at, token_end - at)) return 0;
        if (token_end > at && !add_key(keys, hash, row)) return 0;
        at = token_end + 1;
    }
    return 1;
}

/* Add a number to each of three lists; false with an error set. */
static int add_row(PyObject *const *columns, uint32_t hash, PyObject *place, PyObject *time) {
    PyObject *number = PyLong_FromUnsignedLong(hash);
    int is_added = number != NULL && PyList_Append(columns[0], number) == 0 &&
                   PyList_Append(columns[1], place) == 0 && PyList_Append(columns[2], time) == 0;
    Py_XDECREF(number);
    return is_added;
}

/* Add the keys of one record; 0 if one is not of ASCII, -1 with an error set. */
static int add_record(PyObject *const *columns, PyObject *record, Keys *keys) {
    unsigned long prefix;
    Text pairs;
    PyObject *place, *time;
    Properties found = {0};
    if (!PyArg_ParseTuple(record, "ky#OO", &prefix, &pairs.at, &pairs.size, &place, &time)) return -1;
    find_properties(&found, pairs.at, pairs.size);
    keys->count = 0;
    if (!add_keys(keys, &found, (uint32_t)prefix, 0)) return PyErr_Occurred() ? -1 : 0;
    for (Py_ssize_t i = 0; i < keys->count; i++)
        if (!add_row(columns, keys->all[i].hash, place, time)) return -1;
    return 1;
}

PyObject *hashed_keys(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *records, *columns[3] = {PyList_New(0), PyList_New(0), PyList_New(0)};
    Keys keys = {0};
    int is_done = columns[0] != NULL && columns[1] != NULL && columns[2] != NULL &&
                  PyArg_ParseTuple(args, "O!", &PyList_Type, &records) ? 1 : -1;
    for (Py_ssize_t i = 0; is_done > 0 && i < PyList_GET_SIZE(records); i++)
        is_done = add_record(columns, PyList_GET_ITEM(records, i), &keys);
    PyMem_Free(keys.all);
    PyObject *result = is_done > 0 ? PyTuple_Pack(3, columns[0], columns[1], columns[2]) : NULL;
    for (int i = 0; i < 3; i++) Py_XDECREF(columns[i]);
    return is_done == 0 ? Py_NewRef(Py_None) : result;
}

int begin_block(Block *block, Py_ssize_t count, Py_ssize_t room) {
    *block = (Block){.count = count, .data = PyByteArray_FromStringAndSize(NULL, room)};
    if (block->data == NULL) return 0;
    block->rows = PyMem_Malloc(count * sizeof(Row));
    if (block->rows != NULL) return 1;
    free_block(block);
    PyErr_NoMemory();
    return 0;
}

void free_block(Block *block) {
    PyMem_Free(block->keys.all);
    PyMem_Free(block->rows);
    Py_CLEAR(block->data);
}

PyObject *packed(Block *block) {
    if (PyByteArray_Resize(block->data, block->size) < 0) return NULL;
    const Keys *keys = &block->keys;
    return Py_BuildValue(
        "Oy#y#", block->data, (char *)block->rows, block->count * (Py_ssize_t)sizeof(Row),
        keys->count ? (char *)keys->all : "", keys->count * (Py_ssize_t)sizeof(Key));
}
