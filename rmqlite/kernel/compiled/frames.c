/* Frames of RocketMQ's protocol with JSON headers, as frame.py and header.py read them.

   Ordinary is what clients write: one object of ASCII, whose extFields are texts. */

#include "records.h"

enum { FIELDS_MAX = 64, DIGITS_MAX = 9 };
enum { LENGTH_BYTES = 4, START_BYTES = 8 }; /* length of the frame; and of its header */

typedef struct {
    long long frame_bytes_max, header_bytes_max;
    PyTypeObject *type; /* the class Command */
} Bounds;

typedef struct {
    const uint8_t *at, *end;
} Json;

/* A string between its quotes, and how many characters it has without the escapes. */
typedef struct {
    Text raw;
    Py_ssize_t size;
} String;

static int is_blank(uint8_t byte) {
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* All that read…() returns is false for what is out of the ordinary, or with an error set. */
static int read_sign(Json *json, uint8_t sign) {
    while (json->at < json->end && is_blank(*json->at)) json->at++;
    if (json->at == json->end || *json->at != sign) return 0;
    json->at++;
    return 1;
}

static int hex_of(uint8_t digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    digit |= 32;
    return digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* The character of an escape behind its backslash, and how long the escape is; -1 for others. */
static int escaped(const uint8_t *at, Py_ssize_t room, int *length) {
    *length = 1;
    switch (room > 0 ? *at : 0) {
    case '"': case '\\': case '/': return *at;
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    }
    *length = 5;
    if (room < 5 || *at != 'u' || at[1] != '0' || at[2] != '0') return -1;
    int high = hex_of(at[3]), low = hex_of(at[4]);
    return high < 0 || high > 7 || low < 0 ? -1 : high << 4 | low;
}

static int read_string(Json *json, String *string) {
    if (!read_sign(json, '"')) return 0;
    const uint8_t *at = json->at;
    Py_ssize_t size = 0;
    for (; at < json->end && *at != '"'; at++, size++) {
        int length;
        if (*at >= 0x80) return 0;
        if (*at != '\\') continue;
        if (escaped(at + 1, json->end - at - 1, &length) < 0) return 0;
        at += length;
    }
    if (at >= json->end) return 0;
    *string = (String){{json->at, at - json->at}, size};
    json->at = at + 1;
    return 1;
}

static int read_number(Json *json, int32_t *number) {
    int sign = read_sign(json, '-') ? -1 : 1, length;
    const uint8_t *at = json->at;
    *number = 0;
    for (length = 0; at < json->end && *at >= '0' && *at <= '9'; at++)
        if (++length > DIGITS_MAX) return 0;
        else *number = *number * 10 + sign * (*at - '0');
    int is_number = length == 1 || (length > 1 && *json->at != '0');
    json->at = at;
    return is_number && at < json->end && *at != '.' && *at != 'e' && *at != 'E';
}

static PyObject *text_of(String string) {
    if (string.size == 0) return PyUnicode_New(0, 0);
    if (string.raw.size == string.size)
        return PyUnicode_FromStringAndSize((const char *)string.raw.at, string.size);
    PyObject *text = PyUnicode_New(string.size, 127);
    if (text == NULL) return NULL;
    uint8_t *to = PyUnicode_1BYTE_DATA(text);
    const uint8_t *at = string.raw.at, *end = at + string.raw.size;
    while (at < end) {
        int length = 0;
        *to++ = *at == '\\' ? (uint8_t)escaped(at + 1, end - at - 1, &length) : *at;
        at += 1 + length;
    }
    return text;
}

static int read_ext(Json *json, PyObject *ext) {
    String name, value;
    if (!read_sign(json, '{')) return 0;
    if (read_sign(json, '}')) return 1;
    do {
        if (PyDict_GET_SIZE(ext) == FIELDS_MAX || !read_string(json, &name) ||
            !read_sign(json, ':') || !read_string(json, &value))
            return 0;
        PyObject *key = text_of(name), *text = key == NULL ? NULL : text_of(value);
        int is_set = text != NULL && PyDict_SetItem(ext, key, text) == 0;
        Py_XDECREF(key);
        Py_XDECREF(text);
        if (!is_set) return 0;
    } while (read_sign(json, ','));
    return read_sign(json, '}');
}

typedef struct {
    int32_t code, opaque, flag, version;
    String language, remark;
    PyObject *ext;
    int has_ext;
} Header;

static int read_field(Json *json, Header *header) {
    String name;
    if (!read_string(json, &name) || !read_sign(json, ':')) return 0;
#define IS(text) \
    (name.raw.size == sizeof(text) - 1 && memcmp(name.raw.at, text, sizeof(text) - 1) == 0)
    if (IS("code")) return read_number(json, &header->code);
    if (IS("opaque")) return read_number(json, &header->opaque);
    if (IS("flag")) return read_number(json, &header->flag);
    if (IS("version")) return read_number(json, &header->version);
    if (IS("language")) return read_string(json, &header->language);
    if (IS("remark")) return read_string(json, &header->remark);
    if (IS("extFields")) return !header->has_ext++ && read_ext(json, header->ext);
    String other;
    return IS("serializeTypeCurrentRPC") && read_string(json, &other);
#undef IS
}

static int read_header(Json *json, Header *header) {
    if (!read_sign(json, '{')) return 0;
    do {
        if (!read_field(json, header)) return 0;
    } while (read_sign(json, ','));
    return read_sign(json, '}') && json->at == json->end;
}

PyObject *named_tuple(PyTypeObject *type, PyObject *items) {
    if (items == NULL) return NULL;
    PyObject *made = NULL, *args = PyTuple_Pack(1, items);
    if (!PyType_IsSubtype(type, &PyTuple_Type))
        PyErr_SetString(PyExc_TypeError, "not the class of a named tuple");
    else if (args != NULL)
        made = PyTuple_Type.tp_new(type, args, NULL);
    Py_DECREF(items);
    Py_XDECREF(args);
    return made;
}

static PyObject *command_of(PyTypeObject *type, const Header *header, PyObject *body) {
    return named_tuple(
        type, Py_BuildValue(
                  "(iiOOiNNiO)", header->code, header->opaque, header->ext, body, header->flag,
                  text_of(header->remark), text_of(header->language), header->version, Py_False));
}

/* The command of a frame: false if it is not a whole one with an ordinary header of JSON, or with an
   error set.  end: where the frame ends. */
static int read_frame(Text data, const Bounds *bounds, PyObject **command, Py_ssize_t *end) {
    if (data.size < START_BYTES) return 0;
    int64_t length = (int32_t)get32(data.at);
    uint32_t header_bytes = get32(data.at + LENGTH_BYTES);
    if (header_bytes > bounds->header_bytes_max || length > bounds->frame_bytes_max ||
        length < START_BYTES - LENGTH_BYTES + header_bytes || length > data.size - LENGTH_BYTES)
        return 0;
    *end = (Py_ssize_t)(LENGTH_BYTES + length);
    const uint8_t *body_at = data.at + START_BYTES + header_bytes;
    Json json = {data.at + START_BYTES, body_at};
    Header header = {.ext = PyDict_New()};
    PyObject *body = NULL;
    *command = NULL;
    if (header.ext != NULL && read_header(&json, &header))
        body = PyBytes_FromStringAndSize((const char *)body_at, data.at + *end - body_at);
    if (body != NULL) *command = command_of(bounds->type, &header, body);
    Py_XDECREF(header.ext);
    Py_XDECREF(body);
    return *command != NULL;
}

PyObject *read_frames(PyObject *self, PyObject *args) {
    (void)self;
    Py_buffer bytes;
    PyObject *commands, *type, *command;
    Py_ssize_t at, most, end;
    Bounds bounds;
    if (!PyArg_ParseTuple(
            args, "y*nO!nLLO!", &bytes, &at, &PyList_Type, &commands, &most,
            &bounds.frame_bytes_max, &bounds.header_bytes_max, &PyType_Type, &type))
        return NULL;
    bounds.type = (PyTypeObject *)type;
    while (PyList_GET_SIZE(commands) != most && at >= 0 && at < bytes.len) {
        Text data = {(const uint8_t *)bytes.buf + at, bytes.len - at};
        if (!read_frame(data, &bounds, &command, &end)) break;
        int is_added = PyList_Append(commands, command) == 0;
        Py_DECREF(command);
        if (!is_added) break;
        at += end;
    }
    PyBuffer_Release(&bytes);
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(at);
}
