"""Leases over crashes: nothing acknowledged comes again, nothing else is lost, nobody is robbed."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field

import pytest

from rmqlite.features.leases.lease_table import RENEWED_MS
from rmqlite.features.leases.leased_queue import RECEIVED_MS
from rmqlite.features.leases.leases import Leases
from rmqlite.features.leases.table_shapes import LEASES_TABLE
from rmqlite.features.leases.taking import Delivery
from rmqlite.features.operating.requests import OffsetReset
from rmqlite.features.operating.resetting import Resetting
from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.requests.groups import (
    GroupChange,
    HeartbeatRequest,
    OffsetsCommit,
    Subscription,
)
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import HandleInvalid, StoreDamaged
from rmqlite.kernel.words.message import MESSAGE_GROUP
from rmqlite.kernel.words.names import LEASES_TOPIC, dlq_topic
from tests.support.brokers import BrokerUnderTest
from tests.support.leases import CLIENT, INVISIBLE_MS, Consumer, body, expire
from tests.support.made_brokers import Make
from tests.support.messages import GROUP, TOPIC, bodies, plain
from tests.support.sends import BORN_HOST
from tests.support.steps import done

STEPS = 120


@dataclass
class Ledger:
    """What a plain observer knows of messages by their bodies."""

    broker: BrokerUnderTest
    rng: random.Random
    sent: int = 0
    acked: set[str] = field(default_factory=set)
    buried: set[str] = field(default_factory=set)
    held: dict[str, tuple[Consumer, Delivery, int]] = field(default_factory=dict)
    """Body -> who has it, and until when."""

    def send(self) -> None:
        count = self.rng.randint(1, 6)
        for _ in range(count):
            shop = self.rng.choice("abc")
            message = plain(f"{shop}{self.sent:04}", properties={MESSAGE_GROUP: shop})
            self.broker.send(message, queue_id=ord(shop) % 2)
            self.sent += 1

    def receive(self, consumer: Consumer) -> None:
        now_ms = self.broker.clock.now_ms()
        invisible_ms = self.rng.choice([1_000, 5_000, 60_000])
        for each in consumer.receive(self.rng.randint(1, 8), invisible_ms=invisible_ms).messages:
            name = body(each)
            assert name not in self.acked | self.buried, f"{name} is done"
            other = self.held.get(name)
            assert other is None or other[2] <= now_ms, f"{name} is leased"
            self.held[name] = consumer, each, now_ms + invisible_ms

    def ack(self) -> None:
        for name in self.rng.sample(sorted(self.held), min(3, len(self.held))):
            consumer, delivery, until_ms = self.held.pop(name)
            (is_done,) = consumer.ack(delivery)
            assert is_done or until_ms <= self.broker.clock.now_ms(), f"{name} is not leased"
            if is_done:
                self.acked.add(name)

    def change(self) -> None:
        for name in self.rng.sample(sorted(self.held), min(1, len(self.held))):
            consumer, delivery, _ = self.held.pop(name)
            try:
                if self.rng.random() < 0.2:
                    consumer.bury(delivery.handle)
                    self.buried.add(name)
                    continue
                invisible_ms = self.rng.choice([0, 3_000, 50_000])
                handle = consumer.hold(delivery.handle, invisible_ms)
            except HandleInvalid:
                continue
            if invisible_ms:
                until_ms = self.broker.clock.now_ms() + invisible_ms
                self.held[name] = consumer, delivery._replace(handle=handle), until_ms

    def crash(self) -> None:
        if self.rng.random() < 0.5:
            self.broker.persist()
        if self.rng.random() < 0.5:
            self.broker.crash()
            self.broker.open()
        else:
            self.broker.restart()


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.seeds(1, 8)
def test_random_histories_keep_the_promises(
    make: Make, monkeypatch: pytest.MonkeyPatch, seed: int, orderly: bool
) -> None:
    """Against a plain list of what was sent, acknowledged and buried."""
    # So that leases are written again within a history.
    monkeypatch.setattr("rmqlite.features.leases.lease_table.FAR_EVENTS", 20)
    broker = make()
    broker.broker.groups.change(GroupChange(GROUP, orderly=orderly, max_reconsume_times=1_000))
    ledger = Ledger(broker, random.Random(seed))
    ledger.send()
    consumers = [Consumer(broker, client_id=f"client-{number}") for number in range(3)]
    for _ in range(STEPS):
        step = ledger.rng.choice("ssrrrraaac-xt")
        if step == "s":
            ledger.send()
        elif step == "r":
            ledger.receive(ledger.rng.choice(consumers))
        elif step == "a":
            ledger.ack()
        elif step == "c":
            ledger.change()
        elif step == "x":
            ledger.crash()
        else:
            broker.clock.forward(ledger.rng.choice([500, 4_000]))
            expire(broker)
    broker.clock.forward(60_000)
    expire(broker)
    found = set()
    while deliveries := consumers[0].receive().messages:
        found |= set(map(body, deliveries))
        consumers[0].ack(*deliveries)
    all_sent = {name for queue_id in (0, 1) for name in bodies(broker, TOPIC, queue_id)}
    dead = set(bodies(broker, dlq_topic(GROUP)))
    assert (dead, found) == (ledger.buried, all_sent - ledger.acked - ledger.buried)


def test_a_client_can_acknowledge_after_a_crash(make: Make) -> None:
    """It had the message before; nobody else gets it meanwhile."""
    broker = make()
    broker.send(*[plain(str(number)) for number in range(4)])
    consumer = Consumer(broker)
    deliveries = consumer.receive().messages
    consumer.ack(deliveries[1])
    broker.persist()
    consumer.ack(deliveries[2])
    broker.crash()
    broker.open()
    assert consumer.bodies() == []
    assert consumer.ack(deliveries[0], deliveries[1]) == (True, False)
    broker.clock.forward(INVISIBLE_MS)
    expire(broker)
    assert consumer.bodies() == ["3"]


def test_a_push_consumer_has_time_to_come_back(make: Make) -> None:
    """The broker was away longer than a lease lasts, and knows no members when it starts."""
    broker = make()
    broker.send(plain("a"))
    consumer = Consumer(broker, auto_renew=True, invisible_ms=0)
    (delivery,) = consumer.receive().messages
    broker.clock.forward(RECEIVED_MS)
    expire(broker)
    for _ in range(2):
        broker.crash()
        broker.clock.forward(300_000)
        broker.open()
        expire(broker)
        assert consumer.is_valid(delivery.handle)
        join(broker)
        broker.clock.forward(RENEWED_MS)
        expire(broker)
    assert consumer.bodies() == []
    assert consumer.ack(delivery) == (True,)


@pytest.mark.parametrize("crashes", [1, 2])
def test_what_nobody_has_got_comes_again(make: Make, crashes: int) -> None:
    """The answer was lost with the broker; the client lives, and waits for messages."""
    broker = make()
    broker.send(plain("a"), plain("b"))
    consumer = Consumer(broker, auto_renew=True, invisible_ms=0)
    _, kept = consumer.receive().messages
    for _ in range(crashes):
        broker.clock.forward(RECEIVED_MS - 1)
        broker.crash()
        broker.open()
        join(broker)
    assert consumer.bodies() == []
    broker.clock.forward(RENEWED_MS - 1)
    expire(broker)
    # If it has got them, it has a minute to say so.
    assert consumer.ack(kept) == (True,)
    broker.clock.forward(1)
    expire(broker)
    assert consumer.bodies() == ["a"]


def join(broker: BrokerUnderTest) -> None:
    """The client of all consumers sends a heartbeat."""
    broker.broker.membership.heartbeat(HeartbeatRequest(GROUP, CLIENT, (Subscription(TOPIC),)))


def test_a_start_reads_few_events(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease that lasts for hours is written again, behind the many that came and went."""
    monkeypatch.setattr("rmqlite.features.leases.lease_table.FAR_EVENTS", 10)
    broker = make()
    broker.send(*[plain(str(number)) for number in range(60)])
    consumer = Consumer(broker)
    (held,) = consumer.receive(1, invisible_ms=3_600_000).messages
    for _ in range(50):
        consumer.ack(*consumer.receive(1).messages)
    expire(broker)
    broker.persist()
    table = json.loads((broker.config.store_path / "config" / LEASES_TABLE).read_text())
    assert table["end"] - table["queueOffset"] < 10
    broker.crash()
    broker.open()
    assert consumer.is_valid(held.handle)
    assert len(consumer.receive().messages) == 9


