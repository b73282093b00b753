"""The places of a store's log and queues, for processes that map the files themselves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from rmqlite.errors import StoreDamaged
from rmqlite.levels import LevelHistory
from rmqlite.store.disk.files import Files
from rmqlite.store.opening.file_sizes import Sizes
from rmqlite.store.reading.snapshot import Snapshot
from rmqlite.store.tables import tables
from rmqlite.table_shapes import TopicsTable

TOPICS_TABLE: Final = "topics.json"


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
    records of these, and their queues do not.
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


def layout_of(snapshot: Snapshot, sizes: Sizes, topics: tuple[str, ...]) -> StoreLayout:
    """The layout of a snapshot.  Raises StoreDamaged if the log ends in damage."""
    if snapshot.damage is not None:
        raise snapshot.damage
    log = snapshot.log
    starts = [each for each in log.segments.starts if snapshot.begin <= each < snapshot.end]
    queues = [
        QueueExtent(*key, queue.min_offset, queue.filed, queue.max_offset)
        for key, queue in sorted(snapshot.queues.items())
    ]
    return StoreLayout(
        sizes.log_file_bytes,
        sizes.queue_file_bytes,
        snapshot.begin,
        snapshot.known_end,
        snapshot.end,
        snapshot.last_timestamp_ms(),
        snapshot.levels,
        tuple(
            (start, snapshot.log.timestamp_at(start)) for start in starts if start < snapshot.end
        ),
        tuple(queues),
        topics,
        snapshot.deleted.with_records_after(snapshot.begin),
    )


def topics_of(files: Files, root: Path) -> tuple[str, ...]:
    """The names in the table of topics; none if the table cannot be read."""
    try:
        table = tables.load_as(files, root / "config" / TOPICS_TABLE, TopicsTable)
    except StoreDamaged:
        # The log can be read without it.
        return ()
    return tuple(table.topic_config_table) if table else ()
