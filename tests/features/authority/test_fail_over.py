"""Two brokers and an authority, each a process: kills, stops, cuts, switches."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.producer import Producer
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.kernel.words.clock import pause_s
from rmqlite.kernel.words.errors import NotMaster, Refused, RmqliteError, Unavailable
from rmqlite.kernel.words.message import Message
from rmqlite.testing import BrokerProcess
from tests.support.etcd_server import EtcdServer
from tests.support.eventually import eventually
from tests.support.fake_etcd import FakeEtcd
from tests.support.standbys import Pair, bodies_of, replication

TOPIC = "orders"
LEASE_MS = 4_000
PATIENCE_MS = 300_000


class Decided:
    """A pair with an authority, of which each broker has a port of its own."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.first, self.second = pair.first, pair.second

    def in_sync(self, master: BrokerProcess) -> tuple[str, ...]:
        return replication(master).in_sync

    def settle(self, master: BrokerProcess) -> None:
        """Return when both are in sync, and both say who is the master."""
        other = self.second if master is self.first else self.first

        def is_settled() -> bool:
            try:
                one, two = replication(master), replication(other)
            except RmqliteError:
                return False
            both = {self.first.endpoint, self.second.endpoint}
            return (
                (one.role, two.role) == ("SYNC_MASTER", "SLAVE")
                and {*one.in_sync} == {*two.in_sync} == both
                and not (one.alone_since_ms or one.behind_bytes or one.trouble or two.trouble)
            )

        eventually(is_settled, "both are in sync")


def decided(folder: Path, authorities: tuple[str, str], **more: Any) -> Pair:
    """A pair whose brokers reach the authority there."""
    return Pair(folder, authorities, authorityLeaseMs=str(LEASE_MS), **more)


def names(etcd: FakeEtcd | EtcdServer) -> tuple[str, str]:
    first, second = [f"etcd://{etcd.endpoint(number)}/orders" for number in (0, 1)]
    return first, second


@pytest.fixture
def two(etcd: FakeEtcd | EtcdServer, tmp_path: Path) -> Iterator[Decided]:
    with decided(tmp_path / "two", names(etcd)) as pair:
        made = Decided(pair)
        made.settle(pair.first)
        yield made


def test_a_lost_master_is_replaced_by_itself(two: Decided, is_long: bool) -> None:
    """Nothing acknowledged is missing; the former master comes back, and follows.

    With --long once more, back to the first one, and its disk is new after that.
    """
    with Producer(two.pair.endpoints, "shop", send_timeout_ms=PATIENCE_MS) as producer:
        producer.send(Message(TOPIC, b"before"))
        two.first.kill()
        producer.send(Message(TOPIC, b"after"))
        assert replication(two.second).in_sync == (two.second.endpoint,)
        two.first.start()
        two.settle(two.second)
        assert bodies_of(two.second, TOPIC) == [b"before", b"after"]
        if not is_long:
            return
        with AdminClient(two.pair.endpoints) as admin:
            assert admin.switch() == two.first.endpoint
        two.settle(two.first)
        two.first.kill()
        shutil.rmtree(two.first.store)
        two.first.start()
        two.settle(two.second)
        assert bodies_of(two.second, TOPIC) == [b"before", b"after"]


@pytest.mark.long
def test_a_master_that_was_stopped_answers_nothing(two: Decided) -> None:
    """Its process goes on when the other one leads: no timer of it has run meanwhile."""
    with Producer(two.pair.endpoints, "shop", send_timeout_ms=PATIENCE_MS) as producer:
        producer.send(Message(TOPIC, b"before"))
    os.kill(two.first.pid, signal.SIGSTOP)
    try:
        with Producer(two.second.endpoint, "shop", send_timeout_ms=PATIENCE_MS) as producer:
            until_sent(producer, b"after")
    finally:
        os.kill(two.first.pid, signal.SIGCONT)
    with Producer(two.first.endpoint, "shop", retries=0) as producer:
        for _ in range(5):
            with pytest.raises(Unavailable):
                producer.send(Message(TOPIC, b"at the former one"))
    two.settle(two.second)
    assert bodies_of(two.second, TOPIC) == [b"before", b"after"]


