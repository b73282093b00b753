"""Random work on a whole broker, and a crash after every change of its disk.

The broker runs on a simulated disk.  After each system call that changes something, and in
the middle of each write, the disk is forked: as a killed process leaves it, or as a power cut
may.  A broker that opens on the fork must keep every promise, and go on.  All is random and
follows from one seed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import compress
from pathlib import Path
from random import Random
from shutil import rmtree
from typing import Any

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import ChangeByFilter, ChangeByIds, PendingFilter
from rmqlite.features.name_server.key_values import KeyValues
from rmqlite.features.operating.deleting import Deleting
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.groups import GroupChange, OffsetsCommit
from rmqlite.kernel.requests.messages import PullRequest, SendBackRequest
from rmqlite.kernel.requests.topics import Queue, TopicExtras, TopicInfo
from rmqlite.kernel.sends.calls import DraftCall
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.tables.clock_table import CLOCK_TABLE
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable
from rmqlite.kernel.words.levels import parse_levels
from rmqlite.kernel.words.message import DELAY, WAIT, Message, encode_properties
from rmqlite.kernel.words.names import CANCELLED_TOPIC, dlq_topic, group_of, retry_topic
from rmqlite.protocols.remoting.bytes.batch import (
    BatchItem,
    message_properties,
    read_batch,
    write_batch,
)
from rmqlite.store_tools.check import check
from tests.model.promises import Commit, Line, Promises, View, view_of
from tests.support.brokers import BrokerUnderTest, Heard, small_config
from tests.support.clock import FakeClock, FakeMachine
from tests.support.disk import LOSSES, ROOT, SimulatedDisk
from tests.support.pending import ACTIONS
from tests.support.sends import BORN_HOST, sending
from tests.support.steps import done

STORE = ROOT / "store"
TABLES = ("1s 2s 3s", "1s", "3s 2s 1s", "10s 1s", "2s 2s 2s 2s 5s")
GROUPS = ("shop", "audit")
TOPICS = ("orders", "bills")
QUEUE_FILE_BYTES = 200
YEAR_MS = 365 * 86_400_000
STEPS = 40
WAITS = (0, 0, 1, 1, 2, 3, 5, -1, -1_000, -2_500, -YEAR_MS)
"""How messages wait: at a level, or below 0 for so many milliseconds, as timers."""
KINDS = ("topic", "group", "key value")
"""Of tables that are records of the log."""
NEVER = 1 << 62
CALLS_THAT_FAIL = ("", "pwrite", "fdatasync", "fsync", "open", "ftruncate", "replace", "unlink")


class CrashFound(AssertionError):
    """A promise is broken; says how to see it again."""


@dataclass
class Tally:
    """How much was tried."""

    points: int = 0
    checked: int = 0
    """At how many of them a second crash followed, and the checker."""
    runs: int = 0
    steps: int = 0
    carried: int = 0
    began_s: float = field(default_factory=elapsed_s)
    ended_s: float = 0.0

    def __str__(self) -> str:
        rate = self.points / max(0.001, self.ended_s - self.began_s)
        return (
            f"{self.points:,} crash points in {self.runs:,} runs of {self.steps:,} steps,"
            f" {self.carried:,} timers carried,"
            f" {self.checked:,} crashed twice and checked, {rate:.0f} a second"
        )


class Row:
    """What a row of a table may say after a crash: values, and where the record of each ends."""

    def __init__(self) -> None:
        self.values: list[tuple[int | None, int]] = [(None, 0)]

    def durable(self, log_end: int) -> None:
        """The log is on disk up to there: what was before its last change there is over."""
        last = max(n for n, (_, end) in enumerate(self.values) if not n or end <= log_end)
        del self.values[:last]

    def check(self, value: int | None) -> None:
        assert value in [each for each, _ in self.values], f"{value}, not one of {self.values}"

    def reopened(self, value: int | None) -> None:
        self.check(value)
        self.values = [(value, 0)]


class BrokerOnDisk(BrokerUnderTest):
    """A broker under test with a configuration that is made only once."""

    def __init__(self, config: BrokerConfig, disk: SimulatedDisk, clock: FakeClock) -> None:
        self.config = config
        self.clock = clock
        self.disk = disk
        self.files = SystemFiles(disk)
        self.heard = Heard()
        self.open()


class CrashRun:
    """One store from its first byte on, and all the ways in which it may crash."""

    def __init__(self, seed: int, tally: Tally, folder: Path) -> None:
        self.seed = seed
        self._tally = tally
        self._folder = folder
        self._random = Random(seed)
        self._crashes = Random(f"crashes of {seed}")
        self._clock = self._clock_before = FakeClock(machine=FakeMachine())
        self._disk = SimulatedDisk(seed)
        self._log_file_bytes = self._random.choice((2_048, 4_096, 8_192))
        self._configs = {text: self._config(text) for text in TABLES}
        self._levels = self._random.choice(TABLES)
        self._promises = Promises()
        self._serial = 0
        self._point = 0
        self._rows = {(kind, name): Row() for kind in KINDS for name in ("r0", "r1", "r2")}
        self._taking: list[Line] = []
        self._doubtful: set[str] = set()
        self._is_settled_by_look = False
        """What a refused change has done all the same is seen in the running broker."""
        self._is_retaining = False
        self._min_offset = 0
        self._found: CrashFound | None = None
        self._said = ["opens the first time"]
        self._disk.after_each = self._crash
        self._broker = self._opened()
        self._work = self._weighted()

    def run(self, steps: int = STEPS) -> None:
        """Raises CrashFound."""
        try:
            for _ in range(steps):
                work = self._random.choice(self._work)
                # The first round carries, the second one removes.
                rounds = [self._persist, self._retain] * 2 if work == self._grow_old else []
                for each in (work, *rounds):
                    self._tally.steps += 1
                    self._step(each)
        finally:
            self._tally.runs += 1
            self._tally.ended_s = elapsed_s()

    # ---- one step

    def _weighted(self) -> list[Callable[[], None]]:
        weights: dict[Callable[[], None], int] = {
            self._send: 10,
            self._send_burst: 3,
            self._send_once: 4,
            self._deliver: 6,
            self._deliver_a_slice: 5,
            self._send_back: 6,
            self._change: 6,
            self._consume: 4,
            self._sync: 6,
            self._persist: 2,
            self._edit_levels: 2,
            self._change_row: 6,
            self._grow_old: 2,
            self._retain: 2,
            self._restart: 1,
            self._kill: 1,
            self._cut_power: 1,
        }
        return [work for work, weight in weights.items() for _ in range(weight)]

    def _step(self, work: Callable[[], None]) -> None:
        random = self._random
        self._disk.now_ms = self._clock.now_ms()
        if random.random() < 0.5:
            self._clock.forward(random.choice((0, 1, 500, 999, 1_000, 2_001, 10_000)))
        self._said.append(work.__name__.strip("_").replace("_", " "))
        # If a removal fails, and then the look whether the name is gone, a removed file stays
        # listed until the next round.
        calls = CALLS_THAT_FAIL[1:] if work == self._retain else CALLS_THAT_FAIL
        faults = self._break_something(calls) if random.random() < 0.2 else 0
        self._taking.clear()
        is_final = False
        try:
            work()
        except FlushFailed as error:
            self._say(f"-> {error}")
            is_final = True
        except StoreUnavailable as error:
            self._say(f"-> {error}")
            self._refused(met=self._disk.faults_met - faults)
        except Exception as error:
            self._raise_found()
            raise self._failure("the running broker failed", error) from error
        self._disk.heal()
        self._raise_found()
        if is_final:
            # Nothing is believed after a failed sync: the server stops.
            self._broker.crash()
            self._cut_power() if random.random() < 0.5 else self._reopen()
        self._look()

    def _break_something(self, calls: Sequence[str]) -> int:
        random = self._random
        call, error = random.choice(calls), random.choice((errno.EIO, errno.ENOSPC))
        after, times = random.randrange(10), random.choice((1, 1, 2, 1_000))
        kept_bytes = random.choice((0, 0, 1, 20, 100, 600))
        self._disk.fail(call, after=after, times=times, error=error, kept_bytes=kept_bytes)
        self._say(f"while {call or 'any call'} fails {times} times after {after}")
        return self._disk.faults_met

    def _refused(self, met: int) -> None:
        """Nothing of the call was kept, unless the disk would not even take it back.

        Of a change of several messages the earlier ones stay: the running broker tells which.
        """
        keys = [line.key for line in self._taking]
        if met > 1:
            self._doubtful.update(keys)
        else:
            self._promises.drop(keys)
            self._is_settled_by_look = True
        self._taking.clear()

    def _look(self) -> None:
        """The running broker is compared like every other, and what it has is noted."""
        try:
            view = view_of(self._broker.store)
            assert view.min_offset <= self._kept_from(), "retention took too much"
            self._is_retaining = False
            self._min_offset = view.min_offset
            self._promises.check(view)
            if self._is_settled_by_look:
                self._promises.settle(view)
                self._is_settled_by_look = False
            self._promises.expire(view)
            present = {*view.keys_shown(), *view.waiting, *view.cancelled}
            assert not present & self._doubtful, "what was refused is there"
            missing = {line.key for line in self._taking} - present
            assert not missing, f"taken and not there: {missing}"
        except Exception as error:
            raise self._failure("in the running broker", error) from error
        if self._taking:
            self._promises.drop(self._doubtful)
            self._doubtful.clear()
        self._promises.learn(view, self._broker.store.durable_end)
        for key, row in self._rows.items():
            row.durable(self._broker.store.durable_end)
            assert row_in(self._broker.broker, *key) == row.values[-1][0]

    # ---- what clients do

    def _send(self) -> None:
        random = self._random
        rows = [
            (
                random.choice(WAITS),
                random.choice(TOPICS),
                random.choice((0, 9, 600)),
            )
            for _ in range(random.randint(1, 4))
        ]
        self._send_rows(rows)

    def _send_burst(self) -> None:
        """One call, one wait: more than one slice of a delivery takes."""
        level, topic = self._random.choice(WAITS), self._random.choice(TOPICS)
        self._send_rows([(level, topic, 0)] * self._random.randint(4, 8))

    def _send_rows(self, rows: list[tuple[int, str, int]]) -> None:
        queue_id = self._random.randint(0, 1)
        messages = []
        for level, topic, size in rows:
            key = self._key("m")
            body = f"{key} ".encode().ljust(size, b".")
            messages.append(Message(topic, body, message_id=key, **self._asked(level)))
            level, due_ms = self._due(level)
            line = Line(key, Queue(topic, queue_id), body, level, (due_ms,), message_id=key)
            self._take(line)
        if len({(level, topic) for level, topic, _ in rows}) == 1 and rows[0][0] <= 0:
            self._send_batch(messages, queue_id)
            return
        if len({topic for _, topic, _ in rows}) == 1 and self._random.random() < 0.5:
            self._send_singles(messages, queue_id)
            return
        results = done(sending(self._broker.broker, tuple(messages), queue_id=queue_id))
        for line, result in zip(self._taking, results, strict=True):
            assert (result.deliver_at_ms,) == line.dues_ms
        self._maybe_sync()

    def _send_once(self) -> None:
        """With a unique id: stored, or not, or in the place of one that waits."""
        random = self._random
        key, queue = self._key("u"), Queue(random.choice(TOPICS), random.randint(0, 1))
        level, replaces = random.choice(WAITS), random.random() < 0.7
        line = Line(key, queue, f"{key} ".encode(), *self._dues(level), message_id=key)
        line.unique_id = random.choice("xy")
        message = Message(
            queue.topic,
            line.body,
            message_id=key,
            unique_id=line.unique_id,
            replace=replaces,
            **self._asked(level),
        )
        min_offset = self._broker.store.min_offset
        first = self._promises.with_unique_name(line.unique_name, min_offset)
        if first is None or (replaces and first.is_waiting):
            self._take(line)
            if first is not None:
                first.is_cancel_asked, line.is_fire_asked = True, not level
        sent = done(sending(self._broker.broker, (message,), queue_id=queue.queue_id))
        taken = first.key if first and not self._taking else key
        assert sent[0].message_id == taken, f"{sent[0]}, not {taken}"
        self._maybe_sync()

    def _send_batch(self, messages: list[Message], queue_id: int) -> None:
        """As RocketMQ's clients send several messages to one queue."""
        items = [
            BatchItem(0, each.body, encode_properties(message_properties(each, each.message_id)))
            for each in messages
        ]
        body = write_batch(items)
        shared = Draft(messages[0].topic, queue_id, b"", body, 17, BORN_HOST)
        call = DraftCall((shared._replace(spans=read_batch(body)),))
        (outcome,) = done(self._broker.broker.drafts.send([call]))
        if isinstance(outcome, Exception):
            raise outcome
        assert len(outcome.physical_offsets) == len(messages)
        self._maybe_sync()

    def _send_singles(self, messages: list[Message], queue_id: int) -> None:
        """As RocketMQ's clients send single messages that arrive together."""
        calls = []
        for each in messages:
            level = {DELAY: str(each.delay_level)} if each.delay_level else {}
            properties = {**level, **message_properties(each, each.message_id), WAIT: "true"}
            own = encode_properties(properties)
            draft = Draft(each.topic, queue_id, own, each.body, 17, BORN_HOST)
            calls.append(DraftCall((draft,)))
        outcomes = done(self._broker.broker.drafts.send(calls))
        errors = [each for each in outcomes if isinstance(each, Exception)]
        if errors:
            # Each is a call of its own: only the others are taken.
            told = zip(self._taking, outcomes, strict=True)
            self._taking[:] = [line for line, each in told if isinstance(each, Exception)]
            raise errors[0]
        self._maybe_sync()

    def _send_back(self) -> None:
        random = self._random
        shown = [
            line
            for line in self._promises.lines.values()
            if line.is_shown_durable and not line.is_expired
        ]
        if not shown:
            return
        origin = random.choice(shown)
        assert origin.shown_at is not None
        group, level = random.choice(GROUPS), random.choice((0, 0, 0, 1, 2, -1, -1_500))
        # What another group has failed does not count.
        failed = origin.attempts if group_of(origin.queue.topic) in (None, group) else 0
        is_dead, exact_ms = level == -1 or failed >= 4, -level if level < -1 else 0
        topic = (dlq_topic if is_dead else retry_topic)(group)
        due = self._due(0 if is_dead else level or 3 + failed)
        key = self._key("f")
        line = Line(key, Queue(topic, 0), origin.body, due[0], due[1:], failed + 1)
        line.message_id = origin.message_id
        self._take(line)
        level = 0 if exact_ms else level
        request = SendBackRequest(group, origin.shown_at, level, key, 4, exact_ms)
        # Each time as a delivery of its own.
        self._broker.broker.failing.sent_back.forget(group)
        result = self._broker.broker.send_back(request)
        assert (result.is_dead, result.topic) == (is_dead, topic)
        assert (result.delay_level, result.deliver_at_ms) == due
        self._maybe_sync()

    def _change(self) -> None:
        """Cancel, fire or reschedule some that wait, by their ids or all that go to a topic."""
        random, changes = self._random, self._broker.broker[Changes]
        waiting = [line for line in self._promises.lines.values() if line.is_waiting]
        if not waiting:
            return
        action = random.choice(ACTIONS)
        is_moved = action is ScheduleAction.RESCHEDULE
        level = self._random_wait() if is_moved else 0
        some = random.sample(waiting, min(len(waiting), random.randint(1, 3)))
        ids = tuple(dict.fromkeys(line.message_id for line in some))
        topic = some[0].queue.topic
        is_by_ids = random.random() < 0.6
        wanted = [
            line
            for line in waiting
            if (line.message_id in ids if is_by_ids else line.queue.topic == topic)
        ]
        for line in wanted:
            line.is_cancel_asked |= action is ScheduleAction.CANCEL
            line.is_fire_asked |= action is ScheduleAction.FIRE
            if is_moved:
                line.doubtful_ms += self._due(level)[1:]
        self._say(f"-> {action.name} {[line.key for line in wanted]} {level}")
        if is_by_ids:
            changed = done(changes.by_ids(ChangeByIds(action, ids, **_new_time(level))))
            count = sum(each.count for each in changed)
        else:
            request = ChangeByFilter(action, PendingFilter(topic=topic), **_new_time(level))
            count = done(changes.by_filter(request)).changed
        assert count == len(wanted), f"changed {count}"
        for line in wanted:
            line.dues_ms += line.doubtful_ms
            line.doubtful_ms = ()
        self._maybe_sync()

    def _consume(self) -> None:
        """Read on where the group is, and commit some of what was read."""
        group = self._random.choice(GROUPS)
        queues = [queue for queue in self._promises.order if queue.queue_id < 2]
        if not queues:
            return
        queue = self._random.choice(queues)
        if self._broker.broker.topics.get(queue.topic) is None:
            return
        commit = self._promises.commits.get((group, queue), Commit())
        at = commit.current or 0
        result = done(
            self._broker.broker.pull(
                PullRequest(group, queue.topic, queue.queue_id, at, max_messages=5)
            )
        )
        lines = [self._promises.lines[key] for key in self._promises.order[queue]]
        # A retention that failed half way leaves entries of records that are gone.
        begin = self._broker.store.min_offset
        there = [line.shown_at is not None and line.shown_at >= begin for line in lines]
        read = list(compress(lines[at : result.next_offset], there[at:]))
        assert [record.body for record in result.records] == [line.body for line in read]
        assert all(line.is_shown_durable for line in read), "read and not on disk"
        if result.next_offset == at >= result.min_offset:
            left = compress(lines[at:], there[at:])
            hidden = [line.key for line in left if line.is_shown_durable]
            assert not hidden, f"{hidden} cannot be read"
        if result.next_offset < at:
            return
        offset = self._random.randint(at, result.next_offset)
        self._broker.broker.commit_offsets(OffsetsCommit(group, {queue: offset}))
        self._promises.commits.setdefault((group, queue), commit).since.append(offset)

    # ---- what the server does

    def _deliver(self) -> None:
        self._broker.deliver()

    def _deliver_a_slice(self) -> None:
        self._broker.deliver_slice()
        self._maybe_sync()

    def _sync(self) -> None:
        self._broker.sync()

    def _maybe_sync(self) -> None:
        if self._random.random() < 0.6:
            self._broker.sync()

    def _persist(self) -> None:
        self._broker.persist()
        self._persisted()

    def _edit_levels(self) -> None:
        """In the running broker; the next one starts with the same."""
        levels = self._random.choice(TABLES)
        self._broker.store.change_levels(parse_levels(levels), is_configured=True)
        self._levels = levels

    def _change_row(self) -> None:
        """Of one of the tables that are records of the log."""
        kind, name = self._random.choice([*self._rows])
        row = self._rows[kind, name]
        before = row.values[-1][0]
        value = self._random.choice((None, *range(1, 7))) if before else self._random.randint(1, 6)
        row.values.append((value, NEVER))
        self._say(f"-> {kind} {name} {value}")
        try:
            put_row(self._broker.broker, kind, name, value)
        except StoreUnavailable:
            # A removal of what the disk has of it may have failed, too.
            row.values.append((before, NEVER))
            raise
        row.values[-1] = value, self._broker.store.end
        self._maybe_sync()

    def _retain(self) -> None:
        self._is_retaining = True
        # Above 0.85 younger files go, too, one part of the log after the other.
        self._disk.used_ratio = self._random.choice((0.8, 0.95))
        retention = self._broker.broker.retention
        gone = retention.clean(self._clock.now_ms() + 10**12)
        self._say(f"-> {gone} files")
        carried = done(retention.carry())
        self._tally.carried += carried
        self._say(f"-> {carried} carried")

    def _grow_old(self) -> None:
        """All but the timers of years is delivered, and plain messages fill files."""
        self._clock.forward(10_000)
        self._broker.deliver()
        self._send_rows([(0, TOPICS[0], 600)] * 8)

    def _restart(self) -> None:
        self._broker.close()
        self._persisted()
        self._reopen()

    # ---- what goes wrong

    def _kill(self) -> None:
        self._broker.crash()
        self._reopen()

    def _cut_power(self) -> None:
        self._broker.crash()
        loss = self._random.choice(LOSSES)
        self._say(f"-> {loss}")
        self._disk.after_each = None
        self._disk = self._disk.fork_power_cut(self._random, loss)
        self._disk.after_each = self._crash
        self._reopen(is_booted=True)

    def _reopen(self, *, is_booted: bool = False) -> None:
        self._taking.clear()
        self._clock = self._next_clock(self._random, is_booted=is_booted)
        self._levels = self._random.choice((self._levels, *TABLES))
        self._broker = self._opened()
        self._clock_before = self._clock
        view = view_of(self._broker.store)
        self._promises.check(view)
        self._promises.expire(view)
        self._promises.reopened(view)
        self._doubtful.clear()
        self._promises.learn(view, self._broker.store.end)
        self._recommit()
        for key, row in self._rows.items():
            row.reopened(row_in(self._broker.broker, *key))

    def _opened(self) -> BrokerOnDisk:
        """At the second try at the latest: whatever was broken has been mended by then."""
        with suppress(StoreUnavailable, FlushFailed):
            return BrokerOnDisk(self._configs[self._levels], self._disk, self._clock)
        self._disk.heal()
        self._say("-> opens at the second try")
        return BrokerOnDisk(self._configs[self._levels], self._disk, self._clock)

    # ---- a crash, and what must hold after it

    def _crash(self, call: str, path: str) -> None:
        if self._found is not None:
            return
        self._point += 1
        self._tally.points += 1
        random = self._crashes
        loss = random.choice((None, *LOSSES))
        fork = self._disk.fork_power_cut(random, loss) if loss else self._disk.fork_killed()
        try:
            broker = self._check_fork(fork, is_booted=loss is not None)
            # A name that the process before has only made is a trap of its own.
            if random.random() < (0.5 if call == "mkdir" else 0.05):
                self._crash_again(broker)
        except Exception as error:
            how = f"a power cut ({loss})" if loss else "a kill"
            self._found = self._failure(f"{how} after {call} {path}", error)
            self._found.__cause__ = error

    def _check_fork(self, fork: SimulatedDisk, *, is_booted: bool) -> BrokerOnDisk:
        random = self._crashes
        clock = self._next_clock(random, is_booted=is_booted)
        goes_on = not is_booted and self._clock is self._clock_before and _has_clock(fork)
        levels = random.choice((self._levels, self._levels, *TABLES))
        has_tables = random.random() < 0.7 or not lose_tables(fork)
        broker = BrokerOnDisk(self._configs[levels], fork, clock)
        view = view_of(broker.store)
        if view.waiting and goes_on:
            moved_ms = clock.now_ms() - self._clock.now_ms()
            # By one, if the newest record is of the millisecond of the crash; and an edit of
            # the levels in that millisecond has moved a clock that stands still.
            assert -5 <= moved_ms <= 1, f"who waits is {moved_ms} ms off"
        self._promises.check(view)
        self._check_tables(broker, view, levels, has_tables=has_tables)
        assert view.min_offset <= self._kept_from(), "retention took too much"
        self._live_on(broker, view)
        return broker

    def _check_tables(
        self, broker: BrokerOnDisk, view: View, levels: str, *, has_tables: bool
    ) -> None:
        assert broker.store.levels.current.text == levels
        for key in (*view.keys_shown(), *view.waiting):
            assert broker.broker.topics.get(self._promises.lines[key].queue.topic), key
        if view.cancelled:
            assert broker.broker.topics.get(CANCELLED_TOPIC)
        for place, row in self._rows.items():
            row.check(row_in(broker.broker, *place))
        ends = view.ends()
        for (group, queue), commit in self._promises.commits.items():
            known = broker.broker.offsets.of(group).get(queue)
            if has_tables:
                assert known in (commit.persisted, *commit.since), f"{group} {queue}: {known}"
            assert (known or 0) <= ends.get(queue, 0)

    def _live_on(self, broker: BrokerOnDisk, view: View) -> None:
        """It takes a message, and delivers everything that waits once, exactly when due."""
        clock = broker.clock
        level = self._crashes.randint(0, 2)
        (sent,) = broker.send(Message(TOPICS[0], b"probe", delay_level=level))
        due_ms = {key: seen.due_ms for key, seen in view.waiting.items()}
        if level:
            due_ms["probe"] = sent.deliver_at_ms
        wanted = {key for key, at in due_ms.items() if at <= clock.now_ms()}
        assert broker.deliver() == len(wanted), f"not what was due: {wanted}"
        waiting = {key: at for key, at in due_ms.items() if key not in wanted}
        if waiting:
            next_ms = min(waiting.values())
            clock.forward(next_ms - 1 - clock.now_ms())
            assert broker.deliver() == 0, f"early, at {clock.now_ms()}: {waiting}"
            clock.forward(1)
            count = list(waiting.values()).count(next_ms)
            assert broker.deliver() == count, f"not at {next_ms}: {waiting}"
            clock.forward(max(waiting.values()) - clock.now_ms())
            broker.deliver()
        fresh = view_of(broker.store, view.ends())
        keys = [*fresh.keys_shown()]
        expected = [*due_ms] if level else [*due_ms, "probe"]
        assert sorted(keys) == sorted(expected), f"{sorted(keys)}, not {sorted(expected)}"
        for queue, found in fresh.shown.items():
            for seen in found:
                if seen.key != "probe":
                    line = self._promises.lines[seen.key]
                    assert (line.queue, line.body) == (queue, seen.body)
                assert seen.store_timestamp_ms >= due_ms.get(seen.key, 0), f"{seen.key} early"

    def _crash_again(self, broker: BrokerOnDisk) -> None:
        """All is synced: whatever happens now, it is there, and the checker is content."""
        before = view_of(broker.store).without_empty_queues()
        broker.crash()
        fork = broker.disk.fork_power_cut(self._crashes)
        again = BrokerOnDisk(broker.config, fork, broker.clock)
        after = view_of(again.store).without_empty_queues()
        assert after == before, "another power cut changed it"
        assert again.deliver() == 0
        again.crash()
        folder = self._folder / f"{self.seed}-{self._point}"
        fork.export(folder)
        found = list(check(folder / "store"))
        assert not found, "\n".join(str(each) for each in found)
        rmtree(folder)
        self._tally.checked += 1

    # ---- inside

    def _next_clock(self, random: Random, *, is_booted: bool) -> FakeClock:
        """The next process's; in between somebody sets the wall clock."""
        machine = copy(self._clock.machine)
        if is_booted:
            machine.reboot(str(random.random()))
            # Not ahead of what was reached: after a boot that is trusted.
            steps = [0, 0, -1, -5_000, -YEAR_MS]
            reached_ms = self._clock_before.now_ms()
            machine.step_wall(reached_ms - machine.wall_ns() // 1_000_000)
        else:
            steps = [0, 0, -5_000, 5_000, -YEAR_MS, YEAR_MS]
        machine.step_wall(random.choice(steps))
        return FakeClock(machine=machine)

    def _config(self, levels: str) -> BrokerConfig:
        config = small_config(
            STORE, message_delay_level=levels, deliver_batch_max=3, default_topic_queues=2
        )
        sizes = {
            "mapped_file_size_commit_log": self._log_file_bytes,
            "mapped_file_size_consume_queue": QUEUE_FILE_BYTES,
        }
        return config.model_copy(update=sizes)

    def _key(self, kind: str) -> str:
        self._serial += 1
        return f"{kind}{self._serial}"

    def _take(self, line: Line) -> None:
        self._promises.lines[line.key] = line
        self._taking.append(line)

    def _random_wait(self) -> int:
        """For a message that waits anew."""
        level = self._random.randint(1, parse_levels(self._levels).max_level)
        return self._random.choice((level, level, -1_500, -YEAR_MS))

    def _asked(self, level: int) -> dict[str, Any]:
        """How a message asks for such a wait."""
        if level >= 0:
            return {"delay_level": level}
        if self._random.random() < 0.5:
            return {"deliver_after": timedelta(milliseconds=-level)}
        return {"deliver_at": self._clock.now_ms() - level}

    def _due(self, level: int) -> tuple[int, int]:
        """The wait queue that a message gets, and when it is due; not what the broker works out."""
        if level < 0:
            return TIMERS, self._clock.now_ms() - level
        if not level:
            return 0, 0
        table = parse_levels(self._levels)
        return table.clamp(level), self._clock.now_ms() + table.delay_ms(level)

    def _dues(self, level: int) -> tuple[int, tuple[int]]:
        level, due_ms = self._due(level)
        return level, (due_ms,)

    def _kept_from(self) -> int:
        """The physical offset from which on everything must be there."""
        if not self._is_retaining:
            return self._min_offset
        oldest = self._promises.oldest_waiting()
        return self._broker.store.end if oldest is None else oldest

    def _persisted(self) -> None:
        for commit in self._promises.commits.values():
            commit.persisted = commit.current
            commit.since.clear()

    def _recommit(self) -> None:
        """What the broker that has opened knows is what was on disk."""
        for (group, queue), commit in self._promises.commits.items():
            known = self._broker.broker.offsets.of(group).get(queue)
            assert known in (commit.persisted, *commit.since)
            commit.persisted = known
            commit.since.clear()

    def _say(self, text: str) -> None:
        self._said[-1] += f" {text}"

    def _raise_found(self) -> None:
        if self._found is not None:
            raise self._found

    def _failure(self, where: str, error: Exception) -> CrashFound:
        steps = "\n".join(f"{at:4} {said}" for at, said in enumerate(self._said))
        return CrashFound(
            f"{type(error).__name__}: {error}\n"
            f"seed {self.seed}, crash point {self._point}: {where}\n"
            f"again: pytest tests/model/test_crash_points.py --seed={self.seed}\n{steps}"
        )


def row_in(broker: Broker, kind: str, name: str) -> int | None:
    """What a row of a table says; None: there is none."""
    if kind == "topic":
        topic = broker.topics.get(name)
        return topic.read_queues if topic else None
    if kind == "group":
        group = broker.groups.get(name)
        return group.max_reconsume_times if group else None
    value = KeyValues(broker.store).of("n").get(name)
    return int(value) if value else None


def put_row(broker: Broker, kind: str, name: str, value: int | None) -> None:
    if kind == "topic":
        if value is None:
            broker[Deleting].delete_topic(name)
        else:
            broker.topics.change(TopicInfo(name, value, value), TopicExtras())
    elif kind == "group":
        if value is None:
            broker.groups.delete(name)
        else:
            broker.groups.change(GroupChange(name, max_reconsume_times=value))
    elif value is None:
        KeyValues(broker.store).delete("n", name)
    else:
        KeyValues(broker.store).put("n", name, str(value))


def lose_tables(disk: SimulatedDisk) -> bool:
    """Remove all files under config/ but the clock's: the log has everything that was promised."""
    with suppress(FileNotFoundError):
        for name in disk.listdir(STORE / "config"):
            if not name.startswith(CLOCK_TABLE):
                disk.unlink(STORE / "config" / name)
        return True
    return False


def _new_time(level: int) -> dict[str, Any]:
    """How a change asks for such a wait."""
    return {"deliver_after_ms": -level} if level < 0 else {"delay_level": level}


def _has_clock(disk: SimulatedDisk) -> bool:
    """A disk without room may have none until the next persist."""
    try:
        disk.stat(STORE / "config" / CLOCK_TABLE)
    except FileNotFoundError:
        return False
    return True
