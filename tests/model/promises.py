"""What was promised for every message, beside a broker that may crash at any moment.

Nothing here knows files or recovery.  A line is durable once its send was answered, and
shown once its record stands in its topic.  Whatever the disk looks like after a crash, a
broker that opens on it must keep all this; of what was not answered it may keep any part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqlite.message import FAILURE_REASON, find_property, property_marker
from rmqlite.names import SCHEDULE_TOPIC
from rmqlite.requests import Queue
from rmqlite.store.message_store import MessageStore

_REASON = property_marker(FAILURE_REASON)


class Seen(NamedTuple):
    """A record as a broker's store has it."""

    key: str
    body: bytes
    physical_offset: int
    store_timestamp_ms: int


@dataclass(slots=True)
class View:
    """All records that a store has, by queue; those of the schedule by what is left of them."""

    first: dict[Queue, int] = field(default_factory=dict)
    """The queue offset of each queue's first record."""
    shown: dict[Queue, list[Seen]] = field(default_factory=dict)
    waiting: dict[str, Seen] = field(default_factory=dict)
    completed: dict[str, Seen] = field(default_factory=dict)
    min_offset: int = 0
    """The physical offset from which on the store has records."""

    def keys_shown(self) -> list[str]:
        return [seen.key for found in self.shown.values() for seen in found]

    def ends(self) -> dict[Queue, int]:
        return {queue: self.first[queue] + len(found) for queue, found in self.shown.items()}


def view_of(store: MessageStore, since: Mapping[Queue, int] | None = None) -> View:
    """Everything, or what real topics have from these queue offsets on.

    Every body is compared with its CRC, and every entry of a queue with its record.
    """
    view = View(min_offset=store.min_offset)
    for topic, queue_id in store.queue_keys():
        stored = store.queue(topic, queue_id)
        assert stored is not None
        is_schedule = topic == SCHEDULE_TOPIC
        if is_schedule and since is not None:
            continue
        queue = Queue(topic, queue_id)
        first = max(stored.min_offset, (since or {}).get(queue, 0))
        # After a retention that failed half way a queue may still point at what is gone.
        first = max(first, stored.first_with(store.min_offset))
        found = []
        entries = stored.read(first, stored.max_offset - first)
        for at, walked in enumerate(store.read_records(entries), first):
            assert walked is not None, f"{queue} {at}: an entry without a record"
            head, data = walked
            assert (head.topic, head.queue_id, head.queue_offset) == (topic, queue_id, at)
            body = data[head.body_position : head.body_end]
            key = find_property(head.properties, _REASON) or body.split(b" ", 1)[0]
            found.append(Seen(key.decode(), body, head.physical_offset, head.store_timestamp_ms))
        if not is_schedule:
            view.first[queue] = first
            view.shown[queue] = found
            continue
        completed = store.progress.level(queue_id + 1)
        for at, seen in enumerate(found, first):
            which = view.waiting if completed.next_open(at) == at else view.completed
            assert seen.key not in which, f"{seen.key} is scheduled twice"
            which[seen.key] = seen
    return view


@dataclass(slots=True)
class Line:
    """One message on its way.  Positions are those of the broker that runs; None: no record."""

    key: str
    queue: Queue
    body: bytes
    level: int = 0
    due_ms: int = 0
    attempts: int = 0
    scheduled_at: int | None = None
    shown_at: int | None = None
    is_durable: bool = False
    is_shown_durable: bool = False
    is_expired: bool = False
    """Retention took its last record; it may be there or not."""


@dataclass(slots=True)
class Commit:
    """How far a group is in a queue: on disk, and what it has said since."""

    persisted: int | None = None
    since: list[int] = field(default_factory=list)

    @property
    def current(self) -> int | None:
        return self.since[-1] if self.since else self.persisted


