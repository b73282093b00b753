"""Hands the pending timers of a store over to RocketMQ, whose broker is to go on with it.

To RocketMQ 5: its timer files are written anew, with the pending timers and no others.  So a
timer that was delivered, cancelled or moved here needs no tombstone, whose form differs between
5.3 and 5.4: no slot names it.

To RocketMQ 4.9, which has no timers: each pending one is appended once more, in due order, to a
delay level behind all others.  Its record completes the timer, as after a change to another
level, and its queue entry has the timer's due time, which is all that 4.9 looks at.  What is left
of them there counts as handed over the next time to 4.9, and is a timer again for RocketMQ 5.

Of a delay level RocketMQ knows only how far it is delivered.  So if a later message is completed
than one that waits, those that wait are appended once more behind it, with their due times.

If a slave of RocketMQ has made the store of our log, all but the log is made anew before.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.drafts import derived
from rmqlite.kernel.records.queue_entry import ENTRY, Entry
from rmqlite.kernel.records.record import TRANSACTION_TYPE, Written, destination, tags_hash
from rmqlite.kernel.records.stored import Record
from rmqlite.kernel.records.wait_queues import SLOT_MS, TIMERS, queue_of
from rmqlite.kernel.store.consume_queue import ConsumeQueue
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.recovery import load_levels
from rmqlite.kernel.store.tables.logged_tables import LoggedTables
from rmqlite.kernel.words.clock import Clock, SystemClock
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.levels import LEVELS_MAX
from rmqlite.kernel.words.message import DELAY, RESCHEDULED_FROM, TIMER_EXACT, TIMER_OUT_MS
from rmqlite.store_tools.moving.slaves_copy import (
    OFFSETS,
    clamped_offsets,
    is_slaves_copy,
    keep_the_log,
)
from rmqlite.store_tools.moving.timer_files import Check, Unit, write_timer_files

TO_4_9: Final = "4.9"
TARGETS: Final = (TO_4_9, "5.3", "5.4", "5.5")
DAY_MS: Final = 86_400_000
_FAR_MS: Final = 2 * DAY_MS
"""RocketMQ appends a timer of more than two days anew before it is due."""
_SOON_MS: Final = 1_000
_APPENDED: Final = 100
_READ: Final = 8_192
_TIMER: Final = Struct(">qqqii")
"""Due time, queue offset, physical offset, size, hash of the topic: sorts as bytes, in 70 bytes
of memory where a tuple takes 250."""


class Handover(NamedTuple):
    """What is handed over, or would be.

    overdue: those of pending that were due already.  levels: 4.9's messageDelayLevel with the
    level that holds the timers; empty for RocketMQ 5.
    """

    pending: int
    overdue: int
    first_due_ms: int
    last_due_ms: int
    levels: str = ""


def hand_over(
    root: Path,
    to: str,
    config: BrokerConfig | None = None,
    *,
    dry_run: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
) -> Handover:
    """Open the store at root, hand its timers over, and close it; again changes nothing.

    to: one of TARGETS.  dry_run: open and close it only.  After a crash, call it again.  Raises
    InvalidValue, StoreLocked, StoreDamaged, StoreUnavailable.
    """
    if to not in TARGETS:
        raise InvalidValue("to", to, f"one of {', '.join(TARGETS)}")
    disk, clock = files or SystemFiles(), clock or SystemClock()
    is_copy = is_slaves_copy(disk, root)
    if is_copy and dry_run:
        raise InvalidValue("--dry-run", root, "a store of ours: what a slave has made is made anew")
    if is_copy:
        config = keep_the_log(disk, root, config)
    store = MessageStore(config_to_open(disk, root, config), disk, clock)
    try:
        timers, in_levels, now_ms = _pending(store), _in_levels(store), clock.now_ms()
        found = _summary([*timers, *chain(*in_levels.values())], now_ms)
        if to != TO_4_9:
            if not dry_run:
                _take_out_of_levels(store, in_levels)
                timers = _pending(store) if in_levels else timers
                write_timer_files(disk, root, *_slots(store, timers, now_ms))
        elif found.pending:
            level = _free_level(store) if timers else max(in_levels)
            found = found._replace(levels=_levels_text(store, level, found.last_due_ms - now_ms))
            if not dry_run:
                _append_to_level(store, level, timers)
        if not dry_run:
            _settle_levels(store, clock)
        store.close({OFFSETS: partial(clamped_offsets, store)} if is_copy else {})
    finally:
        store.release()
    return found


def config_to_open(files: Files, root: Path, given: BrokerConfig | None) -> BrokerConfig:
    """A configuration that changes nothing in the store: without one, with its own levels."""
    if given is None:
        tables = LoggedTables(files, root / "config")
        levels = load_levels(tables, BrokerConfig().levels).configured
        given = BrokerConfig(message_delay_level=levels.text)
    return given.model_copy(update={"store_path": root})


def _queue(store: MessageStore) -> ConsumeQueue | None:
    return store.queue(*queue_of(TIMERS))


def _pending(store: MessageStore) -> list[bytes]:
    """A _TIMER of each pending one that has a destination, sorted."""
    return sorted(_waiting(store, TIMERS, _has_destination))


def _in_levels(store: MessageStore) -> dict[int, list[bytes]]:
    """By level, what an earlier handover to 4.9 has moved there, and still waits."""
    levels = sorted(level for level in store.progress.pending if level != TIMERS)
    found = {level: _waiting(store, level, _was_timer) for level in levels}
    return {level: timers for level, timers in found.items() if timers}


def _has_destination(waiting: Record, _due_ms: int) -> bool:
    """RocketMQ's timers stop for ever at one that names no topic and queue."""
    return destination(waiting.properties) is not None


