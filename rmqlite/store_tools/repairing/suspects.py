"""Records that are not what was written, although their bodies fit: they get repaired places.

No CRC of RocketMQ's covers a header.  Where our checksums show changed bytes, a record is given
up if its queue entry names another queue or queue offset, or if its store timestamp cannot be
right.  So is one with which the offsets of a queue break off.  Everything else stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqlite.kernel.records import record
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.wait_queues import HASH_END, wait_queue_of, when_due_ms
from rmqlite.kernel.store.commit_log import CommitLog
from rmqlite.kernel.store.log.repaired_place import is_repaired
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.store_tools.checking.finding import Damage, Gap
from rmqlite.store_tools.checking.sums import UnsoundSpan
from rmqlite.store_tools.repairing.log import Pointers, head_at, mend_stretch, pointer_of
from rmqlite.store_tools.repairing.places import encode_anonymous
from rmqlite.store_tools.repairing.plan import PLACE, POINTER_CLEARED, Action, Overwrite, name_of

_COMPLETES_BEFORE_BODY = 12


class Suspects:
    """Judges the records of one log."""

    def __init__(self, log: CommitLog, pointers: Pointers, levels: LevelHistory) -> None:
        self._log = log
        self._pointers = pointers
        self._levels = levels

    def in_span(self, span: UnsoundSpan, anchor: int, newest_ms: int | None) -> Iterator[Action]:
        """Give up the records of a changed span that cannot be right.

        anchor: where a record begins at or before it.  newest_ms: the store timestamp of a
        record behind; None if unknown.
        """
        before, heads, behind = records_of(self._log, span, anchor)
        low_ms = before.store_timestamp_ms if before else 0
        high_ms = behind.store_timestamp_ms if behind else newest_ms or wall_ms()
        times = [low_ms, *(head.store_timestamp_ms for head in heads), high_ms]
        for head, low, high in zip(heads, times[:-2], times[2:], strict=True):
            own = head.store_timestamp_ms
            is_between = low <= own <= high or low > high
            if is_repaired(head):
                continue
            if is_between and not self._has_other_due_time(head):
                yield from self.contradicted(head, low)
            else:
                yield self._given_up(head, low, f"its store timestamp {own} cannot be right")

    def _has_other_due_time(self, head: Head) -> bool:
        """Has a scheduled record another deliver time than the one that was promised?"""
        pointer = pointer_of(head, self._pointers)
        if pointer is None or pointer.tags_code < HASH_END or not wait_queue_of(*pointer.key):
            return False
        own = when_due_ms(self._levels, *pointer.key, head.store_timestamp_ms, head.properties)
        return own != pointer.tags_code

    def contradicted(self, head: Head, newest_ms: int) -> Iterator[Action]:
        """Give a record up if its queue entry says something else; newest_ms: before it."""
        pointer = pointer_of(head, self._pointers)
        if pointer is None or is_repaired(head):
            return
        stored = ((head.topic, head.queue_id), head.queue_offset)
        if stored != pointer[:2] or not record.has_entry(head.sys_flag):
            wrong = "its header has changed: its queue entry says something else"
            yield self._given_up(head, newest_ms, wrong)

    def at_gap(self, gap: Gap, starts: Sequence[Head]) -> Iterator[Action]:
        """Give up the records that break a queue's offsets; no queue entry tells which.

        starts: records with which queues begin.  If the queue goes on where it should, it is
        the record at the gap; otherwise others, with which other queues seem to begin.
        """
        head, missing = gap.head, range(gap.expected, gap.head.queue_offset)
        key = (head.topic, head.queue_id)
        strays = [
            each
            for each in starts
            if gap.last_offset < each.physical_offset < head.physical_offset
            and each.queue_offset in missing
        ]
        goes_on = any(
            (each.topic, each.queue_id) == key and each.physical_offset > head.physical_offset
            for each in starts
        )
        wrong = (
            f"queue offset {head.queue_offset} does not follow {gap.expected - 1}, and no"
            " queue entry says which record has changed"
        )
        for each in [head] if goes_on else strays[: len(missing)] or [head]:
            begin, size = each.physical_offset, each.size
            place = self._log.path_at(begin), begin % self._log.segment_bytes
            data = encode_anonymous(begin, size, each.store_timestamp_ms)
            remedy = f"a repaired place of {size} bytes, which consumers skip"
            changes, lost = (Overwrite(*place, data),), (name_of(each),)
            yield Action(PLACE, *place, wrong, remedy, changes, lost, lost_messages=1)

    def _given_up(self, head: Head, newest_ms: int, wrong: str) -> Action:
        begin = head.physical_offset
        damage = Damage(begin, begin + head.size, newest_ms, was_on_disk=True)
        return mend_stretch(self._log, damage, self._pointers, wrong)


def records_of(
    log: CommitLog, span: UnsoundSpan, anchor: int
) -> tuple[Head | None, list[Head], Head | None]:
    """The record before a span, those that overlap it, and the one behind, within a file."""
    begin, end = span.first.position, span.claim.position
    file_end = begin - begin % log.segment_bytes + log.segment_bytes
    before, heads, at = None, list[Head](), anchor
    while at < file_end:
        head = head_at(log, at, file_end)
        if head is None:
            break
        if at >= end:
            return before, heads, head
        if at + head.size > begin:
            heads.append(head)
        else:
            before = head
        at += head.size
    return before, heads, None


def clear_pointer(log: CommitLog, physical_offset: int) -> Iterator[Action]:
    """Clear the pointer of a delivered record that completes no scheduled record."""
    head = head_at(log, physical_offset, physical_offset + log.segment_bytes)
    if head is not None:
        path, position = log.path_at(physical_offset), physical_offset % log.segment_bytes
        at = position + head.body_position - _COMPLETES_BEFORE_BODY
        wrong = f"it completes {head.completes}, where no scheduled record ends"
        remedy = "the pointer is cleared; its message may be delivered once more"
        cleared = (Overwrite(path, at, bytes(8)),)
        about = (name_of(head),)
        yield Action(POINTER_CLEARED, path, position, wrong, remedy, cleared, about=about)