def test_records_that_are_no_events_are_left_out(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ closes the topic to nobody."""
    broker = make()
    broker.send(plain("a"))
    Consumer(broker).receive()
    wrong = [
        b"",
        b"[]",
        b'{"kind":"leased"}',
        b'{"kind":"done","group":"g","places":[["t",0,[[0,99999999]]]]}',
        b'{"kind":"leased","group":"g","places":[["t",0,[[5,6]]]],"key":"xyz"}',
    ]
    for each in wrong:
        draft = Draft(LEASES_TOPIC, 0, b"", each, broker.clock.now_ms(), BORN_HOST)
        broker.store.append([fresh(draft, BORN_HOST)])
    broker.crash()
    broker.open()
    assert caplog.text.count("skip a record of no lease") == len(wrong)
    assert Consumer(broker).bodies() == []
    assert broker.broker.topics.get(LEASES_TOPIC) is not None


def test_a_damaged_table_names_file_and_offset(make: Make) -> None:
    """Not skipped: it says which messages are done."""
    broker = make()
    broker.send(plain("a"), plain("b"))
    consumer = Consumer(broker)
    consumer.ack(consumer.receive().messages[1])
    broker.close()
    folder = broker.config.store_path / "config"
    for name in (LEASES_TABLE, f"{LEASES_TABLE}.bak"):
        (folder / name).write_text('{"queueOffset":-1}')
    with pytest.raises(StoreDamaged, match=rf"{LEASES_TABLE} is damaged at byte"):
        broker.open()
    (folder / LEASES_TABLE).unlink()
    (folder / f"{LEASES_TABLE}.bak").unlink()
    broker.store.release()
    broker.open()


def test_a_group_that_is_deleted_begins_anew(make: Make) -> None:
    """Neither its leases nor what it has done come back, also after a crash."""
    broker = make()
    broker.send(plain("a"), plain("b"), plain("c"))
    consumer = Consumer(broker)
    first, second, third = consumer.receive().messages
    consumer.ack(second)
    broker.persist()
    consumer.ack(first)
    broker.broker.groups.delete(GROUP)
    broker.broker.offsets.forget_group(GROUP)
    assert broker.broker[Leases].table.total.messages == 0
    broker.crash()
    broker.open()
    assert not consumer.is_valid(third.handle)
    assert consumer.bodies() == ["a", "b", "c"]


@pytest.mark.parametrize("is_persisted", [False, True])
@pytest.mark.parametrize("by", ["reset", "commit", "clone"])
def test_a_reset_survives_a_kill(make: Make, by: str, is_persisted: bool) -> None:
    """The table of offsets on disk still has the place of before."""
    broker = make()
    broker.send(*[plain(str(number)) for number in range(6)])
    consumer = Consumer(broker)
    consumer.ack(*consumer.receive().messages)
    broker.persist()
    queue = Queue(TOPIC, 0)

    def move(offset: int) -> None:
        if by == "reset":
            asked = OffsetReset(GROUP, TOPIC, queue_id=0, queue_offset=offset)
            done(broker.broker[Resetting].reset(asked))
        else:
            commit = OffsetsCommit(GROUP, {queue: offset})
            broker.broker.commit_offsets(commit, is_reset=by == "clone")
        if is_persisted:
            broker.persist()
        broker.crash()
        broker.open()

    move(1)
    assert broker.broker.offsets.of(GROUP)[queue] == 1
    assert consumer.bodies(2) == ["1", "2"]
    move(4)
    assert broker.broker.offsets.of(GROUP)[queue] == 4
    assert consumer.bodies() == ["4", "5"]


def test_a_group_that_was_made_again_stays_new(make: Make) -> None:
    """A kill brings back nothing that the deleted group had done."""
    broker = make()
    broker.send(plain("a"), plain("b"), plain("c"))
    consumer = Consumer(broker)
    consumer.ack(*consumer.receive(2).messages)
    broker.persist()
    broker.broker.groups.delete(GROUP)
    broker.broker.offsets.forget_group(GROUP)
    (first,) = consumer.receive(1).messages
    assert consumer.ack(first) == (True,)
    broker.crash()
    broker.open()
    assert consumer.bodies() == ["b", "c"]