@dataclass
class Promises:
    """Every message that a broker has taken or is just taking, and what it must not have."""

    lines: dict[str, Line] = field(default_factory=dict)
    order: dict[Queue, list[str]] = field(default_factory=dict)
    """The key at each queue offset, as far as the running broker has it."""
    gone: set[str] = field(default_factory=set)
    """Refused, or lost in a crash before they were answered: they must not come back."""
    commits: dict[tuple[str, Queue], Commit] = field(default_factory=dict)

    def check(self, view: View) -> None:
        """Nothing acknowledged is lost; nothing is there twice, early, changed or astray."""
        shown = view.keys_shown()
        present = {*shown, *view.waiting}
        assert len(set(shown)) == len(shown), f"delivered twice: {_twice(shown)}"
        assert not present & self.gone, f"came back: {sorted(present & self.gone)}"
        assert present <= self.lines.keys(), f"from nowhere: {present - self.lines.keys()}"
        again = view.waiting.keys() & set(shown)
        assert not again, f"will be delivered twice: {sorted(again)}"
        both = view.waiting.keys() & view.completed.keys()
        assert not both, f"scheduled twice: {sorted(both)}"
        for queue, found in view.shown.items():
            self._check_queue(queue, view.first[queue], found)
        for key, seen in (view.waiting | view.completed).items():
            assert seen.body == self.lines[key].body, f"{key} has another body"
        for key in view.completed.keys() - set(shown):
            assert self._may_be_missing(self.lines[key], view), f"lost: {self.lines[key]}"
        for key in self.lines.keys() - set(shown):
            line = self.lines[key]
            if line.is_durable and not self._may_be_missing(line, view):
                assert key in view.waiting, f"lost: {line}"
                assert not line.is_shown_durable, f"its delivery is lost: {line}"

    def learn(self, view: View, durable_end: int) -> None:
        """What the running broker has, once a call is over; up to an offset it is on disk."""
        for queue, found in view.shown.items():
            keys = self.order.setdefault(queue, [])
            keys[view.first[queue] :] = [seen.key for seen in found]
            for seen in found:
                line = self.lines[seen.key]
                line.shown_at = seen.physical_offset
                line.is_shown_durable = seen.physical_offset < durable_end
        for key, seen in (view.waiting | view.completed).items():
            self.lines[key].scheduled_at = seen.physical_offset
        for line in self.lines.values():
            first = line.scheduled_at if line.level else line.shown_at
            line.is_durable = line.is_durable or (first is not None and first < durable_end)

    def drop(self, keys: Iterable[str]) -> None:
        """They were never answered and are not there: they must not come back."""
        for key in keys:
            del self.lines[key]
            self.gone.add(key)

    def reopened(self, view: View) -> None:
        """A broker has opened after a crash: what it has is on disk, what it has not is gone."""
        for queue in self.order:
            del self.order[queue][view.ends().get(queue, 0) :]
        present = {*view.keys_shown(), *view.waiting}
        for line in list(self.lines.values()):
            if line.key not in present and not line.is_expired:
                self.drop([line.key])
            elif line.key in view.waiting:
                line.shown_at = None

    def expire(self, view: View) -> None:
        """What the running broker has no more after a retention may be there or not."""
        for key in self.lines.keys() - {*view.keys_shown(), *view.waiting}:
            line = self.lines[key]
            line.is_expired = self._may_be_missing(line, view)

    def oldest_waiting(self) -> int | None:
        """Where the first record lies that is still to be delivered."""
        waiting = [
            line.scheduled_at
            for line in self.lines.values()
            if line.scheduled_at is not None and line.shown_at is None
        ]
        return min(waiting, default=None)

    def _may_be_missing(self, line: Line, view: View) -> bool:
        is_before = line.shown_at is not None and line.shown_at < view.min_offset
        return line.is_expired or (line.is_shown_durable and is_before)

    def _check_queue(self, queue: Queue, first: int, found: list[Seen]) -> None:
        known = self.order.get(queue, [])
        keys = [seen.key for seen in found]
        length = min(len(known), first + len(keys))
        assert keys[: length - first] == known[first:length], f"another order in {queue}"
        durable = [at for at, key in enumerate(known) if self.lines[key].is_shown_durable]
        reach = durable[-1] + 1 if durable else 0
        assert first + len(keys) >= reach, f"{queue} ends at {first + len(keys)}, not {reach}"
        for seen in found:
            line = self.lines[seen.key]
            assert line.queue == queue, f"{seen.key} went astray, to {queue}"
            assert seen.body == line.body, f"{seen.key} has another body"
            early_ms = line.due_ms - seen.store_timestamp_ms
            assert early_ms <= 0, f"{seen.key} was delivered {early_ms} ms early"


def _twice(keys: Iterable[str]) -> list[str]:
    return sorted(key for key, count in Counter(keys).items() if count > 1)
