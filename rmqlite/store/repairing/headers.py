"""Mends changed headers of records from their queue entries and neighbours.

No CRC of RocketMQ's covers a header.  Where our checksums show changed bytes, each record is
compared with the queue entry that points at it: topic, queue, queue offset and transaction
type are mended, and a store timestamp that does not fit between its neighbours.  Other
fields stay as they are.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rmqlite.levels import LevelHistory
from rmqlite.records import record
from rmqlite.records.record import BORN_HOST_V6, Head
from rmqlite.records.wait_queues import when_stored_ms
from rmqlite.store.checking.sums import Span
from rmqlite.store.commit_log import CommitLog
from rmqlite.store.log.repaired_place import is_repaired
from rmqlite.store.repairing.changes import Overwrite
from rmqlite.store.repairing.entries import Pointer, Pointers
from rmqlite.store.repairing.log import head_at
from rmqlite.store.repairing.plan import HEADER, Action, message_id_of, record_name

_QUEUE_ID_AT = record.offset_of("queue_id")
_QUEUE_OFFSET_AT = record.offset_of("queue_offset")
_SYS_FLAG_AT = record.offset_of("sys_flag")
_BORN_HOST_AT = record.offset_of("born_host")
_COMPLETES_BEFORE_BODY = 12


@dataclass(frozen=True, slots=True)
class Suspects:
    """The records of a changed span, and the actions that mend some of them."""

    heads: tuple[Head, ...]
    actions: tuple[Action, ...]


def look_at_span(
    log: CommitLog,
    span: Span,
    anchor: int,
    pointers: Pointers,
    levels: LevelHistory | None,
    newest_timestamp_ms: int | None,
) -> Suspects:
    """The mendable headers in a span; anchor: where a record begins at or before it.

    newest_timestamp_ms: of a record behind the span; None if unknown.
    """
    before, heads, behind = _records(log, span, anchor)
    confirmed = [pointer_of(head, pointers) for head in heads]
    limits = (
        before.store_timestamp_ms if before else 0,
        behind.store_timestamp_ms if behind else newest_timestamp_ms,
    )
    times = _times(heads, confirmed, levels, limits)
    actions = []
    for head, pointer, timestamp_ms in zip(heads, confirmed, times, strict=True):
        action = mend_header(log, head, pointer, timestamp_ms)
        if action is not None and not is_repaired(head):
            actions.append(action)
    return Suspects(tuple(heads), tuple(actions))


def mend_pointer(log: CommitLog, physical_offset: int) -> Action | None:
    """Clear the pointer of a delivered record that completes no scheduled record.

    None if no record lies there.
    """
    head = head_at(log, physical_offset, physical_offset + log.segment_bytes)
    if head is None:
        return None
    path, position = place_of(log, physical_offset)
    at = position + head.body_position - _COMPLETES_BEFORE_BODY
    return Action(
        HEADER,
        path,
        position,
        f"it completes {head.completes}, where no scheduled record ends",
        "the pointer is cleared; its message may be delivered once more",
        (Overwrite(path, at, bytes(8)),),
        (),
        (name_of(head),),
    )


def _records(
    log: CommitLog, span: Span, anchor: int
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


def pointer_of(head: Head, pointers: Pointers) -> Pointer | None:
    """The queue entry that points at a record; if several do, one that agrees with it."""
    fitting = [each for each in pointers.at(head.physical_offset) if each.size == head.size]
    for each in fitting:
        if (each.key, each.queue_offset) == ((head.topic, head.queue_id), head.queue_offset):
            return each
    return fitting[0] if fitting else None


def _times(
    heads: Sequence[Head],
    confirmed: Sequence[Pointer | None],
    levels: LevelHistory | None,
    limits: tuple[int, int | None],
) -> list[int]:
    """A store timestamp for each record; one that breaks the ascending order is replaced."""
    lowest, highest = limits
    given = [head.store_timestamp_ms for head in heads]
    kept = set(_ascending(given, lowest, highest))
    times = []
    last = lowest
    for index, pointer in enumerate(confirmed):
        if index not in kept:
            following = [given[each] for each in kept if each > index]
            upto = min(following, default=highest)
            time = _promised(pointer, levels)
            is_fitting = time is not None and last <= time and (upto is None or time <= upto)
            given[index] = time if time is not None and is_fitting else last
        last = given[index]
        times.append(last)
    return times


def _ascending(times: Sequence[int], lowest: int, highest: int | None) -> list[int]:
    """The indices of the longest run of times that never goes back, within the limits."""
    tails: list[int] = []
    best: list[int] = []
    before: dict[int, int | None] = {}
    for index, time in enumerate(times):
        if time < lowest or (highest is not None and time > highest):
            continue
        at = bisect_right(tails, time)
        tails[at:] = [time, *tails[at + 1 :]]
        before[index] = best[at - 1] if at else None
        best[at:] = [index, *best[at + 1 :]]
    found: list[int] = []
    index_or_none = best[-1] if best else None
    while index_or_none is not None:
        found.append(index_or_none)
        index_or_none = before[index_or_none]
    return found


def _promised(pointer: Pointer | None, levels: LevelHistory | None) -> int | None:
    """The store timestamp of a scheduled record, computed from its deliver time."""
    if pointer is None or levels is None:
        return None
    return when_stored_ms(levels, *pointer.key, pointer.tags_code)


def mend_header(
    log: CommitLog, head: Head, pointer: Pointer | None, timestamp_ms: int
) -> Action | None:
    """Make a record's header agree with its queue entry; None if it does already."""
    changes = tuple(_mended(log, head, pointer, timestamp_ms))
    if not changes:
        return None
    path, position = place_of(log, head.physical_offset)
    key, queue_offset = (head.topic, head.queue_id), head.queue_offset
    if pointer is not None:
        key, queue_offset = pointer.key, pointer.queue_offset
    return Action(
        HEADER,
        path,
        position,
        "a header that has changed since it was written",
        "it agrees with its queue entry and its neighbours again",
        changes,
        (),
        (record_name(key, queue_offset, message_id_of(head)),),
    )


