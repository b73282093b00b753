"""A message as one record of the commit log: NewRecord -> bytes, bytes -> StoredMessage.

The layout (reference §1.1), all integers big-endian; v4 addresses, 12 bytes more for each v6:

     0  total size     i32   of the whole record
     4  magic          i32   0xDAA320A7
     8  body CRC       i32   CRC-32 of the body, its lowest 31 bits
    12  queue id       i32
    16  flag           i32   the user's, stored unchanged
    20  queue offset   i64   ordinal in its queue
    28  physical offset i64  position of this record in the log
    36  sys flag       i32   0x0C transaction type, 0x10 / 0x20 born / store host is IPv6
    40  born timestamp i64   ms
    48  born host      8     address and port
    56  store timestamp i64  ms
    64  store host     8
    72  reconsume times i32
    76  prepared transaction offset i64: on a record that completes a scheduled one (see
                             completion.py), where that one ends; on a message that a transaction
                             commits, where its half message begins
    84  body length    i32   then the body
        topic length   i8    then the topic
        properties length i16  then the property string

A file ends with a blank: i32 bytes left, i32 0xCBD43194.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from rmqlite.kernel.records.key_hashes import text_hash, token_hash
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.message import (
    DELAY,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    StoredMessage,
    decode_properties,
    find_property,
    property_marker,
    unpack_host,
)
from rmqlite.kernel.words.names import TOPIC_BYTES_MAX
from rmqlite.kernel.words.property_string import PropertyString, java_int, number_of

Place = tuple[int, int]
"""The queue offset that a record will have, and when it is due: 0 for one that does not wait."""

MAGIC: Final = -626843481
BLANK_MAGIC: Final = -875286124
MAGIC_BYTES: Final = b"\xda\xa3\x20\xa7"
BLANK_BYTES: Final = 8
OVERHEAD_BYTES: Final = 91
"""A record's size without body, topic and properties, with v4 addresses."""
RECORD_BYTES_MIN: Final = OVERHEAD_BYTES
BORN_HOST_V6: Final = 0x10
STORE_HOST_V6: Final = 0x20
INNER_BATCH: Final = 0x40
NEED_UNWRAP: Final = 0x80
"""With both, the body of a RocketMQ 5 record is a batch that its client takes apart."""
TRANSACTION_TYPE: Final = 0x0C
PREPARED: Final = 0x04
COMMITTED: Final = 0x08
ROLLBACK: Final = 0x0C
NO_ENTRY: Final = PREPARED & ROLLBACK
"""The bit of the records that have no queue entry; see has_entry()."""

FIELDS: Final = {
    "size": "i",
    "magic": "i",
    "body_crc": "i",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "physical_offset": "q",
    "sys_flag": "i",
    "born_timestamp": "q",
    "born_host": "8s",
    "store_timestamp": "q",
    "store_host": "8s",
    "reconsume_times": "i",
    "prepared_transaction_offset": "q",
    "body_size": "i",
}
"""The header of a record with v4 addresses, as codes of struct.  All other forms of it are made of
this table, or compared with it: numpy's in spark/arrow/records.py, C's in compiled/records.h."""


def offset_of(name: str) -> int:
    """Where a field of the header begins; a v6 address before it takes 12 bytes more."""
    before = list(FIELDS).index(name)
    return struct.calcsize(">" + "".join(list(FIELDS.values())[:before]))


def layout_of_fields(*wanted: str) -> struct.Struct:
    """A layout that reads only some fields, and ends with the last of them."""
    assert [name for name in FIELDS if name in wanted] == [*wanted]
    codes = [
        code if name in wanted else f"{struct.calcsize('>' + code)}x"
        for name, code in FIELDS.items()
    ]
    last = list(FIELDS).index(wanted[-1])
    return struct.Struct(">" + "".join(codes[: last + 1]))


def _whole(born_host_bytes: int, store_host_bytes: int) -> struct.Struct:
    hosts = {"born_host": f"{born_host_bytes}s", "store_host": f"{store_host_bytes}s"}
    return struct.Struct(">" + "".join((FIELDS | hosts).values()))


