"""Which timers are pending in a store that RocketMQ had last, found without opening it.

It is the rule of the opening, for which the log is read from the oldest timer on; so it is done
once, when somebody asks for timers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqlite.records import record
from rmqlite.records.stored import Record
from rmqlite.store.opening.adoption import NEEDLE, TimerAdoption
from rmqlite.store.progress import ScheduleProgress
from rmqlite.store.reading.log_view import LogView, windows
from rmqlite.store.reading.queue_view import WaitView

Told = Callable[[int, int], None]
"""Is called with the bytes of the log that have been read, and that there are to read."""


def complete_timers(
    view: WaitView,
    progress: ScheduleProgress,
    log: LogView,
    begin: int,
    end: int,
    told: Told | None = None,
) -> None:
    """Complete the timers that are not pending at physical offset `end`.

    progress: as it was at physical offset `begin`, and with all that our own records complete.
    """
    oldest = view.entry(view.queue.min_offset)
    if oldest is None:
        return
    adoption = TimerAdoption(progress)
    adoption.load(_pending_before(view, log, begin))
    begin = max(begin, oldest.physical_offset)
    for position, (heads, data) in windows(log, begin, end, needle=NEEDLE):
        for head in heads:
            if record.has_entry(head.sys_flag):
                adoption.see(Record(head, data))
        if told is not None:
            told(position - begin, end - begin)


def _pending_before(
    view: WaitView, log: LogView, physical_offset: int
) -> Iterator[tuple[int, Record | None]]:
    queue = view.queue
    for queue_offset in view.completed.open_between(queue.min_offset, queue.max_offset):
        entry = view.entry(queue_offset)
        if entry is None or entry.physical_offset >= physical_offset:
            return
        yield queue_offset, log.head_at(entry.physical_offset)
