"""New records as bytes, and then their places in them; record.py has the layout.

The bytes of all records of an append are made before anything is known about where they go.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rmqlite.kernel.compiled import KEY, ROW, in_c
from rmqlite.kernel.records.key_hashes import key_hashes, keys_of, topic_prefix
from rmqlite.kernel.records.queue_entry import ENTRY
from rmqlite.kernel.records.record import (
    BORN_HOST_V6,
    HEAD,
    MAGIC,
    STORE_HOST_V6,
    NewRecord,
    code_of_tags,
    layout_of,
    layout_of_fields,
    offset_of,
)
from rmqlite.kernel.records.wait_queues import TIMERS, QueueKey, queue_of, timer_due_ms
from rmqlite.kernel.words.message import TAGS

PackedBytes = tuple[bytearray, bytes, bytes]
"""Records, one behind the other, without their places; a ROW of each; and their KEYs."""
EACH_ITS_OWN: Final = -1
"""Stands for the due time of a queue whose rows have the due time of each record."""
_TIMERS: Final = queue_of(TIMERS)
_TAGS: Final = TAGS.encode()
_TAGS_START: Final = f"{TAGS}\x01".encode()
_SIZE: Final = layout_of_fields("size")
_QUEUE_ID_AT: Final = offset_of("queue_id")
_QUEUE_OFFSET_AT: Final = offset_of("queue_offset")
_PHYSICAL_OFFSET_AT: Final = offset_of("physical_offset")
_SYS_FLAG_END: Final = offset_of("born_timestamp") - 1
_STORE_TIMESTAMP_AT: Final = offset_of("store_timestamp")
_V6_MORE_BYTES: Final = 12


def encode(
    record: NewRecord,
    *,
    queue_offset: int = 0,
    physical_offset: int = 0,
    store_timestamp_ms: int = 0,
) -> bytes:
    """One record at its place."""
    (
        topic,
        queue_id,
        properties,
        body,
        crc,
        flag,
        sys_flag,
        born_timestamp_ms,
        born_host,
        store_host,
        reconsume_times,
        completes,
    ) = record
    encoded = properties.encoded
    head = HEAD
    if len(born_host) + len(store_host) != 16:
        head = layout_of(born_host, store_host)
        sys_flag |= _flags_of(born_host, store_host)
    tail = b"%b%b%b" % (_encoded_topic(topic), len(encoded).to_bytes(2, "big"), encoded)
    packed = head.pack(
        head.size + len(body) + len(tail),
        MAGIC,
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
        len(body),
    )
    return b"%b%b%b" % (packed, body, tail)


@in_c
def pack_records(records: list[NewRecord]) -> tuple[PackedBytes, list[QueueKey]]:
    """New records, and the topic and queue id of each queue that their rows number."""
    data, rows = bytearray(), []
    queues: dict[QueueKey, int] = {}
    for new in records:
        encoded = encode(new)
        data += encoded
        key, own, code = (new.topic, new.queue_id), new.properties.encoded, 0
        if key == _TIMERS:
            code = timer_due_ms(own)
        elif _TAGS_START in own:
            code = code_of_tags(new.properties.pairs.get(_TAGS))
        rows.append(ROW.pack(len(encoded), queues.setdefault(key, len(queues)), code))
    prefixes, tokens, numbers, _ = keys_of(
        [
            (topic_prefix(new.topic), new.properties.encoded, number, 0)
            for number, new in enumerate(records)
        ]
    )
    keys = map(KEY.pack, key_hashes(prefixes, tokens), numbers)
    return (data, b"".join(rows), b"".join(keys)), list(queues)


@in_c
def place(
    data: bytearray,
    rows: bytes,
    keys: bytes,
    first_row: int,
    first_byte: int,
    begin: int,
    end_max: int,
    timestamp_ms: int,
    queues: list[tuple[int, int, int]],
) -> tuple[int, list[int], list[bytes], list[int], list[int]]:
    """Write the places into packed records from a row on, which begins at first_byte of data.

    begin: the physical offset of the first.  It stops at the first record that would end behind
    end_max.  queues: queue id, next queue offset and due time of each: 0 for one in which nothing
    waits, or EACH_ITS_OWN.  Returns how many bytes the records have; the physical offset of each;
    the entries of each queue; hashes and physical offsets of the keys.  Raises ValueError for rows
    that are not those of the data.
    """
    positions: list[int] = []
    entries: list[list[bytes]] = [[] for _ in queues]
    following = [queue_offset for _, queue_offset, _ in queues]
    at, position = first_byte, begin
    for size, number, code in ROW.iter_unpack(rows[ROW.size * first_row :]):
        if _SIZE.unpack_from(data, at)[0] != size:
            raise ValueError("the rows do not fit the data")
        if position + size > end_max:
            break
        queue_id, _, due_ms = queues[number]
        if due_ms == EACH_ITS_OWN:
            due_ms = code or timestamp_ms
        _put(data, at + _QUEUE_ID_AT, queue_id, 4)
        _put(data, at + _QUEUE_OFFSET_AT, following[number], 8)
        _put(data, at + _PHYSICAL_OFFSET_AT, position, 8)
        more = _V6_MORE_BYTES if data[at + _SYS_FLAG_END] & BORN_HOST_V6 else 0
        _put(data, at + _STORE_TIMESTAMP_AT + more, timestamp_ms, 8)
        entries[number].append(ENTRY.pack(position, size, due_ms or code))
        positions.append(position)
        following[number] += 1
        at += size
        position += size
    end = first_row + len(positions)
    mine = [pair for pair in KEY.iter_unpack(keys) if first_row <= pair[1] < end]
    hashes = [key_hash for key_hash, _ in mine]
    places = [positions[row - first_row] for _, row in mine]
    return at - first_byte, positions, [*map(b"".join, entries)], hashes, places


def _put(data: bytearray, at: int, number: int, size: int) -> None:
    data[at : at + size] = number.to_bytes(size, "big", signed=True)


def _flags_of(born_host: bytes, store_host: bytes) -> int:
    born = BORN_HOST_V6 if len(born_host) == 20 else 0
    return born | (STORE_HOST_V6 if len(store_host) == 20 else 0)


@lru_cache(maxsize=4096)
def _encoded_topic(topic: str) -> bytes:
    """Length and name of a topic, as in a record."""
    name = topic.encode()
    return len(name).to_bytes(1, "big") + name