def test_a_master_without_its_network_to_the_authority(fake: FakeEtcd, tmp_path: Path) -> None:
    """It still reaches its standby and its clients; no offset is acknowledged by both."""
    acknowledged: dict[str, list[tuple[int, int, bytes]]] = {"first": [], "second": []}
    is_over = threading.Event()

    def send(name: str, endpoint: str) -> None:
        with Producer(endpoint, "shop", retries=0) as producer:
            number = 0
            while not is_over.is_set():
                body = f"{name} {number}".encode()
                number += 1
                try:
                    sent = producer.send(Message(TOPIC, body))
                except RmqliteError:
                    pause_s(0.02)
                    continue
                acknowledged[name].append((sent.queue_id, sent.queue_offset, body))

    with decided(tmp_path, names(fake)) as pair:
        two = Decided(pair)
        two.settle(pair.first)
        threads = [
            threading.Thread(target=send, args=("first", pair.first.endpoint)),
            threading.Thread(target=send, args=("second", pair.second.endpoint)),
        ]
        for each in threads:
            each.start()
        try:
            eventually(lambda: len(acknowledged["first"]) > 20, "the master acknowledges")
            fake.cut = {fake.ports[0]}
            eventually(lambda: len(acknowledged["second"]) > 20, "the other one leads")
            fake.cut = set()
            two.settle(pair.second)
        finally:
            is_over.set()
            for each in threads:
                each.join()
        every = [*acknowledged["first"], *acknowledged["second"]]
        assert len({each[:2] for each in every}) == len(every)
        assert {each[2] for each in every} <= {*bodies_of(pair.second, TOPIC)}
        status = replication(pair.first)
        assert (status.role, status.authority_master) == ("SLAVE", pair.second.endpoint)


@pytest.mark.long
def test_without_the_authority_nobody_leads(fake: FakeEtcd, tmp_path: Path) -> None:
    """The master refuses with the reason, and goes on when it is back."""
    with decided(tmp_path, names(fake)) as pair:
        two = Decided(pair)
        two.settle(pair.first)
        fake.cut = {*fake.ports}
        with Producer(pair.first.endpoint, "shop", retries=0) as producer:
            eventually(lambda: is_silent(producer), "the master is silent")
        shown = replication(pair.first)
        assert shown.lease_left_ms == 0
        assert shown.unheard_since_ms > 0
        assert "the authority etcd://" in shown.trouble
        with AdminClient(pair.second.endpoint) as admin, pytest.raises((Refused, Unavailable)):
            admin.promote()
        pause_s(LEASE_MS / 1000)
        assert replication(pair.second).role == "SLAVE"
        fake.cut = set()
        with Producer(pair.endpoints, "shop", send_timeout_ms=PATIENCE_MS) as producer:
            producer.send(Message(TOPIC, b"again"))
        # Whoever was faster.
        leading = [each for each in (pair.first, pair.second) if role_of(each) == "SYNC_MASTER"]
        two.settle(leading[0])


def test_one_copy_is_acknowledged_only_after_the_authority_knows(
    fake: FakeEtcd, tmp_path: Path
) -> None:
    """Else a standby that lacks it would take over."""
    with decided(tmp_path, names(fake), enableAutoInSyncReplicas="true") as pair:
        two = Decided(pair)
        two.settle(pair.first)
        with Producer(pair.first.endpoint, "shop", send_timeout_ms=PATIENCE_MS) as producer:
            producer.send(Message(TOPIC, b"on both"))
            pair.second.kill()
            until_sent(producer, b"on one")
        assert replication(pair.first).in_sync == (pair.first.endpoint,)
        assert replication(pair.first).alone_since_ms
        # A standby that lacks something never leads, however long it waits.
        pair.first.kill()
        pair.second.start()
        pause_s(LEASE_MS / 1000 + 2)
        assert replication(pair.second).role == "SLAVE"
        with AdminClient(pair.second.endpoint) as admin, pytest.raises(Refused, match="has all"):
            admin.promote()
        pair.first.start()
        two.settle(pair.first)
        assert bodies_of(pair.first, TOPIC) == [b"on both", b"on one"]


