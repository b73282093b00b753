"""What was promised for every message, beside a broker that may crash at any moment.

Nothing here knows files or recovery.  A line is durable once its send was answered, and
shown once its record stands in its topic; or it was cancelled, and is never shown.  Whatever
the disk looks like after a crash, a broker that opens on it must keep all this; of what was
not answered it may keep any part, but never two ends of one message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from rmqlite.kernel.records.completion import topic_ahead
from rmqlite.kernel.records.wait_queues import WAIT_TOPICS, wait_queue_of
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.message import FAILURE_REASON, FIRED
from rmqlite.kernel.words.names import CANCELLED_TOPIC, TABLES_TOPIC


class Seen(NamedTuple):
    """A record as a broker's store has it."""

    key: str
    body: bytes
    physical_offset: int
    end: int
    store_timestamp_ms: int
    completes: int
    """Where the scheduled record ends whose wait this one has ended."""
    due_ms: int
    """Of a scheduled record: what its entry says."""
    is_fired: bool


@dataclass(slots=True)
class View:
    """All records that a store has, by queue; those of the schedule by what is left of them."""

    first: dict[Queue, int] = field(default_factory=dict)
    """The queue offset of each queue's first record."""
    shown: dict[Queue, list[Seen]] = field(default_factory=dict)
    waiting: dict[str, Seen] = field(default_factory=dict)
    completed: dict[str, list[Seen]] = field(default_factory=dict)
    """As they lie in the log: a message that was rescheduled has several."""
    cancelled: dict[str, Seen] = field(default_factory=dict)
    """By whom they cancelled, as far as the store still has that."""
    pending: Counter[tuple[int, str]] = field(default_factory=Counter)
    min_offset: int = 0
    """The physical offset from which on the store has records."""

    def without_empty_queues(self) -> View:
        """A queue that never had a record is a name and no promise: a power cut may take it."""
        kept = {queue for queue in self.first if self.first[queue] or self.shown.get(queue)}
        return replace(
            self,
            first={queue: first for queue, first in self.first.items() if queue in kept},
            shown={queue: found for queue, found in self.shown.items() if queue in kept},
        )

    def keys_shown(self) -> list[str]:
        return [seen.key for found in self.shown.values() for seen in found]

    def ends(self) -> dict[Queue, int]:
        return {queue: self.first[queue] + len(found) for queue, found in self.shown.items()}


def view_of(store: MessageStore, since: Mapping[Queue, int] | None = None) -> View:
    """Everything, or what real topics have from these queue offsets on.

    Every body is compared with its CRC, every entry of a queue with its record, and what is
    said to be pending with what is.
    """
    view = View(min_offset=store.min_offset)
    cancellations: list[Seen] = []
    for topic, queue_id in store.queue_keys():
        stored = store.queue(topic, queue_id)
        assert stored is not None
        if topic == TABLES_TOPIC:
            continue
        if topic in (*WAIT_TOPICS, CANCELLED_TOPIC) and since is not None:
            continue
        queue, wait_queue = Queue(topic, queue_id), wait_queue_of(topic, queue_id)
        first = max(stored.min_offset, (since or {}).get(queue, 0))
        # After a retention that failed half way a queue may still point at what is gone.
        first = max(first, stored.first_with(store.min_offset))
        found = []
        entries = stored.read(first, stored.max_offset - first)
        for at, walked in enumerate(store.read_records(entries), first):
            assert walked is not None, f"{queue} {at}: an entry without a record"
            head, properties, body = walked.head, walked.properties, walked.body
            assert (head.topic, head.queue_id, head.queue_offset) == (topic, queue_id, at)
            key = properties.get(FAILURE_REASON) or body.split(b" ", 1)[0]
            found.append(
                Seen(
                    key.decode(),
                    body,
                    head.physical_offset,
                    head.physical_offset + head.size,
                    head.store_timestamp_ms,
                    head.completes,
                    entries[at - first].tags_code,
                    properties.get(FIRED) is not None,
                )
            )
            if wait_queue and _is_open(store, wait_queue, at):
                view.pending[wait_queue, topic_ahead(properties)] += 1
        if topic == CANCELLED_TOPIC:
            cancellations = found
        elif wait_queue:
            _sort_out(view, store, wait_queue, first, found)
        else:
            view.first[queue] = first
            view.shown[queue] = found
    if since is None:
        _join(view, cancellations)
        pending = store.progress.pending
        said = {(level, topic): n for level in pending for topic, n in pending[level].items()}
        assert said == view.pending, f"pending are {view.pending}, not {said}"
    return view


