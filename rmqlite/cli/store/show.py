"""rmqlite store show: a store's contents, state, pending messages and size."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from rmqlite.cli.options import AsJson, option
from rmqlite.cli.output.documents import Document, many, maybe, prints
from rmqlite.cli.output.terminal import print_json, print_table, printable, to_tree
from rmqlite.cli.store.options import ConfigFile, StorePath, open_store, settle_timers
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.names import is_system
from rmqlite.views.levels import delay_cell, level_text, waiting_text
from rmqlite.views.numbers import counted, size_text, span_text, time_text

if TYPE_CHECKING:
    from rmqlite.store_tools.reader import (
        DiskUse,
        GroupLag,
        KeptFiles,
        LevelInfo,
        QueueInfo,
        SegmentInfo,
        StoreInfo,
        StoreOverview,
    )

SEGMENTS_SHOWN: Final = 3
"""The log files shown at the beginning and at the end, without --all."""
QUEUES_SHOWN: Final = 40
"""More queues than this are added up by topic, without --all."""
_ENTRY_BYTES: Final = 20
_SECONDS: Final = len("2026-11-20 10:00:00")
_STATES: Final = {
    "live": "live, a broker is running on it",
    "closed": "closed cleanly",
    "crashed": "crashed, or copied while live",
}


@dataclasses.dataclass(frozen=True, slots=True)
class _Figures:
    """All figures, counted before the first line is printed."""

    store: StoreInfo
    levels_text: str
    segments: list[SegmentInfo]
    queues: list[QueueInfo]
    levels: list[LevelInfo]
    groups: list[GroupLag]
    disk: DiskUse
    pin: KeptFiles | None


def _documents() -> tuple[Document, Document]:
    """What --json prints, and the document of a group's lag in it."""
    from rmqlite.store_tools import reader

    lag = Document("Lag", "A group's lag in a queue.", reader.GroupLag, lag=int)
    figures = Document(
        "ShownStore",
        "A store's files, queues, levels, groups and disk space.",
        store=reader.StoreInfo,
        levels_text=str,
        segments=list[reader.SegmentInfo],
        queues=list[reader.QueueInfo],
        levels=list[reader.LevelInfo],
        groups=many(lag),
        disk=reader.DiskUse,
        pin=maybe(reader.KeptFiles),
    )
    return figures, lag


