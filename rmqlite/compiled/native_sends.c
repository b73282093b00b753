/* Sends of rmqlite.v1: from the bytes of a request to spans and property strings, and the answer.

   proto/ has the numbers of the fields; protobuf.h has the wire format. */

#include "protobuf.h"
#include "records.h"

enum {
    TEXT_BYTES_MAX = 127, /* of a topic, a tag, a key or a message id */
    ORDINARY_KEYS_MAX = 500, /* of all messages of a call; limits.py allows more */
    DELAY_BYTES_MAX = 64,
    PAIRS_MAX = 16,       /* of a message; they are searched for doubles */
    CALL_PAIRS_MAX = 4000,
    ADDED_BYTES = 72,     /* names, separators and a time that come to a message's texts */
    TIME_DIGITS_MAX = 15,
};

/* declared_types/deliver_times.py has these. */
static const int64_t INSTANT_MS_MIN = 1000000000000, INSTANT_MS_MAX = 253402300799999,
                     DELAY_MS_MAX = 315360000000;

/* ---- reading */

/* A short text of visible ASCII without blanks; empty, too. */
static int read_token(Wire *wire, Text *token) {
    if (!read_content(wire, token) || token->size > TEXT_BYTES_MAX) return 0;
    for (Py_ssize_t i = 0; i < token->size; i++)
        if (token->at[i] <= ' ' || token->at[i] >= 0x7F) return 0;
    return 1;
}

typedef struct {
    Text name, value;
} Pair;

typedef struct {
    Text topic, body, tags, message_id, delay, keys[ORDINARY_KEYS_MAX];
    Pair pairs[PAIRS_MAX];
    int key_count, pair_count;
    int32_t level, flag;
    int64_t deliver_at_ms, deliver_after_ms;
} Sent;

static int is_same(Text one, Text other) {
    return one.size == other.size && (!one.size || memcmp(one.at, other.at, one.size) == 0);
}

/* May a property string hold a text of a pair? */
static int is_fit(Text text) {
    return text.size && memchr(text.at, 1, text.size) == NULL &&
           memchr(text.at, 2, text.size) == NULL;
}

static int read_pair(Wire *wire, Sent *sent) {
    Text content;
    if (sent->pair_count == PAIRS_MAX || !read_content(wire, &content)) return 0;
    Wire inner = {content.at, content.at + content.size};
    Pair pair = {0};
    while (inner.at < inner.end) {
        uint8_t tag = *inner.at++;
        if (tag == TAG(1, CONTENT) && read_content(&inner, &pair.name)) continue;
        if (tag != TAG(2, CONTENT) || !read_content(&inner, &pair.value)) return 0;
    }
    if (!is_fit(pair.name) || !is_fit(pair.value)) return 0;
    for (int i = 0; i < sent->pair_count; i++) {
        if (is_same(sent->pairs[i].name, pair.name)) return 0;
    }
    sent->pairs[sent->pair_count++] = pair;
    return 1;
}

static int read_field(Wire *wire, Sent *sent) {
    switch (*wire->at++) {
    case TAG(1, CONTENT): return read_token(wire, &sent->topic);
    case TAG(2, CONTENT): return read_content(wire, &sent->body);
    case TAG(3, CONTENT): return read_token(wire, &sent->tags);
    case TAG(4, CONTENT):
        if (sent->key_count == ORDINARY_KEYS_MAX || !read_token(wire, &sent->keys[sent->key_count]))
            return 0;
        return sent->keys[sent->key_count++].size > 0;
    case TAG(5, CONTENT): return read_pair(wire, sent);
    case TAG(6, VARINT): return read_int32(wire, &sent->level) && sent->level >= 0;
    case TAG(7, VARINT): return read_int32(wire, &sent->flag);
    case TAG(8, CONTENT): return read_token(wire, &sent->message_id);
    case TAG(9, CONTENT):
        return read_token(wire, &sent->delay) && sent->delay.size <= DELAY_BYTES_MAX;
    case TAG(11, VARINT):
        return read_int64(wire, &sent->deliver_at_ms) &&
               sent->deliver_at_ms >= INSTANT_MS_MIN && sent->deliver_at_ms <= INSTANT_MS_MAX;
    case TAG(12, VARINT):
        return read_int64(wire, &sent->deliver_after_ms) &&
               sent->deliver_after_ms >= 1 && sent->deliver_after_ms <= DELAY_MS_MAX;
    }
    return 0;
}

