/* Messages of a client: copies with another value, from messages to the items of a batch, and from
   the records of a pull to StoredMessages. */

#include "records.h"

enum {
    ITEM_BYTES = 22,  /* of an item, beside body and properties; see batch.py of remoting */
    ADDED_BYTES = 160, /* names, separators and numbers that come to a message's texts */
    NAMES_MAX = 8,
};

/* ---- from messages to items */

/* The fields of a Message, which own their objects. */
enum { BODY, TAGS, KEYS, PROPERTIES, LEVEL, FLAG, ID, DELAY, TIMES, AT, AFTER, FIELD_COUNT };
static const char *const NAMES[FIELD_COUNT] = {
    "body", "tags", "keys", "properties", "delay_level", "flag", "message_id", "delay",
    "max_reconsume_times", "deliver_at", "deliver_after"};

/* False for what is no text, or has no UTF-8 form. */
static int read_text(Text *text, PyObject *value) {
    if (!PyUnicode_Check(value)) return 0;
    text->at = (const uint8_t *)PyUnicode_AsUTF8AndSize(value, &text->size);
    if (text->at == NULL) PyErr_Clear();
    return text->at != NULL;
}

/* A number from least on, of 15 digits at most; number keeps its value for None. */
static int read_number(int64_t *number, PyObject *value, int64_t least) {
    static const int64_t MOST = 999999999999999;
    int overflow = 0;
    if (value == Py_None) return 1;
    if (!PyLong_CheckExact(value)) return 0;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && least <= *number && *number <= MOST;
}

/* The bytes of keys and pairs in a property string; -1 if they are out of the ordinary. */
static Py_ssize_t items_bytes(PyObject *keys, PyObject *properties) {
    Py_ssize_t size = 0, at = 0;
    Text text, other;
    PyObject *name, *value;
    if (!PyTuple_CheckExact(keys) || !PyDict_CheckExact(properties)) return -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++) {
        if (!read_text(&text, PyTuple_GET_ITEM(keys, i))) return -1;
        size += text.size + 1;
    }
    while (PyDict_Next(properties, &at, &name, &value)) {
        if (!read_text(&text, name) || !read_text(&other, value)) return -1;
        size += text.size + other.size + 2;
    }
    return size;
}

static uint8_t *put_bytes(uint8_t *at, const void *from, Py_ssize_t size) {
    memcpy(at, from, size);
    return at + size;
}

static uint8_t *put_pair(uint8_t *at, const char *name, Py_ssize_t size, Text value) {
    at = put_bytes(at, name, size);
    *at++ = 1;
    at = put_bytes(at, value.at, value.size);
    *at++ = 2;
    return at;
}

static uint8_t *put_number(uint8_t *at, const char *name, int64_t number) {
    return at + sprintf((char *)at, "%s\1%lld\2", name, (long long)number);
}

/* The property string of batch.py's properties_of(); where it ends. */
static uint8_t *put_properties(
    uint8_t *at, PyObject *const *fields, Text tags, Text id, const int64_t *numbers) {
    Text name, value;
    PyObject *one, *other, *keys = fields[KEYS];
    Py_ssize_t place = 0, count = PyTuple_GET_SIZE(keys);
    const uint8_t *first = at;
    while (PyDict_Next(fields[PROPERTIES], &place, &one, &other))
        if (read_text(&name, one) && read_text(&value, other))
            at = put_pair(at, (const char *)name.at, name.size, value);
    if (count) {
        at = put_bytes(at, "KEYS\1", 5);
        for (Py_ssize_t i = 0; i < count; i++) {
            if (read_text(&name, PyTuple_GET_ITEM(keys, i))) at = put_bytes(at, name.at, name.size);
            *at++ = i + 1 < count ? ' ' : 2;
        }
    }
    if (id.size) at = put_pair(at, "UNIQ_KEY", 8, id);
    if (fields[AT] != Py_None) at = put_number(at, "TIMER_DELIVER_MS", numbers[AT]);
    if (fields[AFTER] != Py_None) at = put_number(at, "TIMER_DELAY_MS", numbers[AFTER]);
    if (fields[TIMES] != Py_None) at = put_number(at, "MAX_RECONSUME_TIMES", numbers[TIMES]);
    if (tags.size) at = put_pair(at, "TAGS", 4, tags);
    if (numbers[LEVEL] && fields[DELAY] == Py_None) at = put_number(at, "DELAY", numbers[LEVEL]);
    return at > first ? at - 1 : at; /* no separator at the end */
}

typedef struct {
    PyObject *data; /* a bytearray */
    Py_ssize_t size;
} Out;

