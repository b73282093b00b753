/* What the loops share: the layouts, big-endian numbers, property strings and keys. */

#ifndef RMQLITE_RECORDS_H
#define RMQLITE_RECORDS_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The layout of a record, see kernel/records/record.py. */
enum {
    SIZE_AT = 0,
    MAGIC_AT = 4,
    BODY_CRC_AT = 8,
    QUEUE_ID_AT = 12,
    FLAG_AT = 16,
    QUEUE_OFFSET_AT = 20,
    PHYSICAL_OFFSET_AT = 28,
    SYS_FLAG_AT = 36,
    BORN_TIMESTAMP_AT = 40,
    BORN_HOST_AT = 48,
    STORE_TIMESTAMP_AT = 56,
    STORE_HOST_AT = 64,
    RECONSUME_TIMES_AT = 72,
    PREPARED_TRANSACTION_OFFSET_AT = 76,
    BODY_SIZE_AT = 84,
    HEAD_BYTES = 88,
    LENGTHS_BYTES = 3, /* of topic and properties, behind the body */
    BORN_V6_FLAG = 0x10,
    V6_FLAGS = 0x30,   /* of IPv6 hosts */
    V6_MORE_BYTES = 12,
    ODD_FLAGS = 0x0C | V6_FLAGS, /* and of transactions */
    CHECKED_FLAGS = 0xC1, /* of compressed bodies and inner batches, see kernel/admission.py */
};
static const uint32_t MAGIC = 0xDAA320A7;

enum { ENTRY_BYTES = 20, TOPIC_BYTES_MAX = 127, SPAN_NUMBERS = 5 };

/* A record of a block of packed ones; ROW in __init__.py. */
typedef struct {
    uint32_t size;
    uint32_t queue; /* number of the queue in the list of queues */
    int64_t code;   /* tags code; of a timer, when it is due */
} Row;

/* A key of the index; KEY in __init__.py. */
typedef struct {
    uint32_t hash;
    uint32_t row;
} Key;

typedef struct {
    Key *all;
    Py_ssize_t count, room;
} Keys;

/* Packed records in the making. */
typedef struct {
    PyObject *data; /* a bytearray with room, of which size bytes are written */
    Py_ssize_t size, count;
    Row *rows;
    Keys keys;
} Block;

typedef struct {
    const uint8_t *at;
    Py_ssize_t size;
} Text;

/* The values that matter here: of several pairs of a name, the last one that has a value. */
typedef struct {
    Text uniq_key, keys, tags, delay, wait, real_topic, real_qid, cluster, tran_msg;
    Text timer_delay_s, timer_delay_ms, timer_at_ms, timer_out, timer_exact;
    Text timer; /* any other of a timer, or an expiry */
} Properties;

static inline uint32_t get32(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline uint64_t get64(const uint8_t *at) {
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

static inline void put32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static inline void put64(uint8_t *at, uint64_t value) {
    put32(at, (uint32_t)(value >> 32));
    put32(at + 4, (uint32_t)value);
}

/* Does a message have a property of timers? */
static inline int has_timer(const Properties *found) {
    return found->timer_delay_s.size || found->timer_delay_ms.size || found->timer_at_ms.size ||
           found->timer_out.size || found->timer_exact.size || found->timer.size;
}

#pragma GCC visibility push(hidden)

/* The properties in a string of so many bytes (see property_string.py). */
void find_properties(Properties *found, const uint8_t *at, Py_ssize_t size);

enum { TIMER_OUT_BYTES_MAX = 40 };

/* When the record of a timer is due; false if it is not one of ours. */
int timer_due(int64_t *due_ms, const Properties *found);

/* When a message asks to be delivered, see TimerRules in kernel/admission.py; 0 if that has to say
   it, or to refuse it. */
int64_t asked_due(const Properties *found, long long now_ms, long long delay_ms_max);

/* Add the instant to a property string of so many bytes; how many it has then. */
Py_ssize_t join_due(uint8_t *string, Py_ssize_t size, int64_t due_ms);

/* Java's hash of a text of ASCII behind another hash; false for any other text. */
int hash_text(uint32_t *hash, const uint8_t *at, Py_ssize_t size);

/* Add a record's UNIQ_KEY and each of its KEYS; false if one is not of ASCII, or on an error. */
int add_keys(Keys *keys, const Properties *found, uint32_t prefix, uint32_t row);

/* The CRC-32 of a body, its lowest 31 bits; false with an error set. */
int body_crc(uint32_t *crc, const uint8_t *at, Py_ssize_t size);

Py_ssize_t count_of(Text text, uint8_t wanted);

/* Add a part to a property string of so many bytes; how many it has then. */
Py_ssize_t join(uint8_t *string, Py_ssize_t size, Text part);

/* A named tuple by tuple.__new__(): a call of its class takes twice as long.  Takes the items. */
PyObject *named_tuple(PyTypeObject *type, PyObject *items);

/* A block of so many records, to be freed by free_block(); false with an error set. */
int begin_block(Block *block, Py_ssize_t count, Py_ssize_t room);
void free_block(Block *block);

/* (data, rows, keys) of a whole block as Python objects; NULL with an error set. */
PyObject *packed(Block *block);

PyObject *batch_spans(PyObject *self, PyObject *args);
PyObject *pack_records(PyObject *self, PyObject *records);
PyObject *pack_drafts(PyObject *self, PyObject *args);
PyObject *pack_deliveries(PyObject *self, PyObject *args);
PyObject *place(PyObject *self, PyObject *args);
PyObject *enter_keys(PyObject *self, PyObject *args);
PyObject *read_frames(PyObject *self, PyObject *args);
PyObject *make_draft(PyObject *self, PyObject *args);
PyObject *write_messages(PyObject *self, PyObject *messages);
PyObject *read_messages(PyObject *self, PyObject *args);
PyObject *copied(PyObject *self, PyObject *args);
PyObject *log_reads(PyObject *self, PyObject *args);
PyObject *whole_records(PyObject *self, PyObject *args);
PyObject *record_starts(PyObject *self, PyObject *args);
PyObject *record_parts(PyObject *self, PyObject *args);
PyObject *topic_texts(PyObject *self, PyObject *args);
PyObject *plain_run(PyObject *self, PyObject *args);
PyObject *whole_length(PyObject *self, PyObject *args);
PyObject *hashed_keys(PyObject *self, PyObject *args);
PyObject *sync_new(PyObject *self, PyObject *args);
PyObject *sync_put(PyObject *self, PyObject *args);
PyObject *sync_run(PyObject *self, PyObject *capsule);
PyObject *sync_take(PyObject *self, PyObject *capsule);

extern PyObject *crc32_of_zlib; /* zlib.crc32, a library that every Python has */

#pragma GCC visibility pop

#endif
