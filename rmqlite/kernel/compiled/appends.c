/* Appends: from NewRecords, and from drafts, to records without places. */

#include "records.h"

enum { DRAFT_FIELDS = 11, FIELDS = 12, QUEUES_MAX = 256, PROPERTIES_BYTES_MAX = INT16_MAX, HOST_BYTES = 8 };

typedef struct {
    PyObject *topic;
    Text name;
    int32_t queue_id;
    uint32_t prefix;
} Queue;

/* The fields of a NewRecord; the texts belong to its objects. */
typedef struct {
    PyObject *topic, *encoded; /* encoded is owned */
    Text body, properties, born_host, store_host;
    long long queue_id, crc, flag, sys_flag, born_timestamp_ms, times, completes;
} Fields;

static int is_text(Text *text, PyObject *bytes) {
    if (!PyBytes_Check(bytes)) return 0;
    *text = (Text){(const uint8_t *)PyBytes_AS_STRING(bytes), PyBytes_GET_SIZE(bytes)};
    return 1;
}

static int is_number(long long *number, PyObject *value, long long least, long long most) {
    int overflow = 0;
    if (!PyLong_Check(value)) return 0;
    *number = PyLong_AsLongLongAndOverflow(value, &overflow);
    return !overflow && least <= *number && *number <= most;
}

/* False if the record is out of the ordinary; then its encoded may be NULL. */
static int read_fields(Fields *fields, PyObject *record, PyObject *encoded_name) {
    fields->encoded = NULL;
    if (!PyTuple_Check(record) || PyTuple_GET_SIZE(record) != FIELDS) return 0;
    PyObject **items = &PyTuple_GET_ITEM(record, 0);
    fields->topic = items[0];
    fields->encoded = PyObject_GetAttr(items[2], encoded_name);
    if (fields->encoded == NULL) {
        PyErr_Clear();
        return 0;
    }
    return PyUnicode_Check(fields->topic) && is_text(&fields->properties, fields->encoded) &&
           fields->properties.size <= PROPERTIES_BYTES_MAX && is_text(&fields->body, items[3]) &&
           fields->body.size <= INT32_MAX && is_text(&fields->born_host, items[8]) &&
           fields->born_host.size == HOST_BYTES && is_text(&fields->store_host, items[9]) &&
           fields->store_host.size == HOST_BYTES &&
           is_number(&fields->queue_id, items[1], 0, INT32_MAX) &&
           is_number(&fields->crc, items[4], 0, INT32_MAX) &&
           is_number(&fields->flag, items[5], INT32_MIN, INT32_MAX) &&
           is_number(&fields->sys_flag, items[6], INT32_MIN, INT32_MAX) &&
           is_number(&fields->born_timestamp_ms, items[7], INT64_MIN, INT64_MAX) &&
           is_number(&fields->times, items[10], INT32_MIN, INT32_MAX) &&
           is_number(&fields->completes, items[11], INT64_MIN, INT64_MAX);
}

/* The number of a queue, a new one if need be; -1 if there are too many, or an odd topic. */
static int queue_of(Queue *all, int *count, const Fields *fields) {
    for (int i = 0; i < *count; i++)
        if (all[i].queue_id == fields->queue_id &&
            (all[i].topic == fields->topic ||
             PyUnicode_Compare(all[i].topic, fields->topic) == 0))
            return i;
    Py_ssize_t size;
    const uint8_t *name = (const uint8_t *)PyUnicode_AsUTF8AndSize(fields->topic, &size);
    if (name == NULL) PyErr_Clear();
    uint32_t prefix = 0;
    if (name == NULL || *count == QUEUES_MAX || size > TOPIC_BYTES_MAX ||
        !hash_text(&prefix, name, size))
        return -1;
    all[*count] = (Queue){
        fields->topic, {name, size}, (int32_t)fields->queue_id, 31 * prefix + '#'};
    return (*count)++;
}

static int is_timers(const Queue *queue) {
    static const char topic[] = "rmq_sys_wheel_timer";
    return queue->queue_id == 0 && queue->name.size == sizeof(topic) - 1 &&
           memcmp(queue->name.at, topic, sizeof(topic) - 1) == 0;
}