def _is_open(store: MessageStore, wait_queue: int, queue_offset: int) -> bool:
    return store.progress.of(wait_queue).next_open(queue_offset) == queue_offset


def _sort_out(
    view: View, store: MessageStore, wait_queue: int, first: int, found: list[Seen]
) -> None:
    """Which records of a wait queue wait?"""
    for at, seen in enumerate(found, first):
        if _is_open(store, wait_queue, at):
            assert seen.key not in view.waiting, f"{seen.key} waits twice"
            view.waiting[seen.key] = seen
        else:
            view.completed.setdefault(seen.key, []).append(seen)


def _join(view: View, cancellations: list[Seen]) -> None:
    """Who was cancelled: by a record of its own, or by that of the message that replaces it."""
    for scheduled in view.completed.values():
        scheduled.sort(key=lambda seen: seen.physical_offset)
    keys = {seen.end: seen.key for found in view.completed.values() for seen in found}
    others = (*view.shown.values(), view.waiting.values(), *view.completed.values())
    for seen in chain(cancellations, *others):
        if keys.get(seen.completes, seen.key) != seen.key:
            assert keys[seen.completes] not in view.cancelled, "cancelled twice"
            view.cancelled[keys[seen.completes]] = seen


@dataclass(slots=True)
class Line:
    """One message on its way.  Positions are those of the broker that runs; None: no record."""

    key: str
    queue: Queue
    body: bytes
    level: int = 0
    """The wait queue to which it was sent."""
    dues_ms: tuple[int, ...] = (0,)
    """When it may be due: the last one, or one that a crash may bring back."""
    attempts: int = 0
    message_id: str = ""
    unique_id: str = ""
    scheduled_at: int | None = None
    shown_at: int | None = None
    is_waiting: bool = False
    is_cancel_asked: bool = False
    is_cancel_durable: bool = False
    is_fire_asked: bool = False
    doubtful_ms: tuple[int, ...] = ()
    """Also when it may be due after a crash: it was refused, and could not be taken back."""
    is_durable: bool = False
    is_shown_durable: bool = False
    is_expired: bool = False
    """Retention took its last record; it may be there or not."""

    @property
    def unique_name(self) -> str:
        return self.unique_id and f"{self.queue.topic} {self.unique_id}"


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
        present = {*shown, *view.waiting, *view.cancelled}
        assert len(set(shown)) == len(shown), f"delivered twice: {_twice(shown)}"
        assert not present & self.gone, f"came back: {sorted(present & self.gone)}"
        assert present <= self.lines.keys(), f"from nowhere: {present - self.lines.keys()}"
        again = view.waiting.keys() & set(shown)
        assert not again, f"will be delivered twice: {sorted(again)}"
        for key in view.waiting.keys() & view.completed.keys():
            moved = view.waiting[key].completes == view.completed[key][-1].end
            assert moved, f"scheduled twice: {key}"
        for queue, found in view.shown.items():
            self._check_queue(queue, found, view)
        for seen in view.waiting.values():
            line = self.lines[seen.key]
            assert seen.body == line.body, f"{seen.key} has another body"
            assert seen.due_ms in line.dues_ms + line.doubtful_ms, f"due at {seen.due_ms}: {line}"
        names = [self.lines[key].unique_name for key in {*shown, *view.waiting}]
        assert not _twice(filter(None, names)), f"two with one unique id: {_twice(names)}"
        self._check_cancelled(view, shown)
        for key in view.completed.keys() - present:
            assert self._may_be_missing(self.lines[key], view), f"lost: {self.lines[key]}"
        for key in self.lines.keys() - set(shown):
            line = self.lines[key]
            if line.is_durable and not self._may_be_missing(line, view):
                assert key in view.waiting or key in view.cancelled, f"lost: {line}"
                assert not line.is_shown_durable, f"its delivery is lost: {line}"

    def _check_cancelled(self, view: View, shown: Iterable[str]) -> None:
        alive = {*shown, *view.waiting}
        for key in view.cancelled:
            assert self.lines[key].is_cancel_asked, f"nobody has cancelled {key}"
            assert key not in alive, f"cancelled, and is or will be delivered: {key}"
        for key in alive:
            assert not self.lines[key].is_cancel_durable, f"its cancellation is lost: {key}"

    def learn(self, view: View, durable_end: int) -> None:
        """What the running broker has, once a call is over; up to an offset it is on disk."""
        for queue, found in view.shown.items():
            keys = self.order.setdefault(queue, [])
            keys[view.first[queue] :] = [seen.key for seen in found]
            for seen in found:
                line = self.lines[seen.key]
                line.shown_at = seen.physical_offset
                line.is_shown_durable = seen.physical_offset < durable_end
        for line in self.lines.values():
            scheduled = list(view.completed.get(line.key, ()))
            line.is_waiting = line.key in view.waiting
            if line.is_waiting:
                scheduled.append(view.waiting[line.key])
            if scheduled:
                line.scheduled_at = scheduled[-1].physical_offset
                durable = [seen for seen in scheduled if seen.physical_offset < durable_end]
                line.dues_ms = tuple(seen.due_ms for seen in scheduled[len(durable[:-1]) :])
                line.is_durable = line.is_durable or bool(durable)
            elif not line.level and line.shown_at is not None:
                line.is_durable = line.is_durable or line.shown_at < durable_end
            cancelled = view.cancelled.get(line.key)
            if cancelled is not None and cancelled.physical_offset < durable_end:
                line.is_cancel_durable = True

    def drop(self, keys: Iterable[str]) -> None:
        """They were never answered and are not there: they must not come back."""
        for key in keys:
            del self.lines[key]
            self.gone.add(key)

    def settle(self, view: View) -> None:
        """A view of the running broker says which changes were made; no others will come."""
        for line in self.lines.values():
            seen = view.waiting.get(line.key)
            if seen is not None and seen.due_ms in line.doubtful_ms:
                line.dues_ms += line.doubtful_ms
            line.doubtful_ms = ()

    def reopened(self, view: View) -> None:
        """A broker has opened after a crash: what it has is on disk, what it has not is gone."""
        for queue in self.order:
            del self.order[queue][view.ends().get(queue, 0) :]
        present = {*view.keys_shown(), *view.waiting, *view.cancelled}
        for line in list(self.lines.values()):
            may_be_gone = line.is_expired or line.is_cancel_durable
            if line.key not in present and not may_be_gone:
                self.drop([line.key])
                continue
            line.doubtful_ms = ()
            line.is_cancel_asked = line.is_cancel_durable or line.key in view.cancelled
            if line.key in view.waiting:
                line.shown_at = None
                line.is_fire_asked = False

    def expire(self, view: View) -> None:
        """What the running broker has no more after a retention may be there or not."""
        for key in self.lines.keys() - {*view.keys_shown(), *view.waiting, *view.cancelled}:
            line = self.lines[key]
            line.is_expired = not line.is_cancel_durable and self._may_be_missing(line, view)

    def with_unique_name(self, name: str, min_offset: int) -> Line | None:
        """The message of a unique id, as far as the running broker has it."""
        for line in self.lines.values():
            is_shown = line.shown_at is not None and line.shown_at >= min_offset
            if line.unique_name == name and (line.is_waiting or is_shown):
                return line
        return None

    def oldest_waiting(self) -> int | None:
        """Where the first record lies that is still to be delivered."""
        waiting = [
            line.scheduled_at
            for line in self.lines.values()
            if line.scheduled_at is not None and line.is_waiting
        ]
        return min(waiting, default=None)

    def _may_be_missing(self, line: Line, view: View) -> bool:
        is_before = line.shown_at is not None and line.shown_at < view.min_offset
        is_gone = line.is_expired or line.is_cancel_durable
        return is_gone or (line.is_shown_durable and is_before)

    def _check_queue(self, queue: Queue, found: list[Seen], view: View) -> None:
        first = view.first[queue]
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
            if seen.is_fired:
                assert line.is_fire_asked, f"nobody has fired {seen.key}"
                continue
            scheduled = {each.end: each.due_ms for each in view.completed.get(seen.key, ())}
            early_ms = scheduled.get(seen.completes, min(line.dues_ms)) - seen.store_timestamp_ms
            assert early_ms <= 0, f"{seen.key} was delivered {early_ms} ms early"


def _twice(keys: Iterable[str]) -> list[str]:
    return sorted(key for key, count in Counter(keys).items() if count > 1)
