"""The plan of a repair, as values: actions, each with its changes of files and its losses.

A change is first shown in a layer, then carried out.  All bytes that the changes overwrite or
remove are copied to a side folder and synced before the first change; each change may be made
twice.  So an interrupted repair loses nothing, and a new plan starts from the files as they are.

Losses are what fewer messages there are afterwards: topics are counted in a snapshot, in one walk
over the log.  A record counts if it is sound, and lies in its queue or waits for its topic.  A
repaired place does not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path
from typing import Any, Final, NamedTuple

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records import record
from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.record import Head
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.disk.regular_file import FOLDER, REGULAR
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.words.message import UNIQ_KEY, find_property, property_marker
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.store_tools.checking.file_layer import FileLayer, queue_name
from rmqlite.store_tools.checking.finding import Finding
from rmqlite.store_tools.reading.log_view import windows
from rmqlite.store_tools.reading.snapshot import Snapshot

"""Half messages of transactions, and repaired places."""
_COPY_BYTES: Final = 1 << 20
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


class TopicCount(NamedTuple):
    """messages: in the topic's queues.  pending: waiting for the topic.  bytes: of both."""

    messages: int = 0
    pending: int = 0
    bytes: int = 0

    def plus(self, other: TopicCount) -> TopicCount:
        return TopicCount(*map(sum, zip(self, other, strict=True)))


TopicCounts = dict[str, TopicCount]


def total(counts: Iterable[TopicCount]) -> TopicCount:
    """The sum of all counts."""
    added = TopicCount()
    for each in counts:
        added = added.plus(each)
    return added


def count_topics(snapshot: Snapshot) -> TopicCounts:
    """The counts of each topic, by name; takes about 2 µs for each record of the log."""
    queues = {key: _Queue() for key in snapshot.queues}
    pending = defaultdict[str, list[int]](lambda: [0, 0])
    walk = windows(snapshot.log, snapshot.begin, snapshot.end)
    for head in chain.from_iterable(window.heads for _, window in walk):
        key = (head.topic, head.queue_id)
        view, offset = snapshot.queues.get(key), head.queue_offset
        if not record.has_entry(head.sys_flag) or view is None:
            continue
        if not view.min_offset <= offset < view.max_offset:
            continue
        wait_queue = wait_queue_of(*key)
        if not wait_queue:
            queues[key].add(head)
            continue
        waits = snapshot.wait_view(wait_queue)
        if waits is not None and waits.is_pending(offset):
            counts = pending[topic_ahead(PropertyString(head.properties))]
            counts[0] += 1
            counts[1] += head.size
    return _by_topic(queues, pending)


class _Queue:
    """The counts of one queue."""

    __slots__ = ("bytes", "messages", "next")

    def __init__(self) -> None:
        self.messages = self.bytes = self.next = 0

    def add(self, head: Head) -> None:
        if head.queue_offset < self.next:
            # Its topic was deleted and made again.
            self.messages = self.bytes = 0
        self.messages += 1
        self.bytes += head.size
        self.next = head.queue_offset + 1


def _by_topic(queues: dict[QueueKey, _Queue], pending: dict[str, list[int]]) -> TopicCounts:
    found = defaultdict[str, TopicCount](TopicCount)
    for (topic, _), queue in sorted(queues.items()):
        if queue.messages:
            found[topic] = found[topic].plus(TopicCount(queue.messages, 0, queue.bytes))
    for topic, (messages, size) in sorted(pending.items()):
        found[topic] = found[topic].plus(TopicCount(0, messages, size))
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Other bytes at a position of a file; the file is made if there is none."""

    path: Path
    position: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Zero:
    """Only zeros from a position of a file on."""

    path: Path
    position: int


@dataclass(frozen=True, slots=True)
class Resize:
    """Another length, or a new file of zeros."""

    path: Path
    size: int


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a file or folder with all its content, after a copy; of a link only the link."""

    path: Path


Change = Overwrite | Zero | Resize | Remove


def show(change: Change, layer: FileLayer) -> None:
    """Let the layer look as if the change were made."""
    path = change.path
    if isinstance(change, Overwrite):
        layer.patch(path, change.position, change.data)
    elif isinstance(change, Zero):
        layer.zero(path, change.position)
    elif isinstance(change, Remove):
        layer.hide(path)
    elif path.name in layer.names(path.parent):
        layer.resize(path, change.size)
    else:
        layer.make(path, change.size)


class Keeper:
    """Copies bytes that changes will overwrite or remove into a side folder, durably.

    A copy has the name of its file; a copy of a part also has its position in the name.
    """

    def __init__(self, files: Files, root: Path, side: Path) -> None:
        self._files = files
        self._root = root
        self._side = side
        self._removed: set[Path] = set()
        self._taken: set[Path] = set()

    def keep(self, change: Change) -> list[Path]:
        """Copy the bytes that one change overwrites or removes; returns the copies."""
        path = change.path
        if path in self._removed or not _exists(self._files, path):
            return []
        target = self._side / path.relative_to(self._root)
        if isinstance(change, Remove):
            self._removed.add(path)
            return list(self._keep_all(path, target))
        size = self._files.size(path)
        begin, end = change.size if isinstance(change, Resize) else change.position, size
        if isinstance(change, Overwrite):
            end = min(size, begin + len(change.data))
        elif not _has_bytes(self._files, path, begin, end):
            end = begin
        if begin >= end:
            return []
        return [self._copied(path, target.with_name(f"{target.name}@{begin}"), begin, end)]

    def _keep_all(self, path: Path, target: Path) -> Iterator[Path]:
        kind = self._files.kind(path)
        if kind == FOLDER:
            for name in self._files.names(path):
                yield from self._keep_all(path / name, target / name)
        elif kind == REGULAR:
            # Only regular files: the target of a link does not belong to this store.
            yield self._copied(path, target, 0, self._files.size(path))

    def _copied(self, path: Path, target: Path, begin: int, end: int) -> Path:
        """A copy of the bytes begin <= n < end, holes as holes, under a name of its own."""
        names = (target.with_name(f"{target.name}-{number}") for number in count(2))
        target = next(each for each in chain([target], names) if each not in self._taken)
        self._taken.add(target)
        files = self._files
        files.make_folder(target.parent)
        files.create(target, end - begin)
        at = begin
        while at < end:
            at = min(end, files.next_data(path, at))
            data = files.read(path, at, min(_COPY_BYTES, end - at))
            if any(data):
                files.write(target, at - begin, data)
            at += max(1, len(data))
        files.sync(target)
        return target


def make(change: Change, files: Files) -> None:
    """Make the change, durably."""
    path = change.path
    if isinstance(change, Remove):
        _remove(files, path)
    elif isinstance(change, Zero):
        files.cut(path, change.position)
    elif isinstance(change, Resize):
        files.make_folder(path.parent)
        files.create(path, change.size)
        files.sync(path)
    else:
        files.write(path, change.position, change.data)
        files.sync(path)


def _has_bytes(files: Files, path: Path, begin: int, end: int) -> bool:
    """Are there bytes other than zeros between begin and end?"""
    at = begin
    while at < end:
        at = min(end, files.next_data(path, at))
        data = files.read(path, at, min(_COPY_BYTES, end - at))
        if any(data):
            return True
        at += max(1, len(data))
    return False


def _remove(files: Files, path: Path) -> None:
    if files.kind(path) == FOLDER:
        for name in files.names(path):
            _remove(files, path / name)
    files.remove(path)


def _exists(files: Files, path: Path) -> bool:
    return path.name in files.names(path.parent)


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