static Py_ssize_t write_record(uint8_t *out, const Fields *fields, Text topic) {
    Py_ssize_t size = HEAD_BYTES + LENGTHS_BYTES + fields->body.size + topic.size +
                      fields->properties.size;
    memset(out, 0, HEAD_BYTES);
    put32(out + SIZE_AT, (uint32_t)size);
    put32(out + MAGIC_AT, MAGIC);
    put32(out + BODY_CRC_AT, (uint32_t)fields->crc);
    put32(out + FLAG_AT, (uint32_t)fields->flag);
    put32(out + SYS_FLAG_AT, (uint32_t)fields->sys_flag);
    put64(out + BORN_TIMESTAMP_AT, (uint64_t)fields->born_timestamp_ms);
    memcpy(out + BORN_HOST_AT, fields->born_host.at, HOST_BYTES);
    memcpy(out + STORE_HOST_AT, fields->store_host.at, HOST_BYTES);
    put32(out + RECONSUME_TIMES_AT, (uint32_t)fields->times);
    put64(out + PREPARED_TRANSACTION_OFFSET_AT, (uint64_t)fields->completes);
    put32(out + BODY_SIZE_AT, (uint32_t)fields->body.size);
    uint8_t *at = out + HEAD_BYTES;
    memcpy(at, fields->body.at, fields->body.size);
    at += fields->body.size;
    *at++ = (uint8_t)topic.size;
    memcpy(at, topic.at, topic.size);
    at += topic.size;
    *at++ = (uint8_t)(fields->properties.size >> 8);
    *at++ = (uint8_t)fields->properties.size;
    memcpy(at, fields->properties.at, fields->properties.size);
    return size;
}

typedef struct {
    Queue all[QUEUES_MAX];
    int count;
} Queues;

/* Add a record; false if it is out of the ordinary, or with an error set. */
static int add_record(Block *block, Queues *queues, const Fields *fields, Py_ssize_t number) {
    int queue = queue_of(queues->all, &queues->count, fields);
    Properties found = {0};
    find_properties(&found, fields->properties.at, fields->properties.size);
    uint32_t tags_code = 0;
    int64_t due_ms = 0;
    if (queue < 0 || !hash_text(&tags_code, found.tags.at, found.tags.size) ||
        (is_timers(queues->all + queue) && !timer_due(&due_ms, &found)) ||
        !add_keys(&block->keys, &found, queues->all[queue].prefix, (uint32_t)number))
        return 0;
    Py_ssize_t most = block->size + HEAD_BYTES + LENGTHS_BYTES + TOPIC_BYTES_MAX +
                      fields->body.size + fields->properties.size;
    /* By half as much again, so that it seldom moves. */
    if (PyByteArray_GET_SIZE(block->data) < most &&
        PyByteArray_Resize(block->data, most + most / 2) < 0)
        return 0;
    uint8_t *out = (uint8_t *)PyByteArray_AS_STRING(block->data) + block->size;
    Py_ssize_t bytes = write_record(out, fields, queues->all[queue].name);
    block->rows[number] = (Row){(uint32_t)bytes, (uint32_t)queue, due_ms ? due_ms : (int32_t)tags_code};
    block->size += bytes;
    return 1;
}

static PyObject *queue_keys(const Queue *queues, int count) {
    PyObject *list = PyList_New(count);
    for (int i = 0; list != NULL && i < count; i++) {
        PyObject *key = Py_BuildValue("Oi", queues[i].topic, queues[i].queue_id);
        if (key == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, i, key);
    }
    return list;
}

