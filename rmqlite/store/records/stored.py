"""A record that lies in the log: what record.py reads, at the first question.

Retry, redrive, restore and a protocol that passes records on change header and properties, and
keep every other byte; text is made of a record only where a person or a client asks for it.
"""

from __future__ import annotations

from rmqlite.message import StoredMessage
from rmqlite.property_string import PropertyString
from rmqlite.store.records.record import Head, has_sound_body, layout_of, read_head, to_message


class Record:
    """A record of the log: its header, the bytes it lies in, and a view on its properties.

    buffer: the bytes that the header was read from; it may hold other records, too.
    """

    __slots__ = ("_place", "_properties", "buffer", "head")

    def __init__(self, head: Head, buffer: bytes) -> None:
        self.head = head
        self.buffer = buffer
        self._place: tuple[int, int] | None = None
        self._properties: PropertyString | None = None

    @classmethod
    def unread(cls, buffer: bytes, begin: int, size: int) -> Record:
        """A record that whole_records() has looked at: its header is read at the first question.

        A pull by a client that takes records apart itself asks none, and costs half as much.
        """
        record = cls.__new__(cls)
        record.buffer = buffer
        record._properties = None
        record._place = begin, begin + size
        return record

    def __getattr__(self, name: str) -> Head:
        """Python asks only for an attribute that is not set: the header of an unread record.

        A property would cost those that have one a call at each of their questions.
        """
        if name != "head" or self._place is None:
            raise AttributeError(name)
        head = read_head(self.buffer, self._place[0])
        assert head is not None
        self.head = head
        return head

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
        if self._place is not None:
            return self.buffer[slice(*self._place)]
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
