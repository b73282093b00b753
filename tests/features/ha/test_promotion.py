"""The store of a slave of RocketMQ, after a handover: what the master had promised, and no more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rmqlite.client import AdminClient, Message, Producer, PullConsumer
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import SystemClock
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.store_tools.check import check
from rmqlite.store_tools.moving import slaves_copy
from rmqlite.store_tools.moving.handover import config_to_open, hand_over
from rmqlite.store_tools.moving.slaves_copy import is_slaves_copy
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import free_port
from tests.support.eventually import eventually
from tests.support.rocketmq_slaves import copied_log, slaves_store
from tests.support.standbys import SMALL

TOPIC = "orders"
LEVELS = "1s 30s 1h 2h"
NEXT_LEVELS = "1s 45m 3h 4h"
FILE_BYTES = 1 << 20


def waiting(admin: AdminClient) -> dict[str, tuple[str, int]]:
    """What waits: by id, topic and due time."""
    found = {e.message_id: (e.topic, e.deliver_at_ms) for e in admin.schedule.pending()}
    assert len(found) == sum(each.pending for each in admin.schedule.count_pending())
    return found


class Master:
    """A broker with what a slave does not understand, and the log that one has copied."""

    def __init__(self, folder: Path) -> None:
        port = free_port()
        settings = {**SMALL, "haListenPort": str(port), "messageDelayLevel": LEVELS}
        with BrokerProcess(folder, settings) as broker:
            self._fill(broker)
            with AdminClient(broker.endpoint) as admin:
                self.waiting = waiting(admin)
                self.topics = {each.topic for each in admin.list_topics()}
                self.groups = {each.group for each in admin.list_groups()}
                end = admin.broker_status().log_max_offset
            self.log = copied_log(port, end)

    def _fill(self, broker: BrokerProcess) -> None:
        hour = timedelta(hours=1)
        with Producer(broker.endpoint, "shop") as producer, AdminClient(broker.endpoint) as admin:
            send, cancel = producer.send, admin.schedule.cancel
            for number in range(30):
                send(Message(TOPIC, bytes(60_000), keys=(f"key-{number}",)))
            cancel(send(Message(TOPIC, b"timer, cancelled", deliver_after=hour)).message_id)
            send(Message(TOPIC, b"timer", deliver_after=hour))
            send(Message(TOPIC, b"older, by level", delay_level=3))
            cancel(send(Message(TOPIC, b"cancelled, by level", delay_level=3)).message_id)
            admin.change_levels(NEXT_LEVELS)
            moved = send(Message(TOPIC, b"moved", delay_level=3)).message_id
            admin.schedule.reschedule(moved, delay_level=4)
            send(Message(TOPIC, b"newer, by level", delay_level=3))
            send(Message(TOPIC, b"soon", delay_level=1))
            admin.set_group("billing", max_reconsume_times=3)
            eventually(
                lambda: admin.broker_status().delivered == 1, "the one of a second is delivered"
            )

    def tables(self) -> dict[str, str]:
        """As a slave may have them: of another moment than its log, and its own."""
        offsets = {f"{TOPIC}@billing": {"0": 3, "1": 9_999}}
        return {
            "consumerOffset.json": json.dumps({"offsetTable": offsets}),
            "delayOffset.json": json.dumps({"offsetTable": {"3": 99, "4": 99}}),
            "topics.json": json.dumps({"dataVersion": {}, "topicConfigTable": {}}),
            "subscriptionGroup.json": "{",
        }


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Master:
    return Master(tmp_path_factory.mktemp("master"))


@pytest.fixture
def copy(master: Master, tmp_path: Path) -> Iterator[Path]:
    """The folder of a slave's store."""
    root = tmp_path / "again" / "store"
    slaves_store(root, master.log, FILE_BYTES, master.tables())
    yield root
    assert not list(check(root))


@pytest.mark.parametrize("to", ["4.9", "5.3"])
def test_what_the_master_had_promised_waits_in_the_copy(
    master: Master, copy: Path, to: str
) -> None:
    """With its due times, though the slave has computed others; and nothing that was cancelled."""
    hand_over(copy, to)
    with BrokerProcess(copy.parent, {**SMALL, "messageDelayLevel": LEVELS}) as broker:
        with AdminClient(broker.endpoint) as admin:
            assert waiting(admin) == master.waiting
            assert {each.topic for each in admin.list_topics()} >= master.topics
            assert {each.group for each in admin.list_groups()} >= master.groups
            assert admin.levels().message_delay_level == NEXT_LEVELS
            assert admin.group("billing").info.max_reconsume_times == 3
        with PullConsumer(broker.endpoint, "billing") as consumer:
            queues = {each.queue_id: each for each in consumer.queues(TOPIC)}
            committed = {number: consumer.committed(each) for number, each in queues.items()}
            end = consumer.seek_to_end(queues[1])
            assert committed == {0: 3, 1: end, 2: None, 3: None}


@pytest.mark.parametrize("to", ["4.9", "5.3"])
def test_rocketmq_finds_what_waits_behind_all_that_does_not(copy: Path, to: str) -> None:
    """It knows a level by one offset: it would deliver what was cancelled behind a message that
    waits."""
    hand_over(copy, to)
    disk = SystemFiles()
    store = MessageStore(config_to_open(disk, copy, None), disk, SystemClock())
    try:
        levels = [level for level in store.progress.pending if level != TIMERS]
        assert levels
        for level in levels:
            completed = store.progress.of(level)
            assert completed.count_above == 0
            queue = store.queue(*queue_of(level))
            assert queue is not None
            dues = queue.tags_codes(completed.below, queue.max_offset - completed.below)
            assert list(dues) == sorted(dues)
    finally:
        store.close({})
        store.release()


def test_a_handover_that_is_cut_off_is_repeated(
    master: Master, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every file that it removes or writes, until the store was opened."""
    removed = slaves_copy.remove_tree

    def cut_off(files: Any, path: Path) -> None:
        removed(files, path)
        monkeypatch.setattr(slaves_copy, "remove_tree", fail)

    def fail(_files: Any, _path: Path) -> None:
        monkeypatch.setattr(slaves_copy, "remove_tree", cut_off)
        raise KeyboardInterrupt

    monkeypatch.setattr(slaves_copy, "remove_tree", cut_off)
    tries = 0
    while is_slaves_copy(SystemFiles(), copy):
        tries += 1
        try:
            hand_over(copy, "5.3")
        except KeyboardInterrupt:
            continue
    assert tries > 5
    with (
        BrokerProcess(copy.parent, {**SMALL, "messageDelayLevel": LEVELS}) as broker,
        AdminClient(broker.endpoint) as admin,
    ):
        assert waiting(admin) == master.waiting


def test_a_dry_run_leaves_a_slaves_store_alone(copy: Path) -> None:
    """A slave may go on with it."""
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    with pytest.raises(InvalidValue, match="made anew"):
        hand_over(copy, "5.3", dry_run=True)
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before
    hand_over(copy, "5.3")
