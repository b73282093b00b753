/* Answers of rmqlite.v1 in a client: from the bytes of a pull to StoredMessages, and from those of
   a send to SendResults.

   proto/ has the numbers of the fields, which these have in the same order; protobuf.h has the
   wire format. */

#include "protobuf.h"

enum {
    TOPIC = 1,
    BODY = 6,
    PROPERTIES = 7,
    BORN_HOST = 11,
    STORE_HOST = 13,
    FIELDS = 15,
    NAMES_MAX = 8,
};
static const unsigned CONTENTS = 1 << TOPIC | 1 << BODY | 1 << BORN_HOST | 1 << STORE_HOST;
static const unsigned INT32S = 1 << 2 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 14;

/* Texts of the message before: most of them are the next one's, too. */
typedef struct {
    PyObject *texts[FIELDS + 1], *names[NAMES_MAX];
} Known;

static void forget(Known *known) {
    for (int i = 0; i <= FIELDS; i++) Py_XDECREF(known->texts[i]);
    for (int i = 0; i < NAMES_MAX; i++) Py_XDECREF(known->names[i]);
}

/* A text as a Python object, the known one if it is the same; NULL with an error set. */
static PyObject *text_of(Text text, PyObject **known) {
    if (known != NULL && *known != NULL) {
        Py_ssize_t size;
        const char *at = PyUnicode_AsUTF8AndSize(*known, &size);
        if (at == NULL) return NULL;
        if (size == text.size && memcmp(at, text.at, size) == 0) return Py_NewRef(*known);
    }
    PyObject *new = PyUnicode_DecodeUTF8((const char *)text.at, text.size, NULL);
    if (new != NULL && known != NULL) Py_XSETREF(*known, Py_NewRef(new));
    return new;
}

/* All that read…() and new…() return is false for what is no such thing, or with an error set. */
static int read_property(Wire *wire, Known *known, PyObject *properties) {
    Text content, parts[3] = {{0}, {wire->at, 0}, {wire->at, 0}};
    if (!read_content(wire, &content)) return 0;
    Wire inner = {content.at, content.at + content.size};
    while (inner.at < inner.end) {
        uint8_t tag = *inner.at++;
        if (tag != TAG(1, CONTENT) && tag != TAG(2, CONTENT)) return 0;
        if (!read_content(&inner, &parts[tag >> 3])) return 0;
    }
    Py_ssize_t number = PyDict_GET_SIZE(properties);
    PyObject *name = text_of(parts[1], number < NAMES_MAX ? &known->names[number] : NULL);
    PyObject *value = name == NULL ? NULL : text_of(parts[2], NULL);
    int is_read = value != NULL && PyDict_SetItem(properties, name, value) == 0;
    Py_XDECREF(name);
    Py_XDECREF(value);
    return is_read;
}

typedef struct {
    int64_t numbers[FIELDS + 1];
    Text contents[FIELDS + 1];
    PyObject *properties;
} Pulled;

static int read_pulled(Wire wire, Known *known, Pulled *pulled) {
    while (wire.at < wire.end) {
        uint8_t tag = *wire.at++;
        int field = tag >> 3, is_content = (tag & 7) == CONTENT, is_read;
        if (field < 1 || field > FIELDS || !(is_content || (tag & 7) == VARINT)) return 0;
        if (is_content != (field == PROPERTIES || (CONTENTS >> field & 1))) return 0;
        int64_t *number = &pulled->numbers[field];
        if (field == PROPERTIES) is_read = read_property(&wire, known, pulled->properties);
        else if (is_content) is_read = read_content(&wire, &pulled->contents[field]);
        else is_read = read_int64(&wire, number);
        if (!is_read || ((INT32S >> field & 1) && *number != (int32_t)*number)) return 0;
    }
    return 1;
}

static PyObject *new_field(const Pulled *pulled, int field, Known *known) {
    Text content = pulled->contents[field];
    if (content.at == NULL) content.at = (const uint8_t *)"";
    if (field == PROPERTIES) return Py_NewRef(pulled->properties);
    if (field == BODY) return PyBytes_FromStringAndSize((const char *)content.at, content.size);
    if (CONTENTS >> field & 1) return text_of(content, &known->texts[field]);
    return PyLong_FromLongLong(pulled->numbers[field]);
}

/* A message whose slots are filled: its class is frozen, and __init__ takes twice as long as all
   of this. */
static PyObject *new_message(Wire wire, Known *known, PyTypeObject *type, PyObject *slots) {
    Pulled pulled = {.properties = PyDict_New()};
    PyObject *message = NULL;
    if (pulled.properties != NULL && read_pulled(wire, known, &pulled))
        message = type->tp_alloc(type, 0);
    for (int field = 1; message != NULL && field <= FIELDS; field++) {
        PyObject *slot = PyTuple_GET_ITEM(slots, field - 1);
        PyObject *value = new_field(&pulled, field, known);
        if (value == NULL || Py_TYPE(slot)->tp_descr_set(slot, message, value) < 0)
            Py_CLEAR(message);
        Py_XDECREF(value);
    }
    Py_XDECREF(pulled.properties);
    return message;
}

static int read_answer(Wire wire, PyTypeObject *type, PyObject *slots, int64_t *numbers,
                       PyObject *messages) {
    Known known = {0};
    int is_read = 1;
    while (is_read && wire.at < wire.end) {
        uint8_t tag = *wire.at++;
        Text content;
        if (tag == TAG(5, CONTENT) && read_content(&wire, &content)) {
            Wire inner = {content.at, content.at + content.size};
            PyObject *message = new_message(inner, &known, type, slots);
            is_read = message != NULL && PyList_Append(messages, message) == 0;
            Py_XDECREF(message);
        } else {
            is_read = tag >= TAG(1, VARINT) && tag <= TAG(4, VARINT) && !(tag & 7) &&
                      read_int64(&wire, &numbers[tag >> 3]);
        }
    }
    forget(&known);
    return is_read;
}

