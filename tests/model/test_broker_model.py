"""Random operations on a broker and on a plain ledger, compared after every step.

Sends, deliveries, failures, commits, changes of what waits, edits of the levels, full disks,
crashes and power cuts come in any order.  A failing run is shrunk to its shortest form and
printed.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rmqlite.features.changes.changes import Changes
from rmqlite.features.changes.requests import (
    ChangeByFilter,
    ChangeByIds,
    ChangeOutcome,
    PendingFilter,
)
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.wait_queues import TIMERS, WAIT_TOPICS, QueueKey, queue_of
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.requests.groups import GroupChange, OffsetsCommit, OffsetsQuery
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.retention import Carrying
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.errors import StoreUnavailable
from rmqlite.kernel.words.levels import LevelTable, parse_levels
from rmqlite.kernel.words.message import FAILURE_REASON, FIRED, Message
from rmqlite.kernel.words.names import (
    CANCELLED_TOPIC,
    TABLES_TOPIC,
    dlq_topic,
    group_of,
    retry_topic,
)
from rmqlite.protocols.native.bytes.messages import SendResult
from rmqlite.store_tools.check import check
from tests.model.ledger import Ledger, Line, Shown
from tests.support.brokers import BrokerUnderTest, small_config
from tests.support.clock import START_MS, FakeClock
from tests.support.disk import LOSSES, ROOT, Loss, SimulatedDisk
from tests.support.pending import ACTIONS, BURY, counts, waiting
from tests.support.sends import sending
from tests.support.steps import done

STORE = ROOT / "store"
TABLES = ("1s 2s 3s", "1s", "3s 2s 1s", "10s 1s", "2s 2s 2s 2s 5s")
GROUPS = ("shop", "audit")
QUEUE_FILE_BYTES = 200

POLICIES: dict[str, Callable[[int, LevelTable], int]] = {
    "": lambda failed, _: 3 + failed,
    "2 1": lambda failed, _: 1 if failed else 2,
    "2s 10s": lambda failed, table: _reaching(10_000 if failed else 2_000, table),
    "exponential(1s, 3, 9s)": lambda failed, table: _reaching(min(1_000 * 3**failed, 9_000), table),
    "list(1500ms, 10s)": lambda failed, _: -10_000 if failed else -1_500,
}
"""What each retry policy says of a message that had failed so often; below 0: so many ms."""

levels = st.sampled_from([0, 0, 1, 1, 2, 3, 5, -1, -1_000, -1_001, -2_500, -20_000])
"""How a message waits: at a level, or below 0 for so many milliseconds, as a timer."""
new_levels = st.sampled_from([1, 2, 3, 4, 5, -1, -1_500, -2_000])
queues = st.builds(Queue, st.sampled_from(["orders", "bills"]), st.integers(0, 1))
tables = st.sampled_from(TABLES)
sizes = st.sampled_from([0, 10, 3_000])
filters = st.builds(
    PendingFilter,
    levels=st.sampled_from([(), (), (1,), (2, 3), (TIMERS,), (TIMERS, 2)]),
    topic=st.sampled_from(["", "", "orders", retry_topic("shop")]),
    due_from_ms=st.sampled_from([0, 0, START_MS + 2_000]),
    due_until_ms=st.sampled_from([None, None, START_MS + 5_000]),
    key=st.sampled_from(["", "", "k1"]),
)


class BrokerBesideLedger(RuleBasedStateMachine):
    """One broker on tiny files of a disk that forgets what was not synced."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimulatedDisk()
        self.levels = TABLES[0]
        self.ledger = Ledger()
        self.serial = 0
        self.table = 0
        self.policies = dict.fromkeys(GROUPS, "")
        self.limits = dict.fromkeys(GROUPS, 16)
        self.under_test = BrokerUnderTest(STORE, files=SystemFiles(self.disk), **self._settings())

    # ---- what clients do

    @rule(what=st.lists(st.tuples(levels, queues, sizes), min_size=1, max_size=4))
    def send(self, what: list[tuple[int, Queue, int]]) -> None:
        self._send(what)
        self.under_test.sync()

    @rule(what=st.lists(st.tuples(levels, queues, sizes), min_size=1, max_size=4))
    def send_without_sync(self, what: list[tuple[int, Queue, int]]) -> None:
        """Not answered yet: a power cut may take it back."""
        self._send(what)

    @rule(level=st.sampled_from([1, 2, 3, -1_000]), queue=queues, count=st.integers(2, 8))
    def send_burst(self, level: int, queue: Queue, count: int) -> None:
        """One call, one level: more than one slice of a delivery takes."""
        self._send([(level, queue, 0)] * count)
        self.under_test.sync()

    @rule(
        level=levels,
        queue=queues,
        unique_id=st.sampled_from(["u1", "u2"]),
        replaces=st.booleans(),
        after=st.sampled_from([0, 1, 99, 99, 99]),
        kept_bytes=st.integers(0, 300),
    )
    def send_once(
        self,
        level: int,
        queue: Queue,
        unique_id: str,
        replaces: bool,
        after: int,
        kept_bytes: int,
    ) -> None:
        """Stored, or a duplicate, or it takes the place of one that waits, by one record."""
        key, first = self._key("m"), self.ledger.with_unique_id(queue.topic, unique_id)
        message = Message(
            queue.topic,
            key.encode(),
            keys=(_message_key(key),),
            message_id=key,
            max_reconsume_times=_senders_limit(key),
            unique_id=unique_id,
            replace=replaces,
            **self._asked(level),
        )
        with self._full_disk(after, kept_bytes):
            (result,) = done(sending(self.under_test.broker, [message], queue.queue_id))
            if first is not None and not (replaces and first.is_waiting):
                at = first.shown_at if first.shown_at is not None else first.wait.scheduled_at
                assert (result.message_id, result.is_duplicate) == (first.key, True)
                assert (result.queue_id, result.physical_offset) == (first.queue.queue_id, at)
                return
            self._note(key, level, queue, result)
            self.ledger.lines[key].unique_id = unique_id
            if first is not None:
                first.cancelled_at = result.physical_offset
                self.ledger.lines[key].is_fired = not level

    @precondition(lambda self: self.ledger.shown())
    @rule(
        pick=st.integers(0, 10**6),
        group=st.sampled_from(GROUPS),
        level=st.sampled_from([0, 0, 0, 1, 2, -1, -1_500]),
        limit=st.sampled_from([4, 4, None]),
        is_synced=st.booleans(),
    )
    def send_back(
        self, pick: int, group: str, level: int, limit: int | None, is_synced: bool
    ) -> None:
        shown = self.ledger.shown()
        line = shown[pick % len(shown)]
        key = self._key("f")
        assert line.shown_at is not None
        exact_ms = -level if level < -1 else 0
        request = SendBackRequest(
            group, line.shown_at, 0 if exact_ms else level, key, limit, exact_ms
        )
        at = self.under_test.store.end
        known = self.under_test.broker.failing.sent_back.result(request)
        result = self.under_test.broker.send_back(request)
        if known is not None:
            # This delivery was sent back before: no new retry.
            assert (result, self.under_test.store.end) == (known, at)
            return
        limits = (_senders_limit(line.message_id), limit, self.limits[group])
        # What another group has failed does not count.
        failed_before = line.attempts if group_of(line.queue.topic) in (None, group) else 0
        is_dead = level == -1 or failed_before >= next(each for each in limits if each is not None)
        if level == 0:
            table = parse_levels(self.levels)
            level = POLICIES[self.policies[group]](failed_before, table)
        assert result.is_dead is is_dead
        assert result.reconsume_times == failed_before + 1
        assert result.topic == (dlq_topic if is_dead else retry_topic)(group)
        assert result.deliver_at_ms == self._due_ms(0 if is_dead else level)
        # Records of the topics that are made for it come before.
        *_, last = self.under_test.store.walk(at)
        at = last.head.physical_offset
        queue, attempts = Queue(result.topic, 0), failed_before + 1
        failed = Line(key, line.message_id, line.message_key, queue, attempts)
        if is_dead:
            failed.shown_at = at
        else:
            due_ms = result.deliver_at_ms
            self.ledger.wait(failed, result.delay_level, due_ms, self.table, at)
        self.ledger.add(failed)
        if is_synced:
            self.under_test.sync()

    @precondition(lambda self: self.ledger.shown())
    @rule(pick=st.integers(0, 10**6), group=st.sampled_from(GROUPS), share=st.floats(0, 1))
    def commit(self, pick: int, group: str, share: float) -> None:
        shown = self.ledger.shown()
        queue = shown[pick % len(shown)].queue
        stored = self.under_test.store.queue(queue.topic, queue.queue_id)
        assert stored is not None
        offset = int(stored.max_offset * share)
        self.under_test.broker.commit_offsets(OffsetsCommit(group, {queue: offset}))
        self.ledger.commits[group, queue] = offset

    @precondition(lambda self: self.ledger.waiting())
    @rule(
        picks=st.lists(st.integers(0, 10**6), min_size=1, max_size=3),
        action=st.sampled_from(ACTIONS),
        level=new_levels,
        with_topic=st.booleans(),
        is_synced=st.booleans(),
    )
    def change_by_ids(
        self,
        picks: list[int],
        action: ScheduleAction,
        level: int,
        with_topic: bool,
        is_synced: bool,
    ) -> None:
        """Those that wait, some that do not, and one that nobody has sent."""
        lines = [*self.ledger.waiting(), *self.ledger.lines.values()]
        some = [lines[pick % len(lines)] for pick in picks]
        ids = (*dict.fromkeys(line.message_id for line in some), "nobody")
        topic = some[0].queue.topic if with_topic else ""
        wanted = {
            message_id: [
                line
                for line in self.ledger.waiting()
                if line.message_id == message_id and topic in ("", line.queue.topic)
            ]
            for message_id in ids
        }
        level = self._level_for(action, level)
        unchanged = {
            message_id: self._outcome(message_id, topic)
            for message_id, found in wanted.items()
            if not found
        }
        request = ChangeByIds(action, ids, topic, **self._new_time(level))
        answered = done(self.under_test.broker[Changes].by_ids(request))
        for each, (message_id, found) in zip(answered, wanted.items(), strict=True):
            assert (each.message_id, each.count) == (message_id, len(found))
            assert each.outcome == unchanged.get(message_id, ChangeOutcome.DONE)
        self._note_changes(action, level, [line for found in wanted.values() for line in found])
        if is_synced:
            self.under_test.sync()

    @precondition(lambda self: self.ledger.waiting())
    @rule(
        wanted=filters,
        action=st.sampled_from(ACTIONS),
        level=new_levels,
        page=st.integers(1, 4),
        is_dry=st.booleans(),
    )
    def change_by_filter(
        self, wanted: PendingFilter, action: ScheduleAction, level: int, page: int, is_dry: bool
    ) -> None:
        """Page by page; what it has rescheduled itself comes in none of them."""
        expected = self._fitting(wanted)
        end, level = self.under_test.store.end, self._level_for(action, level)
        changed, cursor = 0, ""
        while True:
            request = ChangeByFilter(
                action,
                wanted,
                dry_run=is_dry,
                cursor=cursor,
                max_messages=page,
                **self._new_time(level),
            )
            answered = done(self.under_test.broker[Changes].by_filter(request))
            changed, cursor = changed + answered.changed, answered.cursor
            if not cursor:
                break
        assert changed == len(expected)
        if is_dry:
            assert self.under_test.store.end == end
        else:
            self._note_changes(action, level, expected)

    @precondition(lambda self: self._buriable())
    @rule(pick=st.integers(0, 10**6), is_synced=st.booleans())
    def bury(self, pick: int, is_synced: bool) -> None:
        """One record is the end of a retry and its dead letter."""
        found = self._buriable()
        line, key = found[pick % len(found)], self._key("b")
        request = ChangeByIds(BURY, (line.message_id,), line.queue.topic, reason=key)
        (changed,) = done(self.under_test.broker[Changes].by_ids(request))
        assert (changed.outcome, changed.count) == (ChangeOutcome.DONE, 1)
        queue = Queue(dlq_topic(group_of(line.queue.topic) or ""), 0)
        ((_, entry),) = self._ended_in((queue.topic, 0), [line])
        dead = Line(key, line.message_id, line.message_key, queue, line.attempts)
        line.cancelled_at = dead.shown_at = entry.physical_offset
        self.ledger.add(dead)
        if is_synced:
            self.under_test.sync()

    @rule(wanted=filters, page=st.integers(1, 5))
    def list_what_waits(self, wanted: PendingFilter, page: int) -> None:
        expected = self._fitting(wanted)
        found = waiting(self.under_test, wanted, page)
        assert [(each.deliver_at_ms, each.level, each.physical_offset) for each in found] == [
            (each.wait.due_ms, each.wait.level, each.wait.scheduled_at) for each in expected
        ]
        assert [each.message_id for each in found] == [each.message_id for each in expected]

    @rule(
        group=st.sampled_from(GROUPS),
        policy=st.sampled_from([*POLICIES]),
        limit=st.sampled_from([0, 2, 16]),
    )
    def set_group(self, group: str, policy: str, limit: int) -> None:
        """In force for the next failure, and after any crash."""
        self.policies[group], self.limits[group] = policy, limit
        self.under_test.broker.groups.change(
            GroupChange(group, max_reconsume_times=limit, retry_policy=policy)
        )

    # ---- what the server does

    @rule(forward_ms=st.sampled_from([0, 1, 999, 1_000, 2_001, 10_000]))
    def move_the_clock(self, forward_ms: int) -> None:
        self.under_test.clock.forward(forward_ms)

    @rule(early_ms=st.integers(0, 1))
    def deliver_the_next(self, early_ms: int) -> None:
        """Exactly when it is due, or a millisecond before."""
        due = [self.ledger.next_due_ms(level) for level in self.ledger.pending()]
        wait_ms = min(due, default=0) - early_ms - self.under_test.clock.now_ms()
        self.under_test.clock.forward(max(0, wait_ms))
        self.deliver_all()

    @rule()
    def deliver_all(self) -> None:
        self.under_test.deliver()
        self._compare()
        now_ms = self.under_test.clock.now_ms()
        for level in self.ledger.pending():
            assert self.ledger.next_due_ms(level) > now_ms, "late"

    @rule(is_synced=st.booleans())
    def deliver_a_slice(self, is_synced: bool) -> None:
        due_ms = self.under_test.deliver_slice()
        self._compare()
        times = [self.ledger.next_due_ms(level) for level in self.ledger.pending()]
        assert due_ms == min(times, default=None)
        if is_synced:
            self.under_test.sync()

    @rule(is_synced=st.booleans(), steps=st.integers(1, 2))
    def carry(self, is_synced: bool, steps: int) -> None:
        """As retention does with the timers of a file that is to go."""
        self._carry(steps)
        if is_synced:
            self.under_test.sync()

    @rule(after=st.integers(0, 2), kept_bytes=st.integers(0, 300))
    def carry_on_a_full_disk(self, after: int, kept_bytes: int) -> None:
        with self._full_disk(after, kept_bytes):
            self._carry(2)

    @rule()
    def persist(self) -> None:
        self.under_test.persist()
        self.ledger.persisted_commits = dict(self.ledger.commits)

    # ---- what goes wrong

    @rule(
        what=st.lists(st.tuples(levels, queues, sizes), min_size=1, max_size=4),
        after=st.integers(0, 2),
        kept_bytes=st.sampled_from([0, 10, 150, 4_000]),
    )
    def send_on_a_full_disk(
        self, what: list[tuple[int, Queue, int]], after: int, kept_bytes: int
    ) -> None:
        """All or none of a call is taken."""
        with self._full_disk(after, kept_bytes):
            self._send(what)

    @rule(after=st.integers(0, 2), kept_bytes=st.integers(0, 300))
    def deliver_to_a_full_disk(self, after: int, kept_bytes: int) -> None:
        with self._full_disk(after, kept_bytes):
            self.under_test.deliver_slice()

    @precondition(lambda self: self.ledger.waiting())
    @rule(
        pick=st.integers(0, 10**6),
        action=st.sampled_from(ACTIONS),
        level=st.sampled_from([1, -1_000]),
        after=st.integers(0, 3),
        kept_bytes=st.integers(0, 300),
    )
    def change_on_a_full_disk(
        self, pick: int, action: ScheduleAction, level: int, after: int, kept_bytes: int
    ) -> None:
        """All that wait with one id are changed, or none."""
        lines = self.ledger.waiting()
        message_id = lines[pick % len(lines)].message_id
        wanted = [line for line in lines if line.message_id == message_id]
        level = self._level_for(action, level)
        with self._full_disk(after, kept_bytes):
            request = ChangeByIds(action, (message_id,), **self._new_time(level))
            done(self.under_test.broker[Changes].by_ids(request))
            self._note_changes(action, level, wanted)

    @rule(table=tables)
    def edit_the_levels(self, table: str) -> None:
        """In the running broker; the next one starts with the same."""
        self.levels = table
        self.table += 1
        self.under_test.store.change_levels(parse_levels(table), is_configured=True)

    @rule(table=tables, clock_back_ms=st.sampled_from([0, 0, 1, 5_000]))
    def restart(self, table: str, clock_back_ms: int) -> None:
        self.under_test.close()
        self.ledger.persisted_commits = dict(self.ledger.commits)
        self._open(table, clock_back_ms)

    @rule(table=tables)
    def restart_without_queues(self, table: str) -> None:
        """They are made again from the log."""
        self.under_test.close()
        self.ledger.persisted_commits = dict(self.ledger.commits)
        self.disk.forget(STORE / "consumequeue")
        for name in ("storeProgress.json", "storeProgress.json.bak"):
            self.disk.forget(STORE / "config" / name)
        self._open(table, 0)

    @rule(table=tables, clock_back_ms=st.sampled_from([0, 0, 1, 5_000]))
    def crash(self, table: str, clock_back_ms: int) -> None:
        end = self.under_test.store.end
        self.under_test.crash()
        self._open(table, clock_back_ms)
        assert self.under_test.store.end == end

    @rule(table=tables, loss=st.sampled_from(LOSSES), seed=st.integers(0, 2**32))
    def power_cut(self, table: str, loss: Loss, seed: int) -> None:
        """What was answered stays; of the rest, whole records from the front."""
        durable_end = self.under_test.store.durable_end
        end = self.under_test.store.end
        self.under_test.crash()
        self.disk = self.disk.fork_power_cut(Random(seed), loss)
        self.under_test.files = SystemFiles(self.disk)
        self._open(table, 0)
        assert durable_end <= self.under_test.store.end <= end
        self.ledger.end_of_log(self.under_test.store.end)

    # ---- what must hold

    @invariant()
    def is_what_the_ledger_says(self) -> None:
        self._compare()
        pending = self.ledger.pending()
        statuses = {each.level: each for each in self.under_test.broker.status(0).levels}
        assert set(pending) <= set(statuses)
        for level, status in statuses.items():
            assert status.pending == pending[level]
            assert status.next_due_ms == self.ledger.next_due_ms(level)
        by_topic = Counter((line.wait.level, line.queue.topic) for line in self.ledger.waiting())
        assert counts(self.under_test) == by_topic

    @invariant()
    def commits_are_kept(self) -> None:
        for (group, queue), offset in self.ledger.commits.items():
            known = self.under_test.broker.query_offsets(OffsetsQuery(group, (queue,)))
            assert known == {queue: offset}

    def teardown(self) -> None:
        self._deliver_the_rest()
        self.under_test.crash()
        self._open(self.levels, 0)
        assert self.under_test.deliver() == 0
        self._compare()
        self.under_test.close()
        with TemporaryDirectory(prefix="rmqlite-model-") as folder:
            self.disk.export(Path(folder))
            found = check(Path(folder) / "store")
            assert [str(each) for each in found] == []

    # ---- inside

    @contextmanager
    def _full_disk(self, after: int, kept_bytes: int) -> Iterator[None]:
        """One write finds no room, if there are that many."""
        self.disk.fail("pwrite", after=after, error=errno.ENOSPC, kept_bytes=kept_bytes)
        with suppress(StoreUnavailable):
            yield
        self.disk.heal()

    def _deliver_the_rest(self) -> None:
        while pending := self.ledger.pending():
            due_ms = min(self.ledger.next_due_ms(level) for level in pending)
            self.under_test.clock.forward(max(0, due_ms - self.under_test.clock.now_ms()))
            self.deliver_all()

    def _settings(self) -> dict[str, Any]:
        return {
            "message_delay_level": self.levels,
            "mapped_file_size_commit_log": 70_000,
            "mapped_file_size_consume_queue": QUEUE_FILE_BYTES,
            "max_message_bytes": 4_000,
            "deliver_batch_max": 3,
        }

    def _open(self, table: str, clock_back_ms: int) -> None:
        under_test = self.under_test
        self.levels = table
        self.table += 1
        # The wall clock may have been set back while nobody looked.
        under_test.clock = FakeClock(under_test.clock.now_ms() - clock_back_ms)
        under_test.config = small_config(STORE, **self._settings())
        under_test.open()
        self.ledger.commits = dict(self.ledger.persisted_commits)
        for (group, queue), offset in self.ledger.commits.items():
            stored = under_test.store.queue(queue.topic, queue.queue_id)
            end = stored.max_offset if stored else 0
            self.ledger.commits[group, queue] = min(offset, end)

    def _level_for(self, action: ScheduleAction, level: int) -> int:
        if action is not ScheduleAction.RESCHEDULE:
            return 0
        return level if level < 0 else parse_levels(self.levels).clamp(level)

    def _new_time(self, level: int) -> dict[str, Any]:
        """How a change asks for it: for a delay, or every other time for an instant."""
        if level >= 0:
            return {"delay_level": level}
        return {"deliver_at_ms": self._due_ms(level)} if level % 2 else {"deliver_after_ms": -level}

    def _outcome(self, message_id: str, topic: str) -> ChangeOutcome:
        """What is true of an id that does not wait: the end of its newest wait."""
        lines = [
            line
            for line in self.ledger.lines.values()
            if line.message_id == message_id and line.waits and topic in ("", line.queue.topic)
        ]
        if not lines:
            return ChangeOutcome.NOT_FOUND
        newest = max(lines, key=lambda line: line.wait.scheduled_at)
        if newest.cancelled_at is not None:
            return ChangeOutcome.ALREADY_CANCELLED
        return ChangeOutcome.ALREADY_DELIVERED

    def _buriable(self) -> list[Line]:
        """The retries that wait, each alone with its id in its group."""
        found = [line for line in self.ledger.waiting() if group_of(line.queue.topic) is not None]
        count = Counter((line.message_id, line.queue.topic) for line in found)
        return [line for line in found if count[line.message_id, line.queue.topic] == 1]

    def _fitting(self, wanted: PendingFilter) -> list[Line]:
        until_ms = wanted.due_until_ms
        return [
            line
            for line in self.ledger.waiting()
            if (not wanted.levels or line.wait.level in wanted.levels)
            and wanted.topic in ("", line.queue.topic)
            and wanted.key in ("", line.message_key)
            and wanted.due_from_ms <= line.wait.due_ms
            and (until_ms is None or line.wait.due_ms < until_ms)
        ]

    def _note_changes(self, action: ScheduleAction, level: int, lines: list[Line]) -> None:
        """Where the records are that have ended these waits; each must have one."""
        if action is ScheduleAction.FIRE:
            for line in lines:
                line.is_fired = True
            self._compare()
            return
        cancels = action is ScheduleAction.CANCEL
        wait_queue, due_ms = self._wait_queue(level), self._due_ms(level)
        key = (CANCELLED_TOPIC, 0) if cancels else queue_of(wait_queue)
        for line, entry in self._ended_in(key, lines):
            if cancels:
                line.cancelled_at = entry.physical_offset
            else:
                assert entry.tags_code == due_ms
                self.ledger.wait(line, wait_queue, due_ms, self.table, entry.physical_offset)

    def _ended_in(self, key: QueueKey, lines: list[Line]) -> Iterator[tuple[Line, Entry]]:
        """Each line with the record that has ended its wait: the last ones of a queue."""
        store = self.under_test.store
        queue = store.queue(*key)
        if not lines:
            return
        assert queue is not None
        ends = {}
        for line in lines:
            old = store.read_message(line.wait.scheduled_at)
            ends[old.physical_offset + old.store_size] = line
        for entry in queue.read(queue.max_offset - len(lines), len(lines)):
            message = store.read_message(entry.physical_offset, entry.size)
            yield ends.pop(message.prepared_transaction_offset), entry
        assert not ends

    def _carry(self, steps: int) -> None:
        broker = self.under_test.broker
        carrying = Carrying(broker.store, broker.wait_queues, broker.schedule)
        timers = [line for line in self.ledger.waiting() if line.wait.level == TIMERS]
        timers.sort(key=lambda line: line.wait.scheduled_at)
        try:
            done(carrying.carry(broker.store.end, steps))
        finally:
            carried = timers[: carrying.carried]
            for line, entry in self._ended_in(queue_of(TIMERS), carried):
                due_ms = line.wait.due_ms
                assert entry.tags_code == due_ms
                self.ledger.wait(line, TIMERS, due_ms, self.table, entry.physical_offset)

    def _key(self, kind: str) -> str:
        self.serial += 1
        return f"{kind}{self.serial}"

    def _asked(self, level: int) -> dict[str, Any]:
        """How a message asks for it, as _new_time()."""
        if level >= 0:
            return {"delay_level": level}
        if level % 2:
            return {"deliver_at": self._due_ms(level)}
        return {"deliver_after": timedelta(milliseconds=-level)}

    def _wait_queue(self, level: int) -> int:
        return TIMERS if level < 0 else parse_levels(self.levels).clamp(level)

    def _due_ms(self, level: int) -> int:
        if level <= 0:
            return self.under_test.clock.now_ms() - level if level else 0
        return self.under_test.clock.now_ms() + parse_levels(self.levels).delay_ms(level)

    def _send(self, what: list[tuple[int, Queue, int]]) -> None:
        keys = [self._key("m") for _ in what]
        by_queue: dict[int, list[tuple[str, int, Queue, int]]] = {}
        for key, (level, queue, size) in zip(keys, what, strict=True):
            by_queue.setdefault(queue.queue_id, []).append((key, level, queue, size))
        for queue_id, rows in by_queue.items():
            messages = [
                Message(
                    queue.topic,
                    (key + " " * size).encode(),
                    keys=(_message_key(key),),
                    message_id=key,
                    max_reconsume_times=_senders_limit(key),
                    **self._asked(level),
                )
                for key, level, queue, size in rows
            ]
            results = done(sending(self.under_test.broker, messages, queue_id))
            # In the log's order: of a call for several topics each comes as one batch.
            stored = sorted(zip(results, rows, strict=True), key=lambda each: _place(each[0]))
            for result, (key, level, queue, _) in stored:
                self._note(key, level, queue, result)

    def _note(self, key: str, level: int, queue: Queue, result: SendResult) -> None:
        assert result.deliver_at_ms == self._due_ms(level)
        assert (result.topic, result.queue_id) == (queue.topic, queue.queue_id)
        at = _place(result)
        level = self._wait_queue(level)
        line = Line(key, key, _message_key(key), queue, 0)
        if level:
            self.ledger.wait(line, level, result.deliver_at_ms, self.table, at)
        else:
            line.shown_at = at
        self.ledger.add(line)

    def _compare(self) -> None:
        store = self.under_test.store
        found: dict[Queue, list[Shown]] = {}
        for topic, queue_id in store.queue_keys():
            queue = store.queue(topic, queue_id)
            if topic in (*WAIT_TOPICS, CANCELLED_TOPIC, TABLES_TOPIC) or queue is None:
                continue
            shown = found.setdefault(Queue(topic, queue_id), [])
            for entry in queue.read(0, queue.max_offset):
                message = store.read_message(entry.physical_offset, entry.size)
                key = message.properties.get(FAILURE_REASON) or message.body.decode().strip()
                at, stored_ms = message.physical_offset, message.store_timestamp_ms
                shown.append(Shown(key, at, stored_ms, FIRED in message.properties))
        self.ledger.compare(found)


def _place(result: SendResult) -> int:
    """The physical offset."""
    return int(result.offset_message_id[-16:], 16)


def _message_key(key: str) -> str:
    """Some messages share one."""
    return f"k{int(key[1:]) % 3}"


def _senders_limit(message_id: str) -> int | None:
    """Some senders say how often a message may be retried."""
    return {0: 0, 1: 1}.get(int(message_id[1:]) % 7)


def _reaching(delay_ms: int, table: LevelTable) -> int:
    """The level that a length waits at: the next one that is as long, or the longest."""
    by_length = sorted(range(1, table.max_level + 1), key=table.delay_ms)
    long_enough = [level for level in by_length if table.delay_ms(level) >= delay_ms]
    longest_ms = table.delay_ms(by_length[-1])
    return next(iter(long_enough or [n for n in by_length if table.delay_ms(n) == longest_ms]))


# Seconds when all is well; shrinking a failure may take hypothesis its five minutes, or more.
@pytest.mark.timeout(1_800)
def test_a_broker_does_what_a_ledger_says() -> None:
    """Nothing is lost, early, twice or forgotten, whatever happens in whatever order."""
    settings_ = settings(
        stateful_step_count=40,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(BrokerBesideLedger, settings=settings_)