/* Write a message whose fields are there; false if it is out of the ordinary, or on an error. */
static int put_message(Out *out, PyObject *const *fields) {
    Text tags, id;
    int64_t numbers[FIELD_COUNT] = {0};
    PyObject *body = fields[BODY];
    Py_ssize_t items = items_bytes(fields[KEYS], fields[PROPERTIES]);
    if (items < 0 || !PyBytes_CheckExact(body) || !read_text(&tags, fields[TAGS]) ||
        !read_text(&id, fields[ID]) || !read_number(&numbers[LEVEL], fields[LEVEL], 0) ||
        !read_number(&numbers[FLAG], fields[FLAG], INT32_MIN) ||
        !read_number(&numbers[TIMES], fields[TIMES], 0) ||
        !read_number(&numbers[AT], fields[AT], 0) || !read_number(&numbers[AFTER], fields[AFTER], 0))
        return 0;
    Py_ssize_t body_bytes = PyBytes_GET_SIZE(body);
    Py_ssize_t most =
        out->size + ITEM_BYTES + body_bytes + items + tags.size + id.size + ADDED_BYTES;
    if (most > INT32_MAX / 2) return 0;
    /* By half as much again, so that it seldom moves. */
    if (PyByteArray_GET_SIZE(out->data) < most &&
        PyByteArray_Resize(out->data, most + most / 2) < 0)
        return 0;
    uint8_t *item = (uint8_t *)PyByteArray_AS_STRING(out->data) + out->size;
    uint8_t *properties = item + ITEM_BYTES + body_bytes;
    uint8_t *end = put_properties(properties, fields, tags, id, numbers);
    if (end - properties > INT16_MAX) return 0;
    put32(item, (uint32_t)(end - item));
    memset(item + 4, 0, 8); /* magic and CRC, which the broker makes */
    put32(item + 12, (uint32_t)numbers[FLAG]);
    put32(item + 16, (uint32_t)body_bytes);
    put_bytes(item + 20, PyBytes_AS_STRING(body), body_bytes);
    properties[-2] = (uint8_t)((end - properties) >> 8);
    properties[-1] = (uint8_t)(end - properties);
    out->size += end - item;
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

PyObject *write_messages(PyObject *self, PyObject *messages) {
    (void)self;
    if (!PyTuple_Check(messages)) Py_RETURN_NONE;
    Out out = {.data = PyByteArray_FromStringAndSize(NULL, 0)};
    int is_ordinary = out.data != NULL;
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

/* ---- from records to messages */

/* The fields of a StoredMessage, in their order. */
enum {
    TOPIC, QUEUE_ID, QUEUE_OFFSET, PHYSICAL_OFFSET, SIZE, STORED_BODY, PAIRS, STORED_FLAG,
    SYS_FLAG, BORN_MS, BORN_HOST, STORED_MS, STORE_HOST, RECONSUMED, COMPLETES, STORED_FIELDS,
};

/* Texts of the record before: most of them are the next one's, too. */
typedef struct {
    PyObject *topic, *born_host, *store_host, *names[NAMES_MAX];
    uint8_t born[8], store[8];
} Known;

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

static PyObject *host_of(const uint8_t *host, uint8_t *bytes, PyObject **known) {
    if (*known == NULL || memcmp(host, bytes, 8) != 0) {
        memcpy(bytes, host, 8);
        Py_XSETREF(*known, PyUnicode_FromFormat(
                               "%u.%u.%u.%u:%u", host[0], host[1], host[2], host[3],
                               (unsigned)get32(host + 4)));
    }
    return Py_XNewRef(*known);
}

/* The pairs of a property string; NULL with an error set. */
static PyObject *pairs_of(Text string, Known *known) {
    PyObject *pairs = PyDict_New();
    const uint8_t *at = string.at, *end = at + string.size;
    while (pairs != NULL && at < end) {
        const uint8_t *pair_end = memchr(at, 2, end - at);
        if (pair_end == NULL) pair_end = end;
        const uint8_t *name_end = memchr(at, 1, pair_end - at);
        if (name_end != NULL && name_end > at && name_end + 1 < pair_end) {
            Py_ssize_t number = PyDict_GET_SIZE(pairs);
            PyObject *name = text_of(
                (Text){at, name_end - at}, number < NAMES_MAX ? &known->names[number] : NULL);
            PyObject *value =
                name ? text_of((Text){name_end + 1, pair_end - name_end - 1}, NULL) : NULL;
            if (value == NULL || PyDict_SetItem(pairs, name, value) < 0) Py_CLEAR(pairs);
            Py_XDECREF(name);
            Py_XDECREF(value);
        }
        at = pair_end + 1;
    }
    return pairs;
}

static PyObject *field_of(int field, Text record, const Text *parts, Known *known) {
    const uint8_t *head = record.at;
    switch (field) {
    case TOPIC: return text_of(parts[1], &known->topic);
    case QUEUE_ID: return PyLong_FromLong((int32_t)get32(head + QUEUE_ID_AT));
    case QUEUE_OFFSET: return PyLong_FromLongLong((int64_t)get64(head + QUEUE_OFFSET_AT));
    case PHYSICAL_OFFSET: return PyLong_FromLongLong((int64_t)get64(head + PHYSICAL_OFFSET_AT));
    case SIZE: return PyLong_FromSsize_t(record.size);
    case STORED_BODY: return PyBytes_FromStringAndSize((const char *)parts[0].at, parts[0].size);
    case PAIRS: return pairs_of(parts[2], known);
    case STORED_FLAG: return PyLong_FromLong((int32_t)get32(head + FLAG_AT));
    case SYS_FLAG: return PyLong_FromLong((int32_t)get32(head + SYS_FLAG_AT));
    case BORN_MS: return PyLong_FromLongLong((int64_t)get64(head + BORN_TIMESTAMP_AT));
    case BORN_HOST: return host_of(head + BORN_HOST_AT, known->born, &known->born_host);
    case STORED_MS: return PyLong_FromLongLong((int64_t)get64(head + STORE_TIMESTAMP_AT));
    case STORE_HOST: return host_of(head + STORE_HOST_AT, known->store, &known->store_host);
    case RECONSUMED: return PyLong_FromLong((int32_t)get32(head + RECONSUME_TIMES_AT));
    default:
        return PyLong_FromLongLong((int64_t)get64(head + PREPARED_TRANSACTION_OFFSET_AT));
    }
}

/* Body, topic and properties of the record that the bytes begin with, and its length; false if it
   is no ordinary one. */
static int read_parts(Text data, Text *record, Text *parts) {
    const uint8_t *head = data.at;
    if (data.size < HEAD_BYTES + LENGTHS_BYTES || get32(head + MAGIC_AT) != MAGIC ||
        get32(head + SYS_FLAG_AT) & V6_FLAGS)
        return 0;
    int64_t size = (int32_t)get32(head), body_bytes = (int32_t)get32(head + BODY_SIZE_AT);
    int64_t topic_at = HEAD_BYTES + body_bytes + 1;
    if (size > data.size || body_bytes < 0 || topic_at > size) return 0;
    int64_t topic_bytes = head[topic_at - 1], properties_at = topic_at + topic_bytes + 2;
    if (properties_at > size ||
        properties_at + (head[properties_at - 2] << 8 | head[properties_at - 1]) != size)
        return 0;
    *record = (Text){head, size};
    parts[0] = (Text){head + HEAD_BYTES, body_bytes};
    parts[1] = (Text){head + topic_at, topic_bytes};
    parts[2] = (Text){head + properties_at, size - properties_at};
    return 1;
}

/* A message whose slots are filled: its class is frozen, and __init__ takes twice as long as all
   of this. */
static PyObject *new_message(
    Text record, const Text *parts, Known *known, PyTypeObject *type, PyObject *slots) {
    PyObject *message = type->tp_alloc(type, 0);
    for (int field = 0; message != NULL && field < STORED_FIELDS; field++) {
        PyObject *slot = PyTuple_GET_ITEM(slots, field);
        PyObject *value = field_of(field, record, parts, known);
        if (value == NULL || Py_TYPE(slot)->tp_descr_set(slot, message, value) < 0)
            Py_CLEAR(message);
        Py_XDECREF(value);
    }
    return message;
}

static int are_slots(PyObject *slots, Py_ssize_t count) {
    if (PyTuple_GET_SIZE(slots) != count) return 0;
    for (Py_ssize_t i = 0; i < count; i++)
        if (Py_TYPE(PyTuple_GET_ITEM(slots, i))->tp_descr_set == NULL) return 0;
    return 1;
}

PyObject *read_messages(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *bytes, *type, *slots;
    if (!PyArg_ParseTuple(args, "SO!O!", &bytes, &PyType_Type, &type, &PyTuple_Type, &slots))
        return NULL;
    if (!are_slots(slots, STORED_FIELDS)) {
        PyErr_SetString(PyExc_TypeError, "slots: the slots of a StoredMessage in their order");
        return NULL;
    }
    Text data = {(const uint8_t *)PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)}, record;
    Text parts[3];
    Known known = {NULL};
    PyObject *messages = PyList_New(0), *result = NULL;
    int is_read = messages != NULL;
    while (is_read && data.size) {
        PyObject *message = NULL;
        if (read_parts(data, &record, parts))
            message = new_message(record, parts, &known, (PyTypeObject *)type, slots);
        is_read = message != NULL && PyList_Append(messages, message) == 0;
        Py_XDECREF(message);
        if (is_read) data = (Text){data.at + record.size, data.size - record.size};
    }
    if (is_read) result = PyList_AsTuple(messages);
    else if (!PyErr_Occurred() || PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear();
        result = Py_NewRef(Py_None);
    }
    for (int i = 0; i < NAMES_MAX; i++) Py_XDECREF(known.names[i]);
    Py_XDECREF(known.topic);
    Py_XDECREF(known.born_host);
    Py_XDECREF(known.store_host);
    Py_XDECREF(messages);
    return result;
}

/* ---- copies */

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