static int read_sent(Wire wire, Sent *sent) {
    sent->topic = sent->body = sent->tags = sent->message_id = sent->delay = (Text){0};
    sent->key_count = sent->pair_count = sent->level = sent->flag = 0;
    sent->deliver_at_ms = sent->deliver_after_ms = 0;
    while (wire.at < wire.end)
        if (!read_field(&wire, sent)) return 0;
    int waits = !!sent->level + !!sent->delay.size + !!sent->deliver_at_ms + !!sent->deliver_after_ms;
    /* A level goes with its delay, for an older broker. */
    if (waits > 1 && (sent->deliver_at_ms || sent->deliver_after_ms)) return 0;
    return sent->topic.size && sent->body.size && sent->message_id.size;
}

/* 1 if a message has a name that only the broker may write; -1 with an error set. */
static int has_reserved(const Sent *sent, PyObject *reserved) {
    for (int i = 0; i < sent->pair_count; i++) {
        Text text = sent->pairs[i].name;
        PyObject *name = PyUnicode_DecodeUTF8((const char *)text.at, text.size, "replace");
        int found = name == NULL ? -1 : PySet_Contains(reserved, name);
        Py_XDECREF(name);
        if (found) return found;
    }
    return 0;
}

/* ---- sends as a buffer and spans */

typedef struct {
    Text topic, delay;
    int32_t queue_id, level;
    int are_timers;
    int64_t born_at_ms;
    Py_ssize_t count, keys, pairs;
    int32_t *spans;
    PyObject *buffer; /* the request, and behind it the property strings */
    Py_ssize_t size;
    PyObject *ids;
} Sends;

static uint8_t *put_pair(uint8_t *at, const char *name, Py_ssize_t size, Text value) {
    at = put_bytes(at, name, size);
    *at++ = 1;
    at = put_bytes(at, value.at, value.size);
    *at++ = 2;
    return at;
}

static uint8_t *put_time(uint8_t *at, const char *name, Py_ssize_t size, int64_t time_ms) {
    char digits[TIME_DIGITS_MAX + 1];
    Text text = {(const uint8_t *)digits, snprintf(digits, sizeof digits, "%lld", (long long)time_ms)};
    return put_pair(at, name, size, text);
}

/* The property string of message_properties() in message.py; where it ends. */
static uint8_t *put_properties(uint8_t *at, const Sent *sent) {
    for (int i = 0; i < sent->pair_count; i++) {
        Text name = sent->pairs[i].name;
        at = put_pair(at, (const char *)name.at, name.size, sent->pairs[i].value);
    }
    if (sent->key_count) {
        at = put_bytes(at, "KEYS\1", 5);
        for (int i = 0; i < sent->key_count; i++) {
            at = put_bytes(at, sent->keys[i].at, sent->keys[i].size);
            *at++ = i + 1 < sent->key_count ? ' ' : 2;
        }
    }
    at = put_pair(at, "UNIQ_KEY", 8, sent->message_id);
    if (sent->deliver_at_ms) at = put_time(at, "TIMER_DELIVER_MS", 16, sent->deliver_at_ms);
    if (sent->deliver_after_ms) at = put_time(at, "TIMER_DELAY_MS", 14, sent->deliver_after_ms);
    if (sent->tags.size) at = put_pair(at, "TAGS", 4, sent->tags);
    return at - 1; /* no separator at the end */
}

/* Add a message; 0 if it is out of the ordinary, -1 with an error set. */
static int add_sent(Sends *sends, const Sent *sent, const uint8_t *data, PyObject *reserved) {
    int is_timer = sent->deliver_at_ms || sent->deliver_after_ms;
    if (sends->count == 0) {
        sends->topic = sent->topic, sends->delay = sent->delay, sends->level = sent->level;
        sends->are_timers = is_timer;
    }
    sends->keys += sent->key_count;
    sends->pairs += sent->pair_count;
    if (sends->keys > ORDINARY_KEYS_MAX || sends->pairs > CALL_PAIRS_MAX || sent->level != sends->level ||
        !is_same(sent->topic, sends->topic) || !is_same(sent->delay, sends->delay) ||
        is_timer != sends->are_timers)
        return 0;
    int is_reserved = has_reserved(sent, reserved);
    if (is_reserved) return is_reserved < 0 ? -1 : 0;
    PyObject *id = PyUnicode_FromStringAndSize(
        (const char *)sent->message_id.at, sent->message_id.size);
    int is_added = id != NULL && PyList_Append(sends->ids, id) == 0;
    Py_XDECREF(id);
    if (!is_added) return -1;
    uint8_t *first = (uint8_t *)PyBytes_AS_STRING(sends->buffer);
    int32_t begin = (int32_t)sends->size;
    sends->size = put_properties(first + begin, sent) - first;
    int32_t *span = sends->spans + sends->count++ * SPAN_NUMBERS;
    span[0] = sent->flag;
    span[1] = (int32_t)(sent->body.at - data), span[2] = span[1] + (int32_t)sent->body.size;
    span[3] = begin, span[4] = (int32_t)sends->size;
    return 1;
}

