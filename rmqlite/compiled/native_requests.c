/* Requests of rmqlite.v1: messages with ids, and from messages to the bytes of a SendRequest.

   proto/ has the numbers of the fields; protobuf.h has the wire format. */

#include "protobuf.h"
#include "records.h"

enum { MESSAGE_BYTES_MAX = 128, ITEM_BYTES_MAX = 24 }; /* without contents; of a key, of a pair */

/* The fields of a Message, which own their objects. */
enum { TOPIC, BODY, TAGS, KEYS, PROPERTIES, LEVEL, FLAG, ID, DELAY, TIMES, AT, AFTER, FIELD_COUNT };
static const char *const NAMES[FIELD_COUNT] = {
    "topic", "body",       "tags",  "keys",
    "properties", "delay_level", "flag", "message_id",
    "delay", "max_reconsume_times", "deliver_at", "deliver_after"};

typedef struct {
    PyObject *data; /* a bytearray */
    Py_ssize_t size;
} Out;

/* Make room for so many bytes; where they begin, NULL with an error set. */
static uint8_t *room_for(Out *out, Py_ssize_t size) {
    Py_ssize_t most = out->size + size;
    /* By half as much again, so that it seldom moves. */
    if (PyByteArray_GET_SIZE(out->data) < most &&
        PyByteArray_Resize(out->data, most + most / 2) < 0)
        return NULL;
    return (uint8_t *)PyByteArray_AS_STRING(out->data) + out->size;
}

/* False for what is no text, or has no UTF-8 form. */
static int read_text(Text *text, PyObject *value) {
    if (!PyUnicode_Check(value)) return 0;
    text->at = (const uint8_t *)PyUnicode_AsUTF8AndSize(value, &text->size);
    if (text->at == NULL) PyErr_Clear();
    return text->at != NULL;
}

static int read_long(int64_t *number, PyObject *value) {
    int overflow = 0;
    if (!PyLong_CheckExact(value)) return 0;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow;
}

static int read_int(int64_t *number, PyObject *value) {
    return read_long(number, value) && INT32_MIN <= *number && *number <= INT32_MAX;
}

/* The bytes that keys and pairs take at most; -1 if they are out of the ordinary. */
static Py_ssize_t items_bytes(PyObject *keys, PyObject *properties) {
    Py_ssize_t size = 0, at = 0;
    Text text;
    PyObject *name, *value;
    if (!PyTuple_CheckExact(keys) || !PyDict_CheckExact(properties)) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (!read_text(&text, PyTuple_GET_ITEM(keys, i))) return -1;
        size += text.size + ITEM_BYTES_MAX;
    }
    while (PyDict_Next(properties, &at, &name, &value)) {
        Text other;
        if (!read_text(&text, name) || !read_text(&other, value)) return -1;
        size += text.size + other.size + ITEM_BYTES_MAX;
    }
    return size;
}

static uint8_t *put_items(uint8_t *at, PyObject *keys, PyObject *properties) {
    Text name, value;
    PyObject *one, *other;
    Py_ssize_t place = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++)
        if (read_text(&name, PyTuple_GET_ITEM(keys, i))) at = put_item(at, 4, name);
    while (PyDict_Next(properties, &place, &one, &other))
        if (read_text(&name, one) && read_text(&value, other)) at = put_entry(at, 5, name, value);
    return at;
}

/* Write a message whose fields are there; false if it is out of the ordinary, or on an error. */
static int put_message(Out *out, PyObject *const *fields) {
    Text topic, tags, id, body, delay = {0};
    int64_t level, flag, times = -1, deliver_at = 0, deliver_after = 0;
    PyObject *bytes = fields[BODY];
    if (!read_text(&topic, fields[TOPIC]) || !PyBytes_CheckExact(bytes) ||
        !read_text(&tags, fields[TAGS]) || !read_text(&id, fields[ID]) ||
        !read_int(&level, fields[LEVEL]) || !read_int(&flag, fields[FLAG]) ||
        !(fields[DELAY] == Py_None || read_text(&delay, fields[DELAY])) ||
        !(fields[TIMES] == Py_None || (read_int(&times, fields[TIMES]) && times >= 0)) ||
        !(fields[AT] == Py_None || read_long(&deliver_at, fields[AT])) ||
        !(fields[AFTER] == Py_None || read_long(&deliver_after, fields[AFTER])))
        return 0;
    body = (Text){(const uint8_t *)PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)};
    Py_ssize_t items = items_bytes(fields[KEYS], fields[PROPERTIES]);
    if (items < 0 || body.size > INT32_MAX / 2) return 0;
    Py_ssize_t most = MESSAGE_BYTES_MAX + topic.size + tags.size + id.size + delay.size +
                      body.size + items;
    uint8_t *first = room_for(out, most);
    if (first == NULL) return 0;
    uint8_t *length = first, *at = first + 1 + LENGTH_BYTES_MAX;
    *length++ = TAG(2, CONTENT);
    at = put_content(put_content(put_content(at, 1, topic), 2, body), 3, tags);
    at = put_items(at, fields[KEYS], fields[PROPERTIES]);
    at = put_number(put_number(at, 6, level), 7, flag);
    at = put_content(put_content(at, 8, id), 9, delay);
    if (times >= 0) {
        /* Its presence says something, also of 0. */
        *at++ = TAG(10, VARINT);
        at = put_varint(at, (uint64_t)times);
    }
    at = put_number(put_number(at, 11, deliver_at), 12, deliver_after);
    out->size += put_length(length, at) - first;
    return 1;
}

