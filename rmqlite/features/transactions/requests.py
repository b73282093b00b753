"""The ends of transactions, and the questions about them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionEnd:
    """A producer commits a half message, or rolls it back.

    queue_offset, physical_offset: of the half message, as the answer to its send named them, or
    the broker's question.
    """

    group: str
    queue_offset: int
    physical_offset: int
    is_commit: bool


@dataclass(frozen=True, slots=True)
class TransactionQuestion:
    """The broker asks a producer of a group: commit this half message, or roll it back?

    record: the message as a record of the topic that it goes to.
    """

    group: str
    queue_offset: int
    physical_offset: int
    message_id: str
    offset_message_id: str
    record: bytes