/* How many messages a request has, if it has nothing else but its own fields; -1 for others. */
static Py_ssize_t read_request(Wire wire, Sends *sends) {
    Text content;
    Py_ssize_t count = 0;
    uint64_t born_at_ms = 0;
    while (wire.at < wire.end) {
        uint8_t tag = *wire.at++;
        if (tag == TAG(1, CONTENT) ? !read_token(&wire, &content)
            : tag == TAG(2, CONTENT) ? !read_content(&wire, &content)
            : tag == TAG(3, VARINT) ? !read_int32(&wire, &sends->queue_id)
            : tag == TAG(4, VARINT) ? !read_varint(&wire, &born_at_ms)
                                    : 1)
            return -1;
        count += tag == TAG(2, CONTENT);
    }
    sends->born_at_ms = (int64_t)born_at_ms;
    return sends->born_at_ms > 0 ? count : -1;
}

/* 1 if every text of the property strings is UTF-8. */
static int is_utf8(const Sends *sends, Py_ssize_t begin) {
    const char *at = PyBytes_AS_STRING(sends->buffer) + begin;
    PyObject *text = PyUnicode_DecodeUTF8(at, sends->size - begin, NULL);
    if (text == NULL) PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

/* 0 if the request is out of the ordinary, -1 with an error set. */
static int add_all(Sends *sends, Text data, Py_ssize_t messages_max, PyObject *reserved) {
    Wire wire = {data.at, data.at + data.size};
    Py_ssize_t count = read_request(wire, sends);
    if (count < 1 || count > messages_max || data.size > INT32_MAX / 4) return 0;
    sends->ids = PyList_New(0);
    sends->buffer = PyBytes_FromStringAndSize(NULL, 2 * data.size + count * ADDED_BYTES);
    if (sends->ids == NULL || sends->buffer == NULL) return -1;
    sends->spans = PyMem_Malloc(count * SPAN_NUMBERS * sizeof(int32_t));
    if (sends->spans == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    put_bytes((uint8_t *)PyBytes_AS_STRING(sends->buffer), data.at, data.size);
    sends->size = data.size;
    Sent sent;
    while (wire.at < wire.end) {
        Text content = {0};
        uint64_t number;
        uint8_t tag = *wire.at++;
        if ((tag & 7) == VARINT) read_varint(&wire, &number);
        else if (!read_content(&wire, &content)) return 0;
        if (tag != TAG(2, CONTENT)) continue;
        if (!read_sent((Wire){content.at, content.at + content.size}, &sent)) return 0;
        int is_added = add_sent(sends, &sent, data.at, reserved);
        if (is_added < 1) return is_added;
    }
    return is_utf8(sends, data.size);
}

PyObject *read_sends(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *request, *reserved;
    Py_ssize_t messages_max;
    if (!PyArg_ParseTuple(args, "SnO!", &request, &messages_max, &PyFrozenSet_Type, &reserved))
        return NULL;
    Sends sends = {.queue_id = 0};
    Text data = {(const uint8_t *)PyBytes_AS_STRING(request), PyBytes_GET_SIZE(request)};
    PyObject *result = NULL;
    int is_ordinary = add_all(&sends, data, messages_max, reserved);
    if (is_ordinary == 0) result = Py_NewRef(Py_None);
    else if (is_ordinary > 0 && _PyBytes_Resize(&sends.buffer, sends.size) == 0)
        result = Py_BuildValue(
            "s#iLis#OOy#", (const char *)sends.topic.at, sends.topic.size, (int)sends.queue_id,
            (long long)sends.born_at_ms, (int)sends.level,
            sends.delay.size ? (const char *)sends.delay.at : "", sends.delay.size, sends.ids, sends.buffer,
            (const char *)sends.spans,
            sends.count * SPAN_NUMBERS * (Py_ssize_t)sizeof(int32_t));
    PyMem_Free(sends.spans);
    Py_XDECREF(sends.ids);
    Py_XDECREF(sends.buffer);
    return result;
}

/* ---- the answer */

enum { NUMBER_BYTES_MAX = 10, COLUMNS = 7 };

/* Numbers in a packed field: step apart from the first one, or a list of them if there is one.
   NULL with an error set. */
static uint8_t *put_numbers(uint8_t *at, int field, Py_ssize_t count, long long first, int step,
                            PyObject *list) {
    if (at == NULL || !count) return at;
    *at++ = TAG(field, CONTENT);
    uint8_t *end = at + LENGTH_BYTES_MAX;
    for (Py_ssize_t i = 0; i < count; i++) {
        long long number = list ? PyLong_AsLongLong(PyList_GET_ITEM(list, i)) : first + step * i;
        if (number == -1 && PyErr_Occurred()) return NULL;
        end = put_varint(end, (uint64_t)number);
    }
    return put_length(at, end);
}

/* The bytes of message ids in fields; -1 with an error set. */
static Py_ssize_t ids_bytes(PyObject *ids) {
    Py_ssize_t all = 0, size;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ids); i++) {
        if (PyUnicode_AsUTF8AndSize(PyList_GET_ITEM(ids, i), &size) == NULL) return -1;
        all += 1 + LENGTH_BYTES_MAX + size;
    }
    return all;
}

