"""Dead letters with their bodies, read from the log in bulk; nothing is consumed.

A letter's description comes from the broker's list, its body from the raw log: one call for
a megabyte of letters instead of one for each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from rmqlite.client import DeadLetter
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.names import dlq_topic

if TYPE_CHECKING:
    from rmqlite.client.raw import RawReader

_GAP_LETTERS_MAX: Final = 64
_GAP_BYTES_MAX: Final = 256 << 10
"""A gap up to this size is read along with the letters around it: another call costs as much."""


def message_at(reader: RawReader, group: str, queue_id: int, offset: int) -> StoredMessage | None:
    """The dead letter at a place; None if it is gone, or not there yet.

    Raises TopicUnknown, QueueUnknown, OffsetGone, Unavailable.
    """
    found = _messages(reader, group, queue_id, offset, offset + 1)
    return next((each for each in found if each.queue_offset == offset), None)


def with_messages(
    reader: RawReader, letters: Sequence[DeadLetter]
) -> Iterator[tuple[DeadLetter, StoredMessage | None]]:
    """Each letter with its record, in the order of their queues.

    None if the log no longer has it: retention may have removed it.  Raises the errors of reading.
    """
    for run in _runs(letters):
        waiting = iter(run)
        letter = next(waiting, None)
        first = run[0]
        found = _messages(
            reader, first.group, first.queue_id, first.queue_offset, run[-1].queue_offset + 1
        )
        for message in found:
            while letter is not None and letter.queue_offset < message.queue_offset:
                yield letter, None
                letter = next(waiting, None)
            if letter is not None and letter.queue_offset == message.queue_offset:
                yield letter, message
                letter = next(waiting, None)
        while letter is not None:
            yield letter, None
            letter = next(waiting, None)


def _messages(
    reader: RawReader, group: str, queue_id: int, begin: int, end: int
) -> Iterator[StoredMessage]:
    from rmqlite.store_tools.reader import messages_in

    topic = dlq_topic(group)
    for chunk in reader.queue(topic, queue_id, begin, end):
        yield from messages_in(chunk, f"{topic} queue {queue_id}")


def _runs(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """Runs of letters of one queue that are near enough to be read together."""
    run: list[DeadLetter] = []
    for each in sorted(letters, key=lambda each: (each.queue_id, each.queue_offset)):
        if run and not _are_near(run[-1], each):
            yield run
            run = []
        run.append(each)
    if run:
        yield run


def _are_near(first: DeadLetter, second: DeadLetter) -> bool:
    if first.queue_id != second.queue_id:
        return False
    between = second.queue_offset - first.queue_offset - 1
    # The sizes of the letters between are unknown; assume the size of their neighbour.
    return between <= _GAP_LETTERS_MAX and between * second.store_size <= _GAP_BYTES_MAX
