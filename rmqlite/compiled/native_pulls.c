/* Pulls of rmqlite.v1: from records to the messages of the answer.

   proto/ has the numbers of the fields; protobuf.h has the wire format. */

#include "protobuf.h"
#include "records.h"

enum { KEPT_BYTES_MAX = 256 }; /* of a message, without its content */

static uint8_t *put_host(uint8_t *at, int field, const uint8_t *host) {
    char text[32];
    int size = snprintf(
        text, sizeof(text), "%u.%u.%u.%u:%u", host[0], host[1], host[2], host[3],
        get32(host + 4));
    return put_content(at, field, (Text){(const uint8_t *)text, size});
}

/* Each pair of a property string as an entry of a map; as find_properties() takes it apart. */
static uint8_t *put_entries(uint8_t *at, int field, Text string) {
    const uint8_t *from = string.at, *end = from + string.size;
    while (from < end) {
        const uint8_t *pair_end = memchr(from, 2, end - from);
        if (pair_end == NULL) pair_end = end;
        const uint8_t *name_end = memchr(from, 1, pair_end - from);
        if (name_end != NULL && name_end > from && name_end + 1 < pair_end) {
            Text name = {from, name_end - from}, value = {name_end + 1, pair_end - name_end - 1};
            at = put_entry(at, field, name, value);
        }
        from = pair_end + 1;
    }
    return at;
}

/* The parts of a record that have no fixed place. */
typedef struct {
    const uint8_t *head;
    Text body, topic, properties;
} Kept;

/* False if the bytes are not exactly one ordinary record. */
static int read_kept(Kept *kept, Text record) {
    const uint8_t *head = record.at;
    if (record.size < HEAD_BYTES + LENGTHS_BYTES || get32(head + MAGIC_AT) != MAGIC ||
        (int64_t)get32(head + SIZE_AT) != record.size || get32(head + SYS_FLAG_AT) & V6_FLAGS)
        return 0;
    int64_t body_bytes = (int32_t)get32(head + BODY_SIZE_AT);
    int64_t topic_at = HEAD_BYTES + body_bytes + 1;
    if (body_bytes < 0 || topic_at > record.size) return 0;
    int64_t topic_bytes = head[topic_at - 1], properties_at = topic_at + topic_bytes + 2;
    if (properties_at > record.size) return 0;
    int64_t bytes = head[properties_at - 2] << 8 | head[properties_at - 1];
    if (bytes > INT16_MAX || properties_at + bytes != record.size) return 0;
    *kept = (Kept){
        head, {head + HEAD_BYTES, body_bytes}, {head + topic_at, topic_bytes},
        {head + properties_at, bytes}};
    uint32_t hash = 0;
    if (!hash_text(&hash, kept->topic.at, kept->topic.size)) return 0;
    if (hash_text(&hash, kept->properties.at, kept->properties.size)) return 1;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)head + properties_at, bytes, NULL);
    if (text == NULL) PyErr_Clear();
    Py_XDECREF(text);
    return text != NULL;
}

static uint8_t *put_kept(uint8_t *at, const Kept *kept) {
    const uint8_t *head = kept->head;
    at = put_content(at, 1, kept->topic);
    at = put_number(at, 2, (int32_t)get32(head + QUEUE_ID_AT));
    at = put_number(at, 3, (int64_t)get64(head + QUEUE_OFFSET_AT));
    at = put_number(at, 4, (int64_t)get64(head + PHYSICAL_OFFSET_AT));
    at = put_number(at, 5, (int32_t)get32(head + SIZE_AT));
    at = put_content(at, 6, kept->body);
    at = put_entries(at, 7, kept->properties);
    at = put_number(at, 8, (int32_t)get32(head + FLAG_AT));
    at = put_number(at, 9, (int32_t)get32(head + SYS_FLAG_AT));
    at = put_number(at, 10, (int64_t)get64(head + BORN_TIMESTAMP_AT));
    at = put_host(at, 11, head + BORN_HOST_AT);
    at = put_number(at, 12, (int64_t)get64(head + STORE_TIMESTAMP_AT));
    at = put_host(at, 13, head + STORE_HOST_AT);
    at = put_number(at, 14, (int32_t)get32(head + RECONSUME_TIMES_AT));
    return put_number(at, 15, (int64_t)get64(head + PREPARED_TRANSACTION_OFFSET_AT));
}

/* The most bytes that a record takes: a pair of 4 bytes becomes 12 at most. */
static Py_ssize_t kept_bytes_max(const Kept *kept) {
    return KEPT_BYTES_MAX + kept->topic.size + kept->body.size + 4 * kept->properties.size;
}

PyObject *write_kept(PyObject *self, PyObject *args) {
    (void)self;
    const char *records;
    Py_ssize_t size, count, room = 0;
    int field;
    if (!PyArg_ParseTuple(args, "y#ni", &records, &size, &count, &field)) return NULL;
    if (count < 0 || count > size / HEAD_BYTES) Py_RETURN_NONE;
    Kept *all = PyMem_Malloc((count ? count : 1) * sizeof(Kept));
    if (all == NULL) return PyErr_NoMemory();
    PyObject *result = NULL;
    const uint8_t *from = (const uint8_t *)records, *end = from + size;
    for (Py_ssize_t i = 0; i < count; i++) {
        Text record = {from, end - from};
        if (record.size >= HEAD_BYTES && get32(from + SIZE_AT) < record.size)
            record.size = get32(from + SIZE_AT);
        if (!read_kept(&all[i], record)) {
            result = Py_NewRef(Py_None);
            goto done;
        }
        room += kept_bytes_max(&all[i]);
        from += record.size;
    }
    result = PyBytes_FromStringAndSize(NULL, room);
    if (result == NULL) goto done;
    uint8_t *first = (uint8_t *)PyBytes_AS_STRING(result), *at = first;
    for (Py_ssize_t i = 0; i < count; i++) {
        *at++ = (uint8_t)TAG(field, CONTENT);
        at = put_length(at, put_kept(at + LENGTH_BYTES_MAX, &all[i]));
    }
    _PyBytes_Resize(&result, at - first);
done:
    PyMem_Free(all);
    return result;
}