static int are_slots(PyObject *slots) {
    if (PyTuple_GET_SIZE(slots) != FIELDS) return 0;
    for (int i = 0; i < FIELDS; i++)
        if (Py_TYPE(PyTuple_GET_ITEM(slots, i))->tp_descr_set == NULL) return 0;
    return 1;
}

PyObject *read_pull(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *answer, *type, *slots;
    if (!PyArg_ParseTuple(args, "SO!O!", &answer, &PyType_Type, &type, &PyTuple_Type, &slots))
        return NULL;
    if (!are_slots(slots)) {
        PyErr_SetString(PyExc_TypeError, "slots: the slots of a StoredMessage in their order");
        return NULL;
    }
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(answer);
    Wire wire = {at, at + PyBytes_GET_SIZE(answer)};
    int64_t numbers[5] = {0};
    PyObject *messages = PyList_New(0), *result = NULL;
    if (messages == NULL) return NULL;
    if (read_answer(wire, (PyTypeObject *)type, slots, numbers, messages))
        result = Py_BuildValue(
            "LLLLN", (long long)numbers[1], (long long)numbers[2], (long long)numbers[3],
            (long long)numbers[4], PyList_AsTuple(messages));
    else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        result = Py_NewRef(Py_None);
    }
    Py_DECREF(messages);
    return result;
}

/* ---- sends */

enum { QUEUE_IDS = 2, QUEUE_OFFSETS, IDS, POSITIONS, DELIVER_AT, HOST, SENT_FIELDS = HOST };

/* The next field of a number; false at the end, or for what is no such answer. */
static int next_content(Wire *wire, int field, Text *content) {
    while (wire->at < wire->end) {
        int found = *wire->at >> 3, type = *wire->at & 7;
        wire->at++;
        if (type != CONTENT || found < 1 || found > SENT_FIELDS || !read_content(wire, content))
            return 0;
        if (found == field) return 1;
    }
    return 0;
}

/* An answer in columns: all bytes where texts are, else the numbers of the packed field. */
typedef struct {
    Wire columns[SENT_FIELDS + 1];
    Py_ssize_t counts[SENT_FIELDS + 1];
    PyObject *host;
} Columns;

static int is_number(int field) {
    return field != TOPIC && field != IDS && field != HOST;
}

static int read_columns(Wire wire, Columns *columns) {
    Wire all = wire;
    while (wire.at < wire.end) {
        int field = *wire.at >> 3;
        Text content;
        if (field > SENT_FIELDS || !next_content(&wire, field, &content)) return 0;
        int is_text = field == TOPIC || field == IDS;
        if (columns->counts[field]++ && !is_text) return 0;
        columns->columns[field] = is_text ? all : (Wire){content.at, content.at + content.size};
    }
    return columns->counts[TOPIC] == columns->counts[IDS];
}

static PyObject *new_number(Wire *column, int field) {
    int64_t number;
    if (!read_int64(column, &number)) return NULL;
    if (field == QUEUE_IDS && number != (int32_t)number) return NULL;
    return PyLong_FromLongLong(number);
}

/* The next result; NULL, perhaps without an error, if it is none. */
static PyObject *new_result(Columns *columns, PyObject **known, PyTypeObject *type) {
    PyObject *result = type->tp_alloc(type, SENT_FIELDS);
    for (int field = 1; result != NULL && field <= SENT_FIELDS; field++) {
        Wire *column = &columns->columns[field];
        Text text;
        PyObject *value = NULL;
        if (field == HOST) value = Py_NewRef(columns->host);
        else if (is_number(field)) value = new_number(column, field);
        else if (next_content(column, field, &text))
            value = text_of(text, field == TOPIC ? known : NULL);
        if (value == NULL) Py_CLEAR(result);
        else PyTuple_SET_ITEM(result, field - 1, value);
    }
    return result;
}

static PyObject *new_results(Columns *columns, PyTypeObject *type) {
    Py_ssize_t count = columns->counts[TOPIC];
    PyObject *results = PyTuple_New(count), *known = NULL;
    for (Py_ssize_t i = 0; results != NULL && i < count; i++) {
        PyObject *result = new_result(columns, &known, type);
        if (result == NULL) Py_CLEAR(results);
        else PyTuple_SET_ITEM(results, i, result);
    }
    for (int field = 1; field <= SENT_FIELDS && results != NULL; field++)
        if (is_number(field) && columns->columns[field].at < columns->columns[field].end)
            Py_CLEAR(results);
    Py_XDECREF(known);
    return results;
}

PyObject *read_results(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *answer, *type;
    if (!PyArg_ParseTuple(args, "SO!", &answer, &PyType_Type, &type)) return NULL;
    if (!PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "a class of tuples");
        return NULL;
    }
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(answer);
    Columns columns = {.host = NULL};
    PyObject *results = NULL;
    if (read_columns((Wire){at, at + PyBytes_GET_SIZE(answer)}, &columns)) {
        Wire host = columns.columns[HOST];
        columns.host = text_of((Text){host.at ? host.at : at, host.end - host.at}, NULL);
        if (columns.host != NULL) results = new_results(&columns, (PyTypeObject *)type);
    }
    Py_XDECREF(columns.host);
    if (results == NULL && (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_UnicodeDecodeError))) {
        PyErr_Clear();
        results = Py_NewRef(Py_None);
    }
    return results;
}