PyObject *pack_records(PyObject *self, PyObject *records) {
    (void)self;
    static PyObject *encoded_name;
    if (encoded_name == NULL && !(encoded_name = PyUnicode_InternFromString("encoded")))
        return NULL;
    Py_ssize_t count = PyList_Check(records) ? PyList_GET_SIZE(records) : 0;
    if (count < 1 || count > INT32_MAX) Py_RETURN_NONE;
    Block block;
    if (!begin_block(&block, count, 0)) return NULL;
    Queues queues;
    queues.count = 0;
    int is_ordinary = 1;
    for (Py_ssize_t i = 0; is_ordinary && i < count; i++) {
        Fields fields;
        is_ordinary = read_fields(&fields, PyList_GET_ITEM(records, i), encoded_name) &&
                      add_record(&block, &queues, &fields, i);
        Py_XDECREF(fields.encoded);
    }
    PyObject *result = NULL;
    if (is_ordinary)
        result = Py_BuildValue("NN", packed(&block), queue_keys(queues.all, queues.count));
    else if (!PyErr_Occurred()) result = Py_NewRef(Py_None);
    free_block(&block);
    return result;
}

/* ---- drafts */

#define WAITS "\2WAIT\1true"
#define EXACT "\2TIMER_EXACT\1" "1"

/* TIMER stands for a level in the bytes of pack_drafts(). */
enum {
    ODD = -2,
    TIMER = 127,
    REAL_QID_BYTES_MAX = 40,
    STRING_BYTES_MAX = 3 * PROPERTIES_BYTES_MAX,
    ADDED_BYTES = HEAD_BYTES + LENGTHS_BYTES + 160, /* to body and properties, roughly */
};

typedef struct {
    PyObject *targets, *schedule_topic, *timers_topic;
    long long now_ms, delay_ms_max; /* of timers */
    Py_buffer store_host;
    Py_ssize_t levels, body_max, properties_max, record_max, keys_max;
} Drafts;

static int read_draft(Fields *fields, Text *spans, PyObject *draft, const Drafts *drafts) {
    if (!PyTuple_Check(draft) || PyTuple_GET_SIZE(draft) != DRAFT_FIELDS) return 0;
    PyObject **items = &PyTuple_GET_ITEM(draft, 0);
    fields->topic = items[0];
    fields->store_host = (Text){drafts->store_host.buf, drafts->store_host.len};
    fields->completes = 0;
    if (!PyUnicode_Check(fields->topic) || !is_text(&fields->properties, items[2]) ||
        !is_text(&fields->body, items[3]) || !is_text(&fields->born_host, items[5]) ||
        fields->born_host.size != HOST_BYTES || !is_text(spans, items[9]) ||
        !is_number(&fields->queue_id, items[1], 0, INT32_MAX) ||
        !is_number(&fields->born_timestamp_ms, items[4], INT64_MIN, INT64_MAX) ||
        !is_number(&fields->flag, items[6], INT32_MIN, INT32_MAX) ||
        !is_number(&fields->sys_flag, items[7], INT32_MIN, INT32_MAX) ||
        !is_number(&fields->times, items[8], INT32_MIN, INT32_MAX))
        return 0;
    fields->sys_flag &= ~ODD_FLAGS;
    return !(fields->sys_flag & CHECKED_FLAGS);
}

/* The level of a delay of one or two digits, if there is one; 0 for any other text. */
static int level_of(Text delay, Py_ssize_t levels) {
    int level = 0;
    if (delay.size < 1 || delay.size > 2 || delay.at[0] == '0') return 0;
    for (Py_ssize_t i = 0; i < delay.size; i++) {
        if (delay.at[i] < '0' || delay.at[i] > '9') return 0;
        level = 10 * level + delay.at[i] - '0';
    }
    return level <= levels ? level : 0;
}

/* Copy a property string without WAIT, see kernel/sends/packing.py; its length. */
static Py_ssize_t without_wait(uint8_t *string, Text own) {
    static const char name[] = "WAIT\1";
    const uint8_t *at = own.at, *end = own.at + own.size;
    Py_ssize_t size = 0, name_bytes = sizeof(name) - 1;
    int is_first = 1;
    for (;;) {
        const uint8_t *part_end = memchr(at, 2, end - at);
        if (part_end == NULL) part_end = end;
        if (part_end - at < name_bytes || memcmp(at, name, name_bytes) != 0) {
            if (!is_first) string[size++] = 2;
            is_first = 0;
            memcpy(string + size, at, part_end - at);
            size += part_end - at;
        }
        if (part_end == end) return size;
        at = part_end + 1;
    }
}

