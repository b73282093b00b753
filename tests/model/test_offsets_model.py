"""Leases beside everybody else who writes offsets, compared with a plain list of places.

A consumer receives messages one by one, acknowledges some and lets others fail.  Meanwhile offsets
are committed by consumers of other protocols, reset and cloned by operators, deleted with their
group or topic, and the broker is killed.  Whoever wrote last is right.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.taking import Delivery
from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.operating.requests import OffsetReset
from rmqlite.features.operating.resetting import Resetting
from rmqlite.kernel.requests.groups import (
    GroupChange,
    HeartbeatRequest,
    MemberKind,
    OffsetsCommit,
    Subscription,
)
from rmqlite.kernel.requests.topics import Queue, TopicInfo
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.words.names import retry_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.disk import ROOT, SimulatedDisk
from tests.support.leases import INVISIBLE_MS, Consumer, expire
from tests.support.messages import GROUP, TOPIC, plain
from tests.support.steps import done

STORE = ROOT / "store"
RETRIES = retry_topic(GROUP)
Place = tuple[str, int]

shares = st.integers(0, 10**6)


class LeasesBesideOffsets(RuleBasedStateMachine):
    """One topic and its retries, each with one queue."""

    def __init__(self) -> None:
        super().__init__()
        disk = SimulatedDisk()
        self.under_test = BrokerUnderTest(STORE, files=SystemFiles(disk))
        self.consumer = Consumer(self.under_test)
        self.begin, self.end, self.retries = 0, 0, 0
        self.done: set[Place] = set()
        self.held: dict[Place, Delivery] = {}
        self.has_leased = False
        self.is_unsaved = False
        """Has an offset moved whose loss by a kill is documented?"""

    @initialize()
    def set_up(self) -> None:
        self.under_test.broker.topics.create(TopicInfo(TOPIC, 1, 1))
        self._make_group()
        self.send(6)

    # ---- the consumer

    @rule(count=st.integers(1, 5))
    def send(self, count: int) -> None:
        self.under_test.send(*[plain(str(number)) for number in range(count)])
        self.end += count

    @rule(most=st.integers(1, 6))
    def receive(self, most: int) -> None:
        self.has_leased = True
        for each in self.consumer.receive(most).messages:
            place = each.record.head.topic, each.record.head.queue_offset
            assert place in self._open(), f"{place} is done"
            assert place not in self.held, f"{place} is leased"
            self.held[place] = each

    @precondition(lambda self: self.held)
    @rule(share=shares)
    def acknowledge(self, share: int) -> None:
        place = sorted(self.held)[share % len(self.held)]
        assert self.consumer.ack(self.held.pop(place)) == (True,), f"{place} is not leased"
        self.done.add(place)

    @rule()
    def let_all_fail(self) -> None:
        self.under_test.clock.forward(INVISIBLE_MS)
        expire(self.under_test)
        self.retries += len(self.held)
        self.done |= self.held.keys()
        self.held.clear()

    @rule()
    def say_goodbye(self) -> None:
        done(self.under_test.broker[Leases].release(GROUP, self.consumer.client_id))
        self.held.clear()

    # ---- everybody else

    @precondition(lambda self: self.begin < self.end)
    @rule(share=shares)
    def commit_as_a_member(self, share: int) -> None:
        """A consumer of another protocol says again and again where it is."""
        beat = HeartbeatRequest(GROUP, "puller", (Subscription(TOPIC),))
        membership = self.under_test.broker.membership
        membership.heartbeat(beat, kind=MemberKind.SHARES)
        offset = self._offset(share)
        is_news = offset != self._committed()
        self.under_test.broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): offset}))
        membership.leave(GROUP, "puller")
        if is_news:
            self._move(offset, is_back=offset < self._below())
            self.is_unsaved = True

    @precondition(lambda self: self.begin < self.end)
    @rule(share=shares, is_mqadmin=st.booleans())
    def reset(self, share: int, is_mqadmin: bool) -> None:
        offset = self._offset(share)
        broker = self.under_test.broker
        if is_mqadmin:
            # Also what a clone of another group's offsets does.
            broker.commit_offsets(OffsetsCommit(GROUP, {Queue(TOPIC, 0): offset}))
        else:
            done(
                broker[Resetting].reset(OffsetReset(GROUP, TOPIC, queue_id=0, queue_offset=offset))
            )
        self.under_test.sync()
        self._move(offset, is_back=offset <= self._below())
        # Of a group without leases an offset is on disk with the next persist.
        self.is_unsaved |= not self.has_leased

    @rule()
    def delete_the_group(self) -> None:
        broker = self.under_test.broker
        broker.groups.delete(GROUP)
        broker.offsets.forget_group(GROUP)
        self._make_group()
        self.done.clear()
        self.held.clear()
        self.is_unsaved |= not self.has_leased
        self.has_leased = False

    @rule(count=st.integers(1, 3))
    def make_the_topic_anew(self, count: int) -> None:
        broker = self.under_test.broker
        broker[Deleting].delete_topic(TOPIC)
        broker.topics.create(TopicInfo(TOPIC, 1, 1))
        self.held = {place: each for place, each in self.held.items() if place[0] != TOPIC}
        self.done = {place for place in self.done if place[0] != TOPIC}
        self.begin = self.end
        self.send(count)

    @rule(is_killed=st.booleans(), is_persisted=st.booleans())
    def restart(self, is_killed: bool, is_persisted: bool) -> None:
        if is_persisted or self.is_unsaved:
            self.under_test.persist()
            self.is_unsaved = False
        if is_killed:
            self.under_test.crash()
            self.under_test.open()
        else:
            self.under_test.restart()

    def teardown(self) -> None:
        """All that is open comes, once, and nothing else."""
        self.let_all_fail()
        while self._open():
            before = len(self._open())
            self.receive(32)
            for _ in range(len(self.held)):
                self.acknowledge(0)
            assert len(self._open()) < before, f"{self._open()} never come"
        assert not self.consumer.receive().messages
        self.under_test.close()

    # ---- inside

    def _make_group(self) -> None:
        self.under_test.broker.groups.change(GroupChange(GROUP, max_reconsume_times=10_000))

    def _open(self) -> set[Place]:
        own = {(TOPIC, each) for each in range(self.begin, self.end)}
        return (own | {(RETRIES, each) for each in range(self.retries)}) - self.done

    def _below(self) -> int:
        """The first place that is not done."""
        own = [each for topic, each in self._open() if topic == TOPIC]
        return min(own, default=self.end)

    def _committed(self) -> int | None:
        return self.under_test.broker.offsets.of(GROUP).get(Queue(TOPIC, 0))

    def _offset(self, share: int) -> int:
        return self.begin + share % (self.end - self.begin + 1)

    def _move(self, offset: int, *, is_back: bool) -> None:
        if is_back:
            self.done = {(topic, each) for topic, each in self.done if topic != TOPIC}
            self.held = {place: each for place, each in self.held.items() if place[0] != TOPIC}
        self.done |= {(TOPIC, each) for each in range(self.begin, offset)}
        self.held = {place: each for place, each in self.held.items() if place not in self.done}


@pytest.mark.timeout(1_800)
def test_whoever_wrote_an_offset_last_is_right() -> None:
    """An acknowledgement undoes no reset, and a reset loses no message."""
    settings_ = settings(
        stateful_step_count=25,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(LeasesBesideOffsets, settings=settings_)
