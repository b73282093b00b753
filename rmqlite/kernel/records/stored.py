"""A record that lies in the log.

Retry, redrive, restore and a protocol that passes records on change header and properties, and
keep every other byte; text is made of a record only where a person or a client asks for it.
"""

from __future__ import annotations

from rmqlite.kernel.records.record import Head, has_sound_body, layout_of, to_message
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