static uint8_t *put_ids(uint8_t *at, int field, PyObject *ids) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(ids); i++) {
        Text id;
        id.at = (const uint8_t *)PyUnicode_AsUTF8AndSize(PyList_GET_ITEM(ids, i), &id.size);
        at = put_item(at, field, id);
    }
    return at;
}

PyObject *write_results(PyObject *self, PyObject *args) {
    (void)self;
    const char *topic, *host;
    Py_ssize_t topic_bytes, host_bytes;
    int queue_id;
    long long queue_offset, deliver_at_ms = 0;
    PyObject *ids, *positions, *due, *dues = NULL;
    if (!PyArg_ParseTuple(
            args, "s#iLO!O!Os#", &topic, &topic_bytes, &queue_id, &queue_offset, &PyList_Type,
            &ids, &PyList_Type, &positions, &due, &host, &host_bytes))
        return NULL;
    if (PyList_CheckExact(due)) dues = due;
    else deliver_at_ms = PyLong_AsLongLong(due);
    if (deliver_at_ms == -1 && PyErr_Occurred()) return NULL;
    Py_ssize_t count = PyList_GET_SIZE(ids), of_ids = ids_bytes(ids);
    if (of_ids < 0) return NULL;
    if (PyList_GET_SIZE(positions) != count || (dues && PyList_GET_SIZE(dues) != count))
        return PyErr_Format(PyExc_ValueError, "%zd ids, %zd places", count,
                            PyList_GET_SIZE(positions));
    Py_ssize_t each = 1 + LENGTH_BYTES_MAX + topic_bytes + 4 * NUMBER_BYTES_MAX;
    Py_ssize_t room = count * each + of_ids + host_bytes + COLUMNS * (1 + LENGTH_BYTES_MAX);
    PyObject *result = PyBytes_FromStringAndSize(NULL, room);
    if (result == NULL) return NULL;
    uint8_t *first = (uint8_t *)PyBytes_AS_STRING(result), *at = first;
    for (Py_ssize_t i = 0; i < count; i++)
        at = put_item(at, 1, (Text){(const uint8_t *)topic, topic_bytes});
    at = put_numbers(at, 2, count, queue_id, 0, NULL);
    at = put_numbers(at, 3, count, queue_offset, 1, NULL);
    at = put_numbers(put_ids(at, 4, ids), 5, count, 0, 0, positions);
    at = put_numbers(at, 6, count, deliver_at_ms, 0, dues);
    if (at == NULL) Py_CLEAR(result);
    else {
        at = put_content(at, 7, (Text){(const uint8_t *)host, host_bytes});
        _PyBytes_Resize(&result, at - first);
    }
    return result;
}
