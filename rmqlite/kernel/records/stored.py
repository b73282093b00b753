"""A record that lies in the log, and several of them that a pull has found.

Retry, redrive, restore and a protocol that passes records on change header and properties, and
keep every other byte; text is made of a record only where a person or a client asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqlite.kernel.records.record import Head, has_sound_body, layout_of, read_head, to_message
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.property_string import PropertyString


class Record:
    """A record of the log: its header, the bytes it lies in, and a view on its properties.

    buffer: the bytes that the header was read from; it may hold other records, too.
    """

    __slots__ = ("_properties", "buffer", "head")

    def __init__(self, head: Head, buffer: bytes) -> None:
        self.head = head
        self.buffer = buffer
        self._properties: PropertyString | None = None

    @property
    def properties(self) -> PropertyString:
        """The same view each time, so that the property string is parsed at most once."""
        if self._properties is None:
            self._properties = PropertyString(self.head.properties)
        return self._properties

    @property
    def body(self) -> bytes:
        return self.buffer[self.head.body_position : self.head.body_end]

    @property
    def encoded(self) -> bytes:
        """All bytes of the record, as they lie in the log."""
        head = self.head
        begin = head.body_position - layout_of(head.born_host, head.store_host).size
        return self.buffer[begin : begin + head.size]

    @property
    def end(self) -> int:
        """The physical offset at which it ends."""
        return self.head.physical_offset + self.head.size

    def has_sound_body(self) -> bool:
        """Does the body's CRC fit?"""
        return has_sound_body(self.head, self.buffer)

    def to_message(self) -> StoredMessage:
        """The record as text, for a person or a client."""
        return to_message(self.head, self.buffer)


class Records:
    """What a pull has found, in one of two forms; the other is made at the first question.

    One is a list of records.  The other is their number and their bytes, one record behind the
    other: a client that takes records apart itself needs no more, and no object for each.
    """

    __slots__ = ("_count", "_encoded", "_records")

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self._records: Sequence[Record] | None = records
        self._encoded: bytes | None = None
        self._count = len(records)

    @classmethod
    def whole(cls, count: int, encoded: bytes) -> Records:
        """So many records in these bytes, each of them whole and its body sound."""
        made = cls()
        made._records, made._encoded, made._count = None, encoded, count
        return made

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Record]:
        return self._read() if self._records is None else iter(self._records)

    @property
    def size(self) -> int:
        """Bytes of all records."""
        if self._encoded is not None:
            return len(self._encoded)
        return sum([record.head.size for record in self])

    @property
    def encoded(self) -> bytes:
        """All bytes of all records, as they lie in the log."""
        if self._encoded is None:
            self._encoded = b"".join([record.encoded for record in self])
        return self._encoded

    def _read(self) -> Iterator[Record]:
        at, encoded = 0, self.encoded
        while at < len(encoded):
            head = read_head(encoded, at)
            assert head is not None
            yield Record(head, encoded)
            at += head.size
