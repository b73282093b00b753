"""The store's read-only interface, for another process, with a live broker or without one.

A reader shows the store at the moment when it was opened; it changes no byte, no name and no
time, and takes no lock.  It does not show later messages; it skips messages that retention
has removed since, and reports that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, Self

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.config.table_shapes import TopicsTable
from rmqlite.kernel.records.record import has_sound_body, read_head, to_message
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.store.consume_queue import first_stored_at
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.store.log.log_walk import LogWalk
from rmqlite.kernel.store.opening.file_sizes import sizes_of
from rmqlite.kernel.store.opening.recovery import PROGRESS_TABLE
from rmqlite.kernel.words.clock import wall_ms
from rmqlite.kernel.words.errors import InvalidValue, StoreDamaged
from rmqlite.kernel.words.levels import LevelHistory
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.store_tools.reading.log_view import LiveFiles
from rmqlite.store_tools.reading.message_filter import MessageFilter
from rmqlite.store_tools.reading.overview import (
    DiskUse,
    GroupLag,
    KeptFiles,
    LevelInfo,
    QueueInfo,
    ScheduledWait,
    SegmentInfo,
    StoreInfo,
    StoreOverview,
    StoreState,
)
from rmqlite.store_tools.reading.promises import Promises
from rmqlite.store_tools.reading.search import Search
from rmqlite.store_tools.reading.snapshot import Report, Snapshot

__all__ = [
    "DiskUse",
    "GroupLag",
    "KeptFiles",
    "LevelInfo",
    "LiveFiles",
    "MessageFilter",
    "QueueExtent",
    "QueueInfo",
    "ScheduledWait",
    "Search",
    "SegmentInfo",
    "StoreInfo",
    "StoreLayout",
    "StoreOverview",
    "StoreReader",
    "StoreState",
    "messages_in",
]

TOPICS_TABLE: Final = "topics.json"
_HOUR_MS: Final = 3_600_000
WARNINGS_MAX: Final = 10
"""The most warnings of one look."""
_STORE_RULE: Final = "a store's folder: one with commitlog/ or a checkpoint in it"

logger = logging.getLogger(__name__)


class QueueExtent(NamedTuple):
    """min_offset <= queue offset < max_offset; those below `filed` are in the queue's files."""

    topic: str
    queue_id: int
    min_offset: int
    filed: int
    max_offset: int


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """A store at one moment; begin <= physical offset < end are whole, sound records.

    known_end: up to there the queues' files have an entry for every record.  files: for each
    log file the physical offset of its first byte, and the store timestamp of its first
    record or None.  topics: the names in the table of topics.  deleted_topics: the log still has
    records of these, and their queues do not.  warnings: a sentence for each promised part that
    is missing, and that a crash explains.
    """

    log_file_bytes: int
    queue_file_bytes: int
    begin: int
    known_end: int
    end: int
    newest_timestamp_ms: int
    levels: LevelHistory
    files: tuple[tuple[int, int | None], ...]
    queues: tuple[QueueExtent, ...]
    topics: tuple[str, ...]
    deleted_topics: tuple[str, ...]
    warnings: tuple[str, ...]


