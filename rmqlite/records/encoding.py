"""New records as bytes; record.py has the layout."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, Protocol

from rmqlite.records.record import (
    BORN_HOST_V6,
    HEAD,
    MAGIC,
    STORE_HOST_V6,
    NewRecord,
    layout_of,
)
from rmqlite.records.written import Place, Written

_NO_END: Final = 1 << 64
Chunk = bytes | bytearray


class Run(Protocol):
    """Records on their way into the log: all that one append stores."""

    @property
    def stored_ms(self) -> int:
        """Their store timestamp, which is not before that of an earlier record."""
        ...

    def __len__(self) -> int:
        """How many records there are."""
        ...

    @property
    def is_over(self) -> bool:
        """Are all encoded?"""
        ...

    def encode(self, begin: int, end_max: int) -> tuple[list[Chunk], int]:
        """The next records, as chunks that the caller joins, and their end.

        It stops at the first record that would end behind end_max.
        """
        ...

    def next_bytes(self) -> int:
        """The length of the next record, if not all are encoded."""
        ...


class NewRun:
    """New records as a Run; places: where in its queue each goes."""

    def __init__(
        self, records: Sequence[NewRecord], places: Sequence[Place], stored_ms: int
    ) -> None:
        self._placed = list(zip(records, places, strict=True))
        self.stored_ms = stored_ms
        self.written: list[Written] = []

    def __len__(self) -> int:
        return len(self._placed)

    @property
    def is_over(self) -> bool:
        return len(self.written) == len(self._placed)

    def encode(self, begin: int, end_max: int) -> tuple[list[Chunk], int]:
        """See Run."""
        waiting = self._placed[len(self.written) :]
        chunks, written, end = encode_all(waiting, begin, self.stored_ms, end_max)
        self.written += written
        return chunks, end

    def next_bytes(self) -> int:
        """See Run."""
        new, _ = self._placed[len(self.written)]
        return len(encode(new, queue_offset=0, physical_offset=0, store_timestamp_ms=0))


def encode_all(
    records: Iterable[tuple[NewRecord, Place]],
    begin: int,
    timestamp_ms: int,
    end_max: int = _NO_END,
) -> tuple[list[Chunk], list[Written], int]:
    """Records one behind the other, from a physical offset on, as chunks that the caller joins, and
    their end.

    It stops at the first record that would end behind end_max.  One loop without calls: to
    encode each record in a function of its own takes half as long again.
    """
    chunks: list[Chunk] = []
    written: list[Written] = []
    for new, (queue_offset, due_ms) in records:
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
        ) = new
        encoded = properties.encoded
        head = HEAD
        if len(born_host) + len(store_host) != 16:
            head = layout_of(born_host, store_host)
            sys_flag |= _flags_of(born_host, store_host)
        tail = b"%b%b%b" % (_encoded_topic(topic), len(encoded).to_bytes(2, "big"), encoded)
        size = head.size + len(body) + len(tail)
        if begin + size > end_max:
            break
        packed = head.pack(
            size,
            MAGIC,
            crc,
            queue_id,
            flag,
            queue_offset,
            begin,
            sys_flag,
            born_timestamp_ms,
            born_host,
            timestamp_ms,
            store_host,
            reconsume_times,
            completes,
            len(body),
        )
        chunks += (packed, body, tail)
        written.append(Written(queue_offset, begin, size, timestamp_ms, due_ms))
        begin += size
    return chunks, written, begin


def encode(
    record: NewRecord, *, queue_offset: int, physical_offset: int, store_timestamp_ms: int
) -> bytes:
    """One record at its place."""
    place = (record, (queue_offset, 0))
    return b"".join(encode_all([place], physical_offset, store_timestamp_ms)[0])


def _flags_of(born_host: bytes, store_host: bytes) -> int:
    born = BORN_HOST_V6 if len(born_host) == 20 else 0
    return born | (STORE_HOST_V6 if len(store_host) == 20 else 0)


@lru_cache(maxsize=4096)
def _encoded_topic(topic: str) -> bytes:
    """Length and name of a topic, as in a record."""
    name = topic.encode()
    return len(name).to_bytes(1, "big") + name
