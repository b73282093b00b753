/* Single sends of RocketMQ's protocol: from the ext fields of a request to a draft.

   It is what SEND_MESSAGE_V2.fields.read() and call_of() of sending.py do, for a third of the time.
   Ordinary is a message of its own, whose texts are of ASCII, to a topic that is not reserved. */

#include "records.h"

enum { DIGITS_MAX = 18, NAME_BYTES_MAX = TOPIC_BYTES_MAX };

/* The fields that matter, by their letters in SHORT_NAMES of codes/sending.py. */
enum {
    PRODUCER_GROUP = 'a',
    TOPIC = 'b',
    DEFAULT_TOPIC = 'c',
    DEFAULT_QUEUES = 'd',
    QUEUE_ID = 'e',
    SYS_FLAG = 'f',
    BORN_TIMESTAMP = 'g',
    FLAG = 'h',
    PROPERTIES = 'i',
    RECONSUME_TIMES = 'j',
    MAX_RECONSUME_TIMES = 'l',
    IS_BATCH = 'm',
};

/* The text of a field, NULL if it is absent.  All of these are false for what is out of the
   ordinary, or with an error set. */
static int find(PyObject *ext, int letter, Py_ssize_t bytes_max, PyObject **text) {
    PyObject *name = PyUnicode_FromOrdinal(letter);
    if (name == NULL) return 0;
    *text = PyDict_GetItemWithError(ext, name);
    Py_DECREF(name);
    if (*text == NULL) return !PyErr_Occurred();
    return PyUnicode_Check(*text) && PyUnicode_IS_ASCII(*text) &&
           PyUnicode_GET_LENGTH(*text) <= bytes_max;
}

/* number: keeps its value if the field is absent. */
static int find_number(PyObject *ext, int letter, int64_t most, int64_t *number) {
    PyObject *text;
    if (!find(ext, letter, DIGITS_MAX + 1, &text)) return 0;
    if (text == NULL) return 1;
    const char *at = PyUnicode_DATA(text), *end = at + PyUnicode_GET_LENGTH(text);
    int sign = at < end && *at == '-' ? -1 : 1;
    if (sign < 0) at++;
    if (at == end || end - at > DIGITS_MAX) return 0;
    int64_t value = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return 0;
        value = value * 10 + (*at - '0');
    }
    *number = sign * value;
    return *number <= most && *number >= -most - 1;
}

static int is_single(PyObject *ext) {
    PyObject *text;
    return find(ext, IS_BATCH, NAME_BYTES_MAX, &text) &&
           (text == NULL || PyUnicode_CompareWithASCIIString(text, "false") == 0);
}

/* Fields of which nothing is kept, but which refuse the request if they are wrong. */
static int has_sound_rest(PyObject *ext) {
    PyObject *text;
    int64_t number;
    return find(ext, PRODUCER_GROUP, NAME_BYTES_MAX, &text) &&
           find(ext, DEFAULT_TOPIC, NAME_BYTES_MAX, &text) &&
           find_number(ext, DEFAULT_QUEUES, INT32_MAX, &number) &&
           find_number(ext, MAX_RECONSUME_TIMES, INT32_MAX, &number);
}

static PyObject *draft_of(PyTypeObject *type, PyObject *ext, PyObject *body, PyObject *born_host) {
    PyObject *topic, *properties;
    int64_t queue_id = -1, sys_flag = 0, born_ms = 0, flag = 0, times = 0;
    if (!is_single(ext) || !has_sound_rest(ext) || !find(ext, TOPIC, TOPIC_BYTES_MAX, &topic) ||
        topic == NULL || PyUnicode_GET_LENGTH(topic) == 0 ||
        *(const char *)PyUnicode_DATA(topic) == '%' ||
        !find(ext, PROPERTIES, INT16_MAX, &properties) ||
        !find_number(ext, QUEUE_ID, INT32_MAX, &queue_id) ||
        !find_number(ext, SYS_FLAG, INT32_MAX, &sys_flag) ||
        !find_number(ext, BORN_TIMESTAMP, INT64_MAX, &born_ms) ||
        !find_number(ext, FLAG, INT32_MAX, &flag) ||
        !find_number(ext, RECONSUME_TIMES, INT32_MAX, &times))
        return NULL;
    return named_tuple(
        type, Py_BuildValue(
                  "(OLy#OLOLLLy#s)", topic, (long long)queue_id,
                  properties == NULL ? "" : (const char *)PyUnicode_DATA(properties),
                  properties == NULL ? (Py_ssize_t)0 : PyUnicode_GET_LENGTH(properties), body,
                  (long long)born_ms, born_host, (long long)flag, (long long)sys_flag,
                  (long long)times, "", (Py_ssize_t)0, ""));
}

PyObject *make_draft(PyObject *self, PyObject *args) {
    (void)self;
    PyObject *ext, *body, *born_host, *type;
    if (!PyArg_ParseTuple(
            args, "O!SSO!", &PyDict_Type, &ext, &body, &born_host, &PyType_Type, &type))
        return NULL;
    PyObject *draft = draft_of((PyTypeObject *)type, ext, body, born_host);
    return draft == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : draft;
}