class StoreReader:
    """A store opened for reading, by one thread."""

    def __init__(
        self, root: Path, config: BrokerConfig | None = None, *, only_layout: bool = False
    ) -> None:
        """config: a broker's, for delay levels and retention, which the files may lack.
        only_layout: only layout() will be called; a store without storeProgress.json opens faster.

        Raises InvalidValue if root is no store, ConfigInvalid for a configured file length
        that differs from the files', StoreDamaged, StoreUnavailable.
        """
        self.root = root
        self._config = config or BrokerConfig()
        self._files = LiveFiles()
        _check_store(self._files, root)
        self._sizes = sizes_of(self._files, root, self._config)
        self._only_layout = only_layout
        self._state = self._find_state()
        try:
            self._snapshot = self._look()
        except BaseException:
            self._files.close()
            raise

    def _look(self) -> Snapshot:
        try:
            return self._new_snapshot()
        except StoreDamaged:
            # A broker may have made its first files meanwhile, of lengths that were set for it.
            guessed, self._sizes = self._sizes, sizes_of(self._files, self.root, self._config)
            if self._sizes == guessed:
                raise
            return self._new_snapshot()

    def _new_snapshot(self) -> Snapshot:
        return Snapshot(
            self._files,
            self.root,
            self._sizes,
            self._config.levels,
            is_crashed=self._state is StoreState.CRASHED,
            only_ends=self._only_layout,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._files.close()

    def settle_timers(self, report: Report | None = None) -> None:
        """Find out which timers are pending; otherwise the first question for timers does it.

        This takes long if RocketMQ had the store last, and has timers in a long log.  report: is
        called with its progress, without a unit, and the total.
        """
        self._snapshot.settle_timers(report)

    # ---- messages

    def search(self, wanted: MessageFilter, *, skip_damaged: bool = False) -> Search:
        """A search in batches, with its progress and the number of places left out."""
        return Search(self._snapshot, wanted, skip_damaged=skip_damaged)

    def messages(self, wanted: MessageFilter) -> Iterator[StoredMessage]:
        """The messages that a filter takes, in the order of the log.  Raises StoreDamaged."""
        return chain.from_iterable(self.search(wanted).batches())

    def waiting(self, message: StoredMessage) -> ScheduledWait | None:
        """The deliver time and state of a scheduled record; None for any other."""
        view = self._snapshot.wait_view(wait_queue_of(message.topic, message.queue_id))
        if view is None:
            return None
        offset = message.queue_offset
        return ScheduledWait(view.wait_queue, view.due_ms(offset), view.is_pending(offset))

    # ---- queues

    def offsets_at(self, timestamp_ms: int) -> dict[QueueKey, int]:
        """The first queue offset of each queue stored at or after a time; its end if none."""
        # Store timestamps never go back in the log: entries in files are searched by halves,
        # and later records walked once for all queues.
        snapshot, found = self._snapshot, {}
        for key, queue in snapshot.queues.items():
            filed = range(queue.min_offset, max(queue.min_offset, queue.filed))
            timestamp_of = snapshot.log.timestamp_at
            found[key] = first_stored_at(filed, queue.entry, timestamp_of, timestamp_ms)
        walk = LogWalk(snapshot.log.segments, snapshot.known_end, snapshot.end)
        for head in chain.from_iterable(window.heads for window in walk):
            if head.store_timestamp_ms >= timestamp_ms:
                break
            key = (head.topic, head.queue_id)
            if key in found and head.queue_offset >= found[key]:
                found[key] = head.queue_offset + 1
        return found

    # ---- the store as a whole

    @property
    def levels_text(self) -> str:
        """The messageDelayLevel that is in force."""
        return self._snapshot.levels.current.text

    def layout(self, *, allow_loss: bool = False) -> StoreLayout:
        """The places of log and queues.

        Raises StoreDamaged if the log ends in damage, and as check_promises().
        """
        snapshot = self._snapshot
        if snapshot.damage is not None:
            raise snapshot.damage
        warnings = self.check_promises(allow_loss=allow_loss)
        log = snapshot.log
        starts = [each for each in log.segments.starts if snapshot.begin <= each < snapshot.end]
        return StoreLayout(
            *self._sizes,
            snapshot.begin,
            snapshot.known_end,
            snapshot.end,
            snapshot.last_timestamp_ms(),
            snapshot.levels,
            tuple((start, log.timestamp_at(start)) for start in starts),
            tuple(
                QueueExtent(*key, queue.min_offset, queue.filed, queue.max_offset)
                for key, queue in sorted(snapshot.queues.items())
            ),
            self._topics(),
            snapshot.deleted.with_records_after(snapshot.begin),
            warnings,
        )

    def check_promises(self, *, allow_loss: bool = False) -> tuple[str, ...]:
        """Warn of what the store lacks, for a reading that answers for all records.

        Returns the warnings.  Raises StoreDamaged if log or queues are shorter than the store
        promises, and no crash explains it; allow_loss: that is a warning, too.
        """
        promises = Promises(self._files, self.root, self._state, self._snapshot)
        found: dict[str, None] = {}
        for error, is_explained in promises.shortfalls(self._topics(), self.overview().lags()):
            if not is_explained and not allow_loss:
                raise error
            if len(found) < WARNINGS_MAX:
                found[str(error)] = None
        for each in found:
            _warn(each)
        return tuple(found)

    def overview(self) -> StoreOverview:
        """The store in figures."""
        return StoreOverview(self._files, self.root, self._sizes, self._state, self._snapshot)

    def old_before_ms(self) -> int:
        """Log files last written before this wall-clock time are older than fileReservedTime."""
        return wall_ms() - self._config.file_reserved_hours * _HOUR_MS

    # ---- parts

    def _topics(self) -> tuple[str, ...]:
        """The names in the table of topics; none if the table cannot be read."""
        try:
            table = self._snapshot.tables.load(TOPICS_TABLE, TopicsTable)
        except StoreDamaged:
            # The log can be read without it.
            return ()
        return tuple(table.topic_config_table) if table else ()

    def _find_state(self) -> StoreState:
        if self._files.is_locked(self.root / "lock"):
            return StoreState.LIVE
        is_aborted = self._files.kind(self.root / "abort")
        return StoreState.CRASHED if is_aborted else StoreState.CLOSED


@cache
def _warn(sentence: str) -> None:
    """Log a warning once: a stream looks at its store before each batch."""
    logger.warning("the store may lack records: %s", sentence)


def _check_store(files: Files, root: Path) -> None:
    if not files.is_folder(root):
        raise InvalidValue("store", root, "a folder that exists")
    has_log = files.is_folder(root / "commitlog")
    has_table = any(
        files.kind(path) for path in (root / "checkpoint", root / "config" / PROGRESS_TABLE)
    )
    if not has_log and not has_table:
        raise InvalidValue("store", root, _STORE_RULE)


def messages_in(records: bytes, source: str) -> Iterator[StoredMessage]:
    """The messages in the bytes of raw_records(); source is named in the error.

    Checks bodies, too.  Raises StoreDamaged.
    """
    at = 0
    while at < len(records):
        head = read_head(records, at)
        if head is None:
            raise StoreDamaged(source, at, "a record", "something else")
        # The positions of a head are those of the data it was read from.
        if not has_sound_body(head, records):
            place = head.physical_offset
            raise StoreDamaged(source, place, "a body that fits its CRC", "another one")
        yield to_message(head, records)
        at += head.size
