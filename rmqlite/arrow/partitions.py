"""Partitions: one task reads a stretch of one log file, or stretches of some queues.

A partition is a small value that the driver makes and an executor gets.  It has the place, the
begin and the end of the reading, so that reading it again gives the same rows.
"""

from __future__ import annotations

from dataclasses import dataclass

from rmqlite.levels import LevelHistory

QueueStretch = tuple[str, int, int, int]
"""(topic, queue id, begin, end): the records begin <= queue offset < end."""


@dataclass(frozen=True, slots=True)
class Place:
    """A store's folder (root) or a broker (endpoint), in its state when the reading was planned.

    Only begin <= physical offset < end is read.  known_end: for records before this physical
    offset the queue files have all entries.
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
    """The records of one log file that begin at begin <= physical offset < end.

    bounds: stretches of queues; records of these queues outside of the stretches are left out.
    """

    place: Place
    begin: int
    end: int
    bounds: tuple[QueueStretch, ...] = ()


@dataclass(frozen=True, slots=True)
class QueueSlices:
    """Records by their queue offsets, stretch by stretch; place None: the task looks it up."""

    ranges: tuple[QueueStretch, ...]
    place: Place | None = None


Partition = LogSlice | QueueSlices