def _mended(
    log: CommitLog, head: Head, pointer: Pointer | None, timestamp_ms: int
) -> Iterator[Overwrite]:
    path, position = place_of(log, head.physical_offset)
    if timestamp_ms != head.store_timestamp_ms:
        at = _BORN_HOST_AT + (20 if head.sys_flag & BORN_HOST_V6 else 8)
        yield Overwrite(path, position + at, timestamp_ms.to_bytes(8, "big"))
    if pointer is None:
        return
    topic, queue_id = pointer.key
    name, now = topic.encode(), head.topic.encode()
    if len(name) != len(now):
        return
    if name != now:
        at = head.size - len(head.properties) - 2 - len(now)
        yield Overwrite(path, position + at, name)
    if queue_id != head.queue_id:
        yield Overwrite(path, position + _QUEUE_ID_AT, queue_id.to_bytes(4, "big"))
    if pointer.queue_offset != head.queue_offset:
        number = pointer.queue_offset.to_bytes(8, "big")
        yield Overwrite(path, position + _QUEUE_OFFSET_AT, number)
    if not record.has_entry(head.sys_flag):
        flags = head.sys_flag & ~record.TRANSACTION_TYPE & 0xFFFFFFFF
        yield Overwrite(path, position + _SYS_FLAG_AT, flags.to_bytes(4, "big"))


def name_of(head: Head) -> str:
    """The name of a record in a plan."""
    return record_name((head.topic, head.queue_id), head.queue_offset, message_id_of(head))


def place_of(log: CommitLog, physical_offset: int) -> tuple[Path, int]:
    """The file of a physical offset, and the position in it."""
    return log.path_at(physical_offset), physical_offset % log.segment_bytes
