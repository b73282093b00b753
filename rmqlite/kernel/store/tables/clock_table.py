"""The clock that a store goes on with: config/clock.json.

While messages wait to be delivered and the machine has not been booted since, the store
takes over the clock of the process before: a step of the wall clock in between makes no
message early or late.  Otherwise it takes the wall clock, but never a time before the newest
that the store has seen.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rmqlite.kernel.config.table_shapes import ClockTable
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.dispatch import Dispatch
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.clock import Basis, Clock
from rmqlite.kernel.words.errors import StoreDamaged, StoreUnavailable

CLOCK_TABLE: Final = "clock.json"
AHEAD_MS_MIN: Final = 1_000
"""A clock that is this far behind the store's newest time was set back."""

log = logging.getLogger(__name__)


class Origin(enum.StrEnum):
    """Where the time of a clock came from when it began."""

    WALL_CLOCK = "wall-clock"
    STORE = "store"
    """The store has seen later times than the wall clock showed."""


@dataclass(frozen=True, slots=True)
class SavedClock:
    """The content of config/clock.json."""

    basis: Basis
    origin: Origin
    reached_ms: int


def clock_table(root: Path, clock: Clock, origin: Origin) -> list[tuple[Path, bytes]]:
    """Path and present content of config/clock.json; empty if the system has no boot id."""
    basis = clock.basis()
    if basis is None:
        return []
    reached_ms = clock.now_ms()
    tree = {
        "bootId": basis.boot_id,
        "offsetNanos": basis.offset_ns,
        "origin": origin.value,
        "reachedTimestamp": reached_ms,
        "uptimeMillis": ClockTable.uptime(reached_ms, basis.offset_ns),
    }
    return [(root / "config" / CLOCK_TABLE, tables.encode(tree))]


def open_clock(
    files: Files, root: Path, clock: Clock, newest_ms: int, dispatch: Dispatch
) -> Origin:
    """Set the clock for a store whose newest record is of newest_ms; returns its origin.

    If the table cannot be read, the wall clock is used and a warning is logged.
    """
    saved = _load(files, root)
    origin, goes_on = Origin.WALL_CLOCK, False
    least_ms = max(newest_ms + 1, dispatch.levels.in_force_from_ms)
    # If no message is pending, none can become early: follow a corrected wall clock.
    if saved is not None and _is_any_pending(dispatch):
        least_ms = max(least_ms, saved.reached_ms)
        goes_on = clock.go_on_from(saved.basis, saved.reached_ms)
        if goes_on:
            origin = saved.origin
    if least_ms - clock.now_ms() >= AHEAD_MS_MIN:
        origin = Origin.STORE
    clock.not_before(least_ms)
    if not goes_on:
        _save(files, clock_table(root, clock, origin))
    return origin


def _is_any_pending(dispatch: Dispatch) -> bool:
    return any(
        dispatch.progress.of(wait_queue).below < queue.max_offset
        for key, queue in dispatch.queues.items()
        if queue.max_offset > queue.min_offset and (wait_queue := wait_queue_of(*key))
    )


def _save(files: Files, table: list[tuple[Path, bytes]]) -> None:
    for path, data in table:
        try:
            files.replace(path, data)
        except StoreUnavailable as error:
            # The old file describes another clock; without it the wall clock is used.
            files.remove(path)
            log.warning("the clock in use cannot be saved error=%s", error)


def _load(files: Files, root: Path) -> SavedClock | None:
    path = root / "config" / CLOCK_TABLE
    try:
        table = tables.load_as(files, path, ClockTable)
    except (StoreDamaged, StoreUnavailable) as error:
        log.warning(
            "the last run's clock is unknown, the wall clock is used file=%s error=%r",
            path,
            error,
        )
        return None
    if table is None:
        return None
    basis = Basis(table.boot_id, table.offset_nanos)
    return SavedClock(basis, Origin(table.origin), table.reached_timestamp)