/* Make the property string of a message that waits or not; its length, 0 if it is odd. */
static Py_ssize_t write_string(
    uint8_t *string, const Fields *fields, const Properties *found, PyObject *target, int level,
    int64_t due_ms, int is_in_batch) {
    Text ending;
    if (!PyTuple_Check(target) || PyTuple_GET_SIZE(target) != 2 ||
        !is_text(&ending, PyTuple_GET_ITEM(target, level || due_ms)) ||
        ending.size > PROPERTIES_BYTES_MAX)
        return 0;
    /* What routed() in kernel/routing.py would not only add to the end. */
    if (found->cluster.size || found->tran_msg.size || found->real_topic.size ||
        found->real_qid.size)
        return 0;
    Py_ssize_t size = level || due_ms || is_in_batch || !found->wait.size
                          ? join(string, 0, fields->properties)
                          : without_wait(string, fields->properties);
    size = join(string, size, ending);
    if (level)
        size += snprintf(
            (char *)string + size, REAL_QID_BYTES_MAX, found->wait.size ? "%lld" : "%lld" WAITS,
            fields->queue_id);
    if (!due_ms) return size;
    size += snprintf(
        (char *)string + size, REAL_QID_BYTES_MAX, "%lld" EXACT, fields->queue_id);
    return join_due(string, size, due_ms);
}

/* Add a message; the level at which it waits or 0, ODD, or -1 with an error set. */
static int add_message(
    Block *block, Queues *queues, const Drafts *drafts, Fields fields, PyObject *target,
    Py_ssize_t number, uint8_t *string, int is_in_batch) {
    if (fields.body.size < 1 || fields.body.size > drafts->body_max ||
        fields.properties.size > drafts->properties_max)
        return ODD;
    Properties found = {0};
    find_properties(&found, fields.properties.at, fields.properties.size);
    int level = level_of(found.delay, drafts->levels);
    int64_t due_ms = 0;
    if (has_timer(&found)) {
        due_ms = level ? 0 : asked_due(&found, drafts->now_ms, drafts->delay_ms_max);
        if (!due_ms) return ODD;
    }
    if ((found.delay.size && !level) || count_of(found.keys, ' ') >= drafts->keys_max) return ODD;
    Py_ssize_t size = write_string(string, &fields, &found, target, level, due_ms, is_in_batch);
    if (size == 0 || size > drafts->properties_max) return ODD;
    uint32_t crc;
    if (!body_crc(&crc, fields.body.at, fields.body.size)) return -1;
    fields.crc = crc;
    fields.properties = (Text){string, size};
    if (level) fields.topic = drafts->schedule_topic, fields.queue_id = level - 1;
    if (due_ms) fields.topic = drafts->timers_topic, fields.queue_id = 0, level = TIMER;
    Py_ssize_t most =
        HEAD_BYTES + LENGTHS_BYTES + TOPIC_BYTES_MAX + fields.body.size + fields.properties.size;
    if (most > drafts->record_max) return ODD;
    if (add_record(block, queues, &fields, number)) return level;
    return PyErr_Occurred() ? -1 : ODD;
}

/* The packed records in the making, with a byte for each. */
typedef struct {
    Block block;
    Queues queues;
    Py_ssize_t number;
    char *levels;
    uint8_t *string; /* with room for two property strings */
} Making;