BLANK: Final = layout_of_fields("size", "magic")
HEAD: Final = layout_of_fields(*FIELDS)
_HEADS: Final = {(born, store): _whole(born, store) for born in (8, 20) for store in (8, 20)}
_HEAD_BYTES_MAX: Final = max(each.size for each in _HEADS.values())
_FLAGS: Final = layout_of_fields("sys_flag")
_TAIL_BYTES_MAX: Final = 1 + 0xFF + 2 + 0xFFFF
"""The most bytes behind a body: topic, properties, and their lengths."""
_NO_TOPICS: Final = ("", ".", "..")
_TAGS = property_marker(TAGS)
_DELAY = DELAY.encode()
_REAL_TOPIC = REAL_TOPIC.encode()
_REAL_QID = REAL_QID.encode()


class NewRecord(NamedTuple):
    """A record that has no place yet; drafts.py makes it.

    born_host, store_host: 8 or 20 packed bytes.  completes: the end (physical offset) of the
    scheduled record that this one delivers, cancels or replaces, or the beginning of the half
    message that it commits; 0 for every other record.
    """

    topic: str
    queue_id: int
    properties: PropertyString
    body: bytes
    body_crc: int
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_host: bytes
    reconsume_times: int
    completes: int


class Head(NamedTuple):
    """The fixed part of a record as it lies in the log, and where topic and properties are."""

    size: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: bytes
    store_timestamp_ms: int
    store_host: bytes
    reconsume_times: int
    completes: int
    body_position: int
    body_end: int
    topic: str
    properties: bytes


def has_entry(sys_flag: int) -> bool:
    """Has a record a queue entry?  RocketMQ gives none to what it prepares or rolls back.

    A named repaired place has one, too: see is_repaired() of kernel/store/log/repaired_place.py.
    """
    return not sys_flag & NO_ENTRY


def is_indexed(sys_flag: int) -> bool:
    """Are the keys of a record in the index?  Not those of a record that is rolled back.

    A repaired place is such a record.
    """
    return sys_flag & TRANSACTION_TYPE != ROLLBACK


def one_more(times: int) -> int:
    """A number of times after one more; INT32_MAX stays, and a negative one counts as none."""
    return min(max(0, times) + 1, INT32_MAX)


def body_crc(body: bytes) -> int:
    """The lowest 31 bits of a body's CRC-32, as in a record; 0 for an empty body."""
    return zlib.crc32(body) & 0x7FFFFFFF


def layout_of(born_host: bytes, store_host: bytes) -> struct.Struct:
    """The header's layout for these hosts, each IPv4 or IPv6."""
    return _HEADS[len(born_host), len(store_host)]


def encode_blank(size: int) -> bytes:
    """The first bytes of the blank that fills the last `size` bytes of a file."""
    return BLANK.pack(size, BLANK_MAGIC)


def read_head(data: bytes, position: int = 0, skipped: int = 0) -> Head | None:
    """The record that begins at a position of data; None if those bytes are no whole record.

    Everything but the body's CRC is checked; see has_sound_body.  skipped: the length of the
    body if data lacks it; otherwise 0.
    """
    if len(data) - position + skipped < RECORD_BYTES_MIN:
        return None
    size, magic = BLANK.unpack_from(data, position)
    if magic != MAGIC or size < RECORD_BYTES_MIN or position + size - skipped > len(data):
        return None
    head = HEAD
    (sys_flag,) = _FLAGS.unpack_from(data, position)
    if sys_flag & (BORN_HOST_V6 | STORE_HOST_V6):
        head = _HEADS[20 if sys_flag & BORN_HOST_V6 else 8, 20 if sys_flag & STORE_HOST_V6 else 8]
        if position + head.size > len(data):
            return None
    (
        size,
        _,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        completes,
        body_length,
    ) = head.unpack_from(data, position)
    body_position = position + head.size
    body_end = body_position + body_length
    tail = _read_tail(data, body_end - skipped, position + size - skipped)
    if tail is None or body_length < 0 or queue_id < 0:
        return None
    return Head(
        size,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_timestamp_ms,
        store_host,
        reconsume_times,
        completes,
        body_position,
        body_end,
        *tail,
    )