static int add_message(Out *out, PyObject *message) {
    static PyObject *names[FIELD_COUNT];
    PyObject *fields[FIELD_COUNT] = {NULL};
    int is_ordinary = 1;
    for (int i = 0; is_ordinary && i < FIELD_COUNT; i++) {
        if (names[i] == NULL) names[i] = PyUnicode_InternFromString(NAMES[i]);
        fields[i] = names[i] ? PyObject_GetAttr(message, names[i]) : NULL;
        is_ordinary = fields[i] != NULL;
    }
    if (is_ordinary && fields[AFTER] != Py_None) {
        /* A timedelta; a property has its milliseconds. */
        Py_SETREF(fields[AFTER], PyObject_GetAttrString(message, "deliver_after_ms"));
        is_ordinary = fields[AFTER] != NULL;
    }
    is_ordinary = is_ordinary && put_message(out, fields);
    for (int i = 0; i < FIELD_COUNT; i++) Py_XDECREF(fields[i]);
    return is_ordinary;
}

PyObject *write_sends(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *messages, *group;
    int queue_id;
    long long born_at_ms;
    if (!PyArg_ParseTuple(
            args, "O!UiL", &PyTuple_Type, &messages, &group, &queue_id, &born_at_ms))
        return NULL;
    Out out = {.data = PyByteArray_FromStringAndSize(NULL, 0)};
    Text name;
    int is_ordinary = out.data != NULL && read_text(&name, group);
    uint8_t *at = is_ordinary ? room_for(&out, MESSAGE_BYTES_MAX + name.size) : NULL;
    if (at != NULL) {
        uint8_t *end = put_number(put_content(at, 1, name), 3, queue_id);
        out.size = put_number(end, 4, born_at_ms) - at;
    }
    is_ordinary = at != NULL;
    for (Py_ssize_t i = 0; is_ordinary && i < PyTuple_GET_SIZE(messages); i++)
        is_ordinary = add_message(&out, PyTuple_GET_ITEM(messages, i));
    PyObject *result = NULL;
    if (is_ordinary) result = PyBytes_FromStringAndSize(PyByteArray_AS_STRING(out.data), out.size);
    else if (out.data != NULL) {
        /* Whatever is wrong, the plain form says it. */
        PyErr_Clear();
        result = Py_NewRef(Py_None);
    }
    Py_XDECREF(out.data);
    return result;
}

/* Copy a slot; 1 without a value, too: 0 with an error set. */
static int copy_slot(PyObject *copy, PyObject *object, PyObject *slot) {
    PyTypeObject *kind = Py_TYPE(slot);
    if (kind->tp_descr_get == NULL || kind->tp_descr_set == NULL) {
        PyErr_SetString(PyExc_TypeError, "slots: the slots of a class");
        return 0;
    }
    PyObject *value = kind->tp_descr_get(slot, object, (PyObject *)Py_TYPE(object));
    int is_copied = value != NULL && kind->tp_descr_set(slot, copy, value) == 0;
    Py_XDECREF(value);
    return is_copied;
}

PyObject *copied(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *object, *slots, *slot, *value;
    if (!PyArg_ParseTuple(args, "OO!OO", &object, &PyTuple_Type, &slots, &slot, &value))
        return NULL;
    PyObject *copy = Py_TYPE(object)->tp_alloc(Py_TYPE(object), 0);
    int is_copied = copy != NULL;
    for (Py_ssize_t i = 0; is_copied && i < PyTuple_GET_SIZE(slots); i++)
        is_copied = copy_slot(copy, object, PyTuple_GET_ITEM(slots, i));
    if (is_copied && Py_TYPE(slot)->tp_descr_set == NULL)
        PyErr_SetString(PyExc_TypeError, "slot: a slot of a class");
    else if (is_copied && Py_TYPE(slot)->tp_descr_set(slot, copy, value) == 0)
        return copy;
    Py_XDECREF(copy);
    return NULL;
}