def _was_timer(waiting: Record, due_ms: int) -> bool:
    get = waiting.properties.get
    return get(RESCHEDULED_FROM) == b"%d" % TIMERS and get(TIMER_OUT_MS) == b"%d" % due_ms


def _waiting(
    store: MessageStore, wait_queue: int, wanted: Callable[[Record, int], bool]
) -> list[bytes]:
    """A _TIMER of each pending record that is wanted; it is asked with its due time."""
    found: list[bytes] = []
    queue, completed = store.queue(*queue_of(wait_queue)), store.progress.of(wait_queue)
    if queue is None:
        return found
    for start in range(completed.below, queue.max_offset, _READ):
        offsets = completed.open_between(start, min(start + _READ, queue.max_offset))
        entries = queue.read(start, _READ)
        waiting = [entries[each - start] for each in offsets]
        records = store.read_records(waiting, check_bodies=False)
        for queue_offset, entry, timer in zip(offsets, waiting, records, strict=True):
            if timer is not None and wanted(timer, entry.tags_code):
                topic = tags_hash(topic_ahead(timer.properties))
                place = (entry.physical_offset, entry.size, topic)
                found.append(_TIMER.pack(entry.tags_code, queue_offset, *place))
    return found


def _summary(timers: Sequence[bytes], now_ms: int) -> Handover:
    if not timers:
        return Handover(0, 0, 0, 0)
    dues_ms = [_due(each) for each in timers]
    overdue = sum(due_ms <= now_ms for due_ms in dues_ms)
    return Handover(len(timers), overdue, min(dues_ms), max(dues_ms))


# ---- to RocketMQ 5


def _slots(
    store: MessageStore, timers: Sequence[bytes], now_ms: int
) -> tuple[Iterator[Unit], Check]:
    queue = _queue(store)
    check = Check(now_ms - now_ms % SLOT_MS, queue.max_offset if queue else 0)
    return chain(_units(timers, check.next_slot_ms), _last_unit(queue, check)), check


def _units(timers: Sequence[bytes], next_slot_ms: int) -> Iterator[Unit]:
    """The units of timers, sorted by slot.

    A due time belongs to the slot that ends with it, or later: RocketMQ takes a slot when it is
    over.  An overdue timer has the next slot: RocketMQ never takes one of more than a week ago.
    """
    far_from = next(
        (at for at, each in enumerate(timers) if _due(each) >= next_slot_ms + _FAR_MS), len(timers)
    )
    far = len(timers) - far_from

    def near_units() -> Iterator[Unit]:
        for each in timers[:far_from]:
            due_ms, _, place, size, topic_hash = _TIMER.unpack(each)
            slot_ms = (due_ms - 1) // SLOT_MS * SLOT_MS
            yield Unit(max(slot_ms, next_slot_ms), place, size, topic_hash)

    def far_units() -> Iterator[Unit]:
        for number, each in enumerate(timers[far_from:]):
            # Spread over the second day, so that they are not all appended in one moment.
            after_ms = DAY_MS + number * DAY_MS // far // SLOT_MS * SLOT_MS
            _, _, place, size, topic_hash = _TIMER.unpack(each)
            yield Unit(next_slot_ms + after_ms, place, size, topic_hash, rolls=True)

    return heapq.merge(near_units(), far_units())