def read_outline(read: Callable[[int, int], bytes], physical_offset: int, size: int) -> Head | None:
    """read_head() without reading the body; read(physical offset, size) reads the log."""
    front = read(physical_offset, min(size, _HEAD_BYTES_MAX))
    if len(front) < HEAD.size:
        return None
    sys_flag = _FLAGS.unpack_from(front)[0]
    head = _HEADS[20 if sys_flag & BORN_HOST_V6 else 8, 20 if sys_flag & STORE_HOST_V6 else 8]
    body_length = int.from_bytes(front[head.size - 4 : head.size], "big")
    tail_bytes = size - head.size - body_length
    # If no record begins there, these numbers are arbitrary: do not read a large tail.
    if len(front) < head.size or not 0 <= tail_bytes <= _TAIL_BYTES_MAX:
        return None
    tail = read(physical_offset + head.size + body_length, tail_bytes)
    found = read_head(front[: head.size] + tail, 0, body_length)
    return found if found and found.physical_offset == physical_offset else None


def _read_tail(data: bytes, body_end: int, end: int) -> tuple[str, bytes] | None:
    """Topic and properties, if they fill the bytes between the body and the record's end."""
    if not 0 <= body_end <= end - 3:
        return None
    topic_end = body_end + 1 + data[body_end]
    if topic_end + 2 > end:
        return None
    properties_length = (data[topic_end] << 8) | data[topic_end + 1]
    if topic_end + 2 + properties_length != end:
        return None
    topic = _topic_of(data[body_end + 1 : topic_end])
    return None if topic is None else (topic, data[topic_end + 2 : end])


def _topic_of(name: bytes) -> str | None:
    """The topic with this name in a record; None if no topic can have it."""
    try:
        topic = name.decode()
    except UnicodeDecodeError:
        return None
    # The topic names a folder.  No CRC covers it: a torn topic contains zeros.
    return None if "\0" in topic or "/" in topic or topic in _NO_TOPICS else topic


def has_sound_body(head: Head, data: bytes) -> bool:
    """Does the body's CRC fit?  data: the bytes given to read_head()."""
    return body_crc(data[head.body_position : head.body_end]) == head.body_crc


def to_message(head: Head, data: bytes) -> StoredMessage:
    """The record as a value; data: the bytes given to read_head()."""
    return StoredMessage(
        head.topic,
        head.queue_id,
        head.queue_offset,
        head.physical_offset,
        head.size,
        data[head.body_position : head.body_end],
        decode_properties(head.properties),
        head.flag,
        head.sys_flag,
        head.born_timestamp_ms,
        _host_text(head.born_host),
        head.store_timestamp_ms,
        _host_text(head.store_host),
        head.reconsume_times,
        head.completes,
    )


def tags_code(properties: bytes) -> int:
    """The tags code of a property string (reference §2.1): Java's hash of TAGS, 0 without."""
    return code_of_tags(find_property(properties, _TAGS))


@lru_cache(maxsize=4096)
def code_of_tags(tags: bytes | None) -> int:
    """The tags code for a record whose TAGS are these."""
    return tags_hash(tags.decode("utf-8", "replace")) if tags else 0


def delay_level(properties: PropertyString) -> int:
    """The DELAY property as a number, as RocketMQ reads it; 0 if there is no delay."""
    return max(0, java_int(properties.pairs.get(_DELAY, b"")) or 0)


def destination(properties: PropertyString) -> tuple[str, int] | None:
    """The topic and queue id that a scheduled record goes to; None if it names none."""
    pairs = properties.pairs
    topic, queue_id = pairs.get(_REAL_TOPIC, b""), pairs.get(_REAL_QID, b"")
    # Destinations recur; a text that is too long for one must not fill the cache.
    is_short = len(topic) + len(queue_id) <= TOPIC_BYTES_MAX
    return (_destination if is_short else _destination.__wrapped__)(topic, queue_id)


@lru_cache(maxsize=4096)
def _destination(topic: bytes, queue_id: bytes) -> tuple[str, int] | None:
    number = number_of(queue_id)
    return (topic.decode("utf-8", "replace"), number) if topic and number is not None else None


@lru_cache(maxsize=4096)
def tags_hash(text: str) -> int:
    """Java's String.hashCode over UTF-16 units, as a signed 32-bit number."""
    value = token_hash(0, text.encode()) if text.isascii() else text_hash(text)
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


_host_text = lru_cache(maxsize=4096)(unpack_host)


class Written(NamedTuple):
    """Where a record went, and when it is due: 0 for one that does not wait."""

    queue_offset: int
    physical_offset: int
    size: int
    store_timestamp_ms: int
    due_ms: int
