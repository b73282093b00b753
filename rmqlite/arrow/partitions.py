"""What one task reads: a stretch of one log file, or stretches of some queues.

A partition is a small value that the driver makes and an executor gets; it says where to read
and up to where, so that reading it again gives the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqlite.levels import LevelHistory

QueueStretch = tuple[str, int, int, int]
"""(topic, queue id, begin, end): the records begin <= queue offset < end."""


@dataclass(frozen=True, slots=True)
class Place:
    """A store's folder (root) or a broker (endpoint), as it was when the reading was planned.

    begin <= physical offset < end is all that is read; known_end: up to there a store's
    queues have all their entries in their files.
    """

    root: str
    endpoint: str
    log_file_bytes: int
    queue_file_bytes: int
    begin: int
    known_end: int
    end: int
    levels: LevelHistory

    @property
    def where(self) -> str:
        return self.root or self.endpoint


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The records that begin at begin <= physical offset < end, of one log file.

    bounds: stretches of queues; of these queues no other records are taken.
    """

    place: Place
    begin: int
    end: int
    bounds: tuple[QueueStretch, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSlices:
    """Records by their queue offsets, stretch by stretch; without a place it is looked up."""

    ranges: tuple[QueueStretch, ...]
    place: Place | None = None


Partition = LogSlice | QueueSlices