def _due(timer: bytes) -> int:
    return int(_TIMER.unpack(timer)[0])


def _at_least(timer: bytes, due_ms: int) -> bytes:
    known_ms, *place = _TIMER.unpack(timer)
    return _TIMER.pack(max(known_ms, due_ms), *place)


def _last_unit(queue: ConsumeQueue | None, check: Check) -> Iterator[Unit]:
    """A unit of the queue's last entry, in a slot that is over: RocketMQ goes on behind it."""
    entry = queue.entry(check.next_entry - 1) if queue else None
    if entry is not None:
        yield Unit(check.next_slot_ms - SLOT_MS, entry.physical_offset, entry.size, 0)


# ---- to RocketMQ 4.9


def _free_level(store: MessageStore) -> int:
    """A level behind those of the table, and behind all in which messages wait."""
    waiting = [level for level, topics in store.progress.pending.items() if topics]
    level = max([store.levels.current.max_level, *waiting]) + 1
    if level > LEVELS_MAX:
        rule = f"a messageDelayLevel of fewer than {LEVELS_MAX} levels, with room for one more"
        raise InvalidValue("messageDelayLevel", store.levels.current.text, rule)
    return level


def _levels_text(store: MessageStore, level: int, longest_ms: int) -> str:
    """4.9 delivers at once what waits longer than its level lasts: so this one lasts longer."""
    table = store.levels.current
    days = max(1, 1 - -longest_ms // DAY_MS)
    return " ".join([table.text, *[f"{days}d"] * (level - table.max_level)])


def _settle_levels(store: MessageStore, clock: Clock) -> None:
    """Append once more what waits in a level in front of what does not."""
    for level in sorted(level for level in store.progress.pending if level != TIMERS):
        if store.progress.of(level).count_above:
            waiting = sorted(_waiting(store, level, lambda _record, _due_ms: True))
            for part in _parts(waiting):
                # A record says only of later instants that it is due then.
                soon_ms = clock.now_ms() + _SOON_MS
                _append_to_level(store, level, [_at_least(each, soon_ms) for each in part], level)


def _append_to_level(
    store: MessageStore, level: int, timers: Sequence[bytes], source: int = TIMERS
) -> None:
    for part in _parts(timers):
        written = _move(store, part, source, level)
        queue = store.queue(*queue_of(level))
        assert queue is not None
        # An append takes due times from the table of levels; recovery finds these in the records.
        data = [
            ENTRY.pack(at.physical_offset, at.size, _due(timer))
            for at, timer in zip(written, part, strict=True)
        ]
        queue.write(written[0].queue_offset, b"".join(data))


def _take_out_of_levels(store: MessageStore, in_levels: Mapping[int, Sequence[bytes]]) -> None:
    for level, timers in in_levels.items():
        for part in _parts(timers):
            _move(store, part, level, TIMERS)


def _parts(timers: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    for begin in range(0, len(timers), _APPENDED):
        yield timers[begin : begin + _APPENDED]


def _move(store: MessageStore, timers: Sequence[bytes], wait_queue: int, to: int) -> list[Written]:
    """Append timers to another wait queue, which completes them in this one."""
    parts = [_TIMER.unpack(each) for each in timers]
    entries = [Entry(place, size, due_ms) for due_ms, _, place, size, _ in parts]
    records = []
    for entry, source in zip(entries, store.read_records(entries, check_bodies=False), strict=True):
        assert source is not None
        changes = {RESCHEDULED_FROM: str(wait_queue)}
        changes |= {TIMER_OUT_MS: str(entry.tags_code), TIMER_EXACT: "1"}
        changes |= {DELAY: str(to)} if to != TIMERS else {}
        properties = source.properties.edited(changes, frozenset({DELAY}))
        record = derived(source, *queue_of(to), properties=properties, completes=source.end)
        # With these bits `completes` would be the beginning of a half message.
        records.append(record._replace(sys_flag=record.sys_flag & ~TRANSACTION_TYPE))
    written = store.append(records)
    for (_, queue_offset, *_), record in zip(parts, records, strict=True):
        topics = {topic_ahead(record.properties): 1}
        store.progress.complete(wait_queue, queue_offset, queue_offset + 1, topics)
    return written