@pytest.mark.long
def test_both_start_at_once_and_switch_twice(etcd: FakeEtcd | EtcdServer, tmp_path: Path) -> None:
    """After a power cut; one of them leads, and hands over without a failed send."""
    with decided(tmp_path / "two", names(etcd)) as pair:
        two = Decided(pair)
        two.settle(pair.first)
        with Producer(pair.endpoints, "shop", send_timeout_ms=PATIENCE_MS) as producer:
            producer.send(Message(TOPIC, b"0"), queue_id=0)
            pair.first.kill()
            pair.second.kill()
            threads = [threading.Thread(target=each.start) for each in (pair.second, pair.first)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            producer.send(Message(TOPIC, b"1"), queue_id=0)
            for number in range(2, 40):
                if number in (10, 20):
                    master, other = pair.first, pair.second
                    if role_of(master) == "SLAVE":
                        master, other = other, master
                    two.settle(master)
                    with AdminClient(master.endpoint) as admin:
                        assert admin.switch() == other.endpoint
                producer.send(Message(TOPIC, b"%d" % number), queue_id=0)
        leading = [each for each in (pair.first, pair.second) if role_of(each) == "SYNC_MASTER"]
        two.settle(leading[0])
        found = bodies_of(leading[0], TOPIC)
        assert list(dict.fromkeys(found)) == [b"%d" % number for number in range(40)]


@pytest.mark.long
def test_an_archive_decides_as_etcd_does(tmp_path: Path) -> None:
    """A folder that both reach; without renewals the record is nobody's."""
    url = f"file://{tmp_path}/archive"
    with decided(tmp_path / "two", ("archive", "archive"), archiveUrl=url) as pair:
        two = Decided(pair)
        eventually(lambda: len(shown(pair.second).in_sync) == 2, "both are in sync")
        with Producer(pair.endpoints, "shop", send_timeout_ms=PATIENCE_MS) as producer:
            producer.send(Message(TOPIC, b"before"))
            pair.first.kill()
            producer.send(Message(TOPIC, b"after"))
            pair.first.start()
            eventually(lambda: len(two.in_sync(pair.second)) == 2, "both are in sync again")
            assert bodies_of(pair.second, TOPIC) == [b"before", b"after"]


def test_an_etcd_that_was_killed_comes_back(etcd: FakeEtcd | EtcdServer, two: Decided) -> None:
    """What it knew is on its disk."""
    if isinstance(etcd, FakeEtcd):
        pytest.skip("this is the real one's")
    with Producer(two.first.endpoint, "shop", retries=0) as producer:
        etcd.kill()
        eventually(lambda: is_silent(producer), "the master is silent")
    etcd.start()
    with Producer(two.pair.endpoints, "shop", send_timeout_ms=PATIENCE_MS) as producer:
        producer.send(Message(TOPIC, b"again"))


def shown(broker: BrokerProcess) -> ReplicationStatus:
    """What it says; nothing while it does not answer."""
    try:
        return replication(broker)
    except RmqliteError:
        return ReplicationStatus("")


def role_of(broker: BrokerProcess) -> str:
    return shown(broker).role


def is_silent(producer: Producer) -> bool:
    try:
        producer.send(Message("unheard", b"x"))
    except NotMaster as error:
        return "it may not lead" in str(error)
    except RmqliteError:
        pass
    return False


def until_sent(producer: Producer, body: bytes) -> None:
    """Send it once, as soon as somebody takes it."""

    def is_sent() -> bool:
        with suppress(Unavailable):
            producer.send(Message(TOPIC, body))
            return True
        return False

    eventually(is_sent, "it is sent")
