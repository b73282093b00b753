"""The plan of a repair, as values: actions, each with its changes and its losses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.words.message import UNIQ_KEY, find_property, property_marker
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.checking.folders import queue_name
from rmqlite.store_tools.reading.topic_counts import TopicCounts
from rmqlite.store_tools.repairing.changes import Change

PLACE: Final = "repaired-place"
CUT: Final = "cut-tail"
POINTER_CLEARED: Final = "mended-header"
ACCEPTED: Final = "accepted-bytes"
MOVED: Final = "moved-aside"
RESIZED: Final = "length-restored"
MADE: Final = "made-file"
ENTRIES: Final = "cleared-entries"
SUMS: Final = "new-checksums"
_UNIQ_KEY: Final = property_marker(UNIQ_KEY)


@dataclass(frozen=True, slots=True)
class Action:
    """One step of a repair; what: a stable code.  wrong and remedy are sentences.

    lost: a line for each loss.  about: a line for each other record concerned.
    lost_messages: the number of lost messages that have a name.
    """

    what: str
    path: Path
    position: int
    wrong: str
    remedy: str
    changes: tuple[Change, ...]
    lost: tuple[str, ...] = ()
    about: tuple[str, ...] = ()
    lost_messages: int = 0

    def tree(self, root: Path, kept: list[Path]) -> dict[str, Any]:
        """The action in the report; kept: the copies of what it overwrote or removed."""
        return {
            "what": self.what,
            "path": str(self.path.relative_to(root)),
            "position": self.position,
            "wrong": self.wrong,
            "remedy": self.remedy,
            "lost": list(self.lost),
            "lostMessages": self.lost_messages,
            "about": list(self.about),
            "kept": [str(path.relative_to(root)) for path in kept],
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """The findings of a check, the actions against them, and the findings that remain.

    remaining: no action can mend them, or opening the store does.  before, after: the
    messages that can be read of each topic, now and after the repair; empty without actions.
    config: the configuration with which the store must be opened.
    """

    root: Path
    findings: tuple[Finding, ...]
    actions: tuple[Action, ...]
    remaining: tuple[Finding, ...]
    before: TopicCounts
    after: TopicCounts
    config: BrokerConfig


def record_name(key: QueueKey, queue_offset: int, message_id: str = "") -> str:
    """The name of a message in a plan."""
    name = f"{queue_name(key)}, queue offset {queue_offset}"
    return f"{name}, message {message_id}" if message_id else name


def message_id_of(head: Head) -> str:
    """The message id from the producer; empty if there is none."""
    return (find_property(head.properties, _UNIQ_KEY) or b"").decode("utf-8", "replace")


def name_of(head: Head) -> str:
    """The name of a record in a plan."""
    return record_name((head.topic, head.queue_id), head.queue_offset, message_id_of(head))