@prints(lambda: _documents()[0])
def show(
    path: StorePath = None,
    config: ConfigFile = None,
    with_all: Annotated[
        bool, option("--all", "Every log file, queue and level, and RocketMQ's own topics.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show state, log files, queues, levels, lag and disk; a broker may be running on it."""
    with open_store(path, config) as reader:
        settle_timers(reader)
        figures = _count(reader.overview(), reader.levels_text, reader.old_before_ms())
    if as_json:
        shown, of_group = _documents()
        groups = [of_group.tree(each, lag=each.lag) for each in figures.groups]
        print_json(shown.tree(**to_tree(figures) | {"groups": groups}))
        return
    _print_store(figures)
    _print_segments(figures.segments, with_all=with_all)
    _print_queues(figures.queues, with_all=with_all)
    _print_levels(figures.levels, with_all=with_all)
    _print_groups(figures.groups)


def _count(overview: StoreOverview, levels_text: str, old_before_ms: int) -> _Figures:
    return _Figures(
        overview.info(),
        levels_text,
        overview.segments(),
        overview.queues(),
        overview.levels(),
        overview.lags(),
        overview.disk(),
        overview.pin(old_before_ms),
    )


def _print_store(figures: _Figures) -> None:
    info, disk = figures.store, figures.disk
    users = [queue for queue in figures.queues if not is_system(queue.topic)]
    count = sum(queue.max_offset - queue.min_offset for queue in users)
    pending = sum(level.pending for level in figures.levels)
    newest = time_text(info.newest_timestamp_ms)[:_SECONDS]
    entries = info.queue_file_bytes // _ENTRY_BYTES
    lines = [
        ("store", str(info.root)),
        ("state", f"{_STATES[info.state]}; {_progress(info)}"),
        ("holds", f"{counted(count, 'message')}, {pending:,} pending, the newest of {newest}"),
        ("log", f"{size_text(info.end - info.begin)}, physical offsets {info.begin} to {info.end}"),
        ("disk", f"{disk.used_ratio:.0%} used; of it {_on_disk(disk)}"),
        (
            "format",
            f"RocketMQ 4.x; files of {size_text(info.log_file_bytes)} of log, "
            f"of {entries:,} queue entries",
        ),
    ]
    if info.damage:
        lines.append(("damage", f"{info.damage}; rmqlite store check shows more"))
    if figures.pin:
        lines.append(("pinned", _pinned(figures.pin)))
    for name, text in lines:
        sys.stdout.write(f"{name:<8}{printable(text)}\n")


def _progress(info: StoreInfo) -> str:
    if info.behind_bytes is None:
        return "no progress of rmqlite's"
    if info.behind_bytes == 0:
        return "progress is saved"
    return f"progress is saved but for {size_text(info.behind_bytes)}"


def _on_disk(disk: DiskUse) -> str:
    parts = {
        "log": disk.log_allocated_bytes,
        "queues": disk.queue_allocated_bytes,
        "index": disk.index_allocated_bytes,
    }
    return ", ".join([f"{name} {size_text(size)}" for name, size in parts.items()])


def _pinned(pin: KeptFiles) -> str:
    return (
        f"{size_text(pin.kept_bytes)} of expired log files stay for {waiting_text(pin.level)}, "
        f"due {time_text(pin.deliver_at_ms)}, "
        f"at physical offset {pin.physical_offset}"
    )


def _print_segments(segments: Sequence[SegmentInfo], *, with_all: bool) -> None:
    shown = list(segments)
    left_out = len(segments) - 2 * SEGMENTS_SHOWN
    if left_out > 1 and not with_all:
        shown = [*segments[:SEGMENTS_SHOWN], *segments[-SEGMENTS_SHOWN:]]
    rows: list[tuple[object, ...]] = [
        (
            each.path.name,
            size_text(each.record_bytes),
            time_text(each.first_timestamp_ms)[:_SECONDS],
            time_text(each.last_timestamp_ms)[:_SECONDS],
        )
        for each in shown
    ]
    if len(shown) < len(segments):
        rows.insert(SEGMENTS_SHOWN, (f"… {left_out:,} more …", "", "", ""))
    if rows:
        print_table(("FILE", "RECORDS", "FIRST", "LAST"), rows, title="log files")


def _print_queues(queues: Sequence[QueueInfo], *, with_all: bool) -> None:
    shown = [each for each in queues if with_all or not is_system(each.topic)]
    if not shown:
        return
    if len(shown) > QUEUES_SHOWN and not with_all:
        _print_topics(shown)
        return
    rows: list[tuple[object, ...]] = []
    before = ""
    for each in shown:
        rows.append(
            (
                each.topic if each.topic != before else "",
                each.queue_id,
                each.min_offset,
                each.max_offset,
                size_text(each.bytes),
                time_text(each.newest_timestamp_ms)[:_SECONDS],
            )
        )
        before = each.topic
    print_table(("TOPIC", "QUEUE", "MIN", "MAX", "SIZE", "NEWEST"), rows, title="queues")


def _print_topics(queues: Sequence[QueueInfo]) -> None:
    topics: dict[str, list[QueueInfo]] = {}
    for each in queues:
        topics.setdefault(each.topic, []).append(each)
    rows = [
        (
            topic,
            len(mine),
            sum(each.max_offset - each.min_offset for each in mine),
            size_text(sum(each.bytes for each in mine)),
            time_text(max(each.newest_timestamp_ms for each in mine))[:_SECONDS],
        )
        for topic, mine in topics.items()
    ]
    title = "topics (--all shows each queue)"
    print_table(("TOPIC", "QUEUES", "MESSAGES", "SIZE", "NEWEST"), rows, title=title)


def _print_levels(levels: Sequence[LevelInfo], *, with_all: bool) -> None:
    shown = [each for each in levels if with_all or each.pending]
    if not shown:
        return
    now_ms = wall_ms()
    rows = []
    for each in shown:
        wait = "-"
        if each.next_due_ms is not None:
            wait_ms = each.next_due_ms - now_ms
            wait = f"in {span_text(wait_ms)}" if wait_ms > 0 else "due"
        due = time_text(each.next_due_ms or 0)[:_SECONDS]
        delay = delay_cell(each.level, each.delay)
        rows.append((level_text(each.level), delay, each.pending, due, wait))
    print_table(("LEVEL", "DELAY", "PENDING", "NEXT DUE", ""), rows, title="delay levels")


def _print_groups(lags: Sequence[GroupLag]) -> None:
    groups: dict[tuple[str, str], list[GroupLag]] = {}
    for each in lags:
        groups.setdefault((each.group, each.topic), []).append(each)
    rows = [
        (*key, len(mine), sum(each.committed_offset for each in mine), sum(e.lag for e in mine))
        for key, mine in groups.items()
    ]
    if rows:
        print_table(("GROUP", "TOPIC", "QUEUES", "COMMITTED", "LAG"), rows, title="groups")