/* Add the messages of a draft; 0, ODD, or -1 with an error set. */
static int add_draft(Making *making, const Drafts *drafts, PyObject *draft) {
    Fields fields;
    Text spans;
    if (!read_draft(&fields, &spans, draft, drafts)) return ODD;
    PyObject *target = PyDict_GetItemWithError(drafts->targets, fields.topic);
    if (target == NULL) return PyErr_Occurred() ? -1 : ODD;
    Text all = fields.body, common = fields.properties;
    const int32_t *span = (const int32_t *)spans.at;
    Py_ssize_t rest = spans.size / (Py_ssize_t)(SPAN_NUMBERS * sizeof(int32_t));
    int is_in_batch = spans.size > 0, level;
    do {
        if (is_in_batch) {
            if (rest < 1 || span[1] < 0 || span[1] > span[2] || span[2] > all.size ||
                span[3] < 0 || span[3] > span[4] || span[4] > all.size)
                return ODD;
            fields.flag = span[0];
            fields.body = (Text){all.at + span[1], span[2] - span[1]};
            fields.properties = (Text){all.at + span[3], span[4] - span[3]};
            if (fields.properties.size + common.size > drafts->properties_max) return ODD;
            if (common.size) {
                uint8_t *own = making->string + STRING_BYTES_MAX;
                Py_ssize_t size = join(own, join(own, 0, fields.properties), common);
                fields.properties = (Text){own, size};
            }
            span += SPAN_NUMBERS;
        }
        level = add_message(
            &making->block, &making->queues, drafts, fields, target, making->number,
            making->string, is_in_batch);
        if (level < 0) return level;
        making->levels[making->number++] = (char)level;
    } while (--rest > 0);
    return 0;
}

/* How many messages drafts are, and about how many bytes; -1 if one is no draft. */
static Py_ssize_t count_messages(PyObject *list, Py_ssize_t *bytes) {
    Py_ssize_t count = 0;
    Text body, spans;
    *bytes = 0;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); i++) {
        PyObject *draft = PyList_GET_ITEM(list, i);
        if (!PyTuple_Check(draft) || PyTuple_GET_SIZE(draft) != DRAFT_FIELDS ||
            !is_text(&body, PyTuple_GET_ITEM(draft, 3)) ||
            !is_text(&spans, PyTuple_GET_ITEM(draft, 9)))
            return -1;
        Py_ssize_t mine = spans.size / (Py_ssize_t)(SPAN_NUMBERS * sizeof(int32_t));
        count += mine ? mine : 1;
        *bytes += body.size;
    }
    *bytes += count * ADDED_BYTES;
    return count;
}

static PyObject *packed_drafts(PyObject *list, const Drafts *drafts) {
    Py_ssize_t bytes, count = count_messages(list, &bytes);
    if (count < 1 || count > INT32_MAX || drafts->store_host.len != HOST_BYTES ||
        drafts->properties_max > PROPERTIES_BYTES_MAX)
        Py_RETURN_NONE;
    Making making;
    if (!begin_block(&making.block, count, bytes)) return NULL;
    making.queues.count = making.number = 0;
    PyObject *result = NULL, *levels = PyBytes_FromStringAndSize(NULL, count);
    making.string = PyMem_Malloc(2 * STRING_BYTES_MAX);
    if (making.string == NULL) PyErr_NoMemory();
    int found = levels == NULL || making.string == NULL ? -1 : 0;
    if (found == 0) making.levels = PyBytes_AS_STRING(levels);
    for (Py_ssize_t i = 0; found == 0 && i < PyList_GET_SIZE(list); i++)
        found = add_draft(&making, drafts, PyList_GET_ITEM(list, i));
    if (found == 0)
        result = Py_BuildValue(
            "NNO", packed(&making.block), queue_keys(making.queues.all, making.queues.count),
            levels);
    else if (found == ODD) result = Py_NewRef(Py_None);
    PyMem_Free(making.string);
    Py_XDECREF(levels);
    free_block(&making.block);
    return result;
}

PyObject *pack_drafts(PyObject *self, PyObject *args) {
    (void)self;
    Drafts drafts;
    PyObject *list;
    if (!PyArg_ParseTuple(
            args, "O!O!UnULLy*nnnn", &PyList_Type, &list, &PyDict_Type, &drafts.targets,
            &drafts.schedule_topic, &drafts.levels, &drafts.timers_topic, &drafts.now_ms,
            &drafts.delay_ms_max, &drafts.store_host, &drafts.body_max,
            &drafts.properties_max, &drafts.record_max, &drafts.keys_max))
        return NULL;
    PyObject *result = packed_drafts(list, &drafts);
    PyBuffer_Release(&drafts.store_host);
    return result;
}
