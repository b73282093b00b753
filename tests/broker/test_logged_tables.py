"""Every promise that a table holds is in the log; the files under config/ are snapshots of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.dead_letters.purge_markers import PurgeMarkers
from rmqlite.features.name_server.key_values import KeyValues
from rmqlite.features.operating.deleting import Deleting
from rmqlite.features.request_modes.request_modes import RequestModes
from rmqlite.features.request_modes.requests import RequestMode, RequestModeChange
from rmqlite.kernel.requests.broker import LevelsChange
from rmqlite.kernel.store.progress import CompletedOffsets
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.store.tables.logged_tables import LOG_END, TABLES_QUEUE, LoggedTables
from rmqlite.kernel.words.names import TABLES_TOPIC, dlq_topic
from rmqlite.store_tools.check import check
from rmqlite.store_tools.reader import StoreReader
from tests.support.brokers import BrokerUnderTest
from tests.support.log_files import NOW_MS, RETENTION, age, carry_tables, fill
from tests.support.made_brokers import Make
from tests.support.messages import (
    GROUP,
    TOPIC,
    bodies,
    create_topic,
    delayed,
    plain,
    save_group,
)
from tests.support.redrives import bury

CLOCK = "clock.json"


def promise(broker: BrokerUnderTest) -> None:
    """A row in each table, changed, removed, and made again."""
    create_topic(broker, TOPIC, 3)
    broker.send(plain("gone"))
    broker.broker[Deleting].delete_topic(TOPIC)
    create_topic(broker, TOPIC, 4)
    create_topic(broker, "short-lived")
    broker.broker[Deleting].delete_topic("short-lived")
    save_group(broker, max_reconsume_times=5, retry_policy="2h")
    save_group(broker, retry_policy="")
    save_group(broker, group="orderly", orderly=True, retry_policy="1h 2h")
    broker.send(delayed("first", 1))
    broker.broker.levels.change(LevelsChange("3s 1h"))
    broker.send(delayed("second", 1), plain("there"))
    bury(broker, plain("letter"))
    PurgeMarkers(broker.store).hide(GROUP, {0: CompletedOffsets([(0, 1)])})
    values = KeyValues(broker.store)
    values.put("ORDER_TOPIC_CONFIG", TOPIC, "broker-a:4")
    values.put("n", "gone", "x")
    values.delete("n", "gone")
    change = RequestModeChange(GROUP, TOPIC, RequestMode.POP, 2)
    broker.broker[RequestModes].change(change)
    broker.sync()


def promises(broker: BrokerUnderTest) -> list[Any]:
    """All that the tables say, and what follows from it."""
    values, modes = KeyValues(broker.store), broker.broker[RequestModes]
    return [
        # First, because it makes the group that reads.
        bodies(broker),
        len(broker.messages(dlq_topic(GROUP))),
        broker.broker.topics.all(),
        broker.broker.topics.version,
        broker.broker.groups.all(),
        broker.broker.groups.version,
        broker.store.levels,
        broker.store.deletions.topics.topics,
        values.orders,
        values.of("n"),
        modes.is_popped(GROUP),
        PurgeMarkers(broker.store).hidden(GROUP, 0).ranges(),
        {key: broker.store.queue(*key).max_offset for key in broker.store.queue_keys()},  # type: ignore[union-attr]
        broker.store.progress.pending,
    ]


def config(broker: BrokerUnderTest) -> Path:
    return broker.config.store_path / "config"


def lose_tables(broker: BrokerUnderTest) -> None:
    for path in config(broker).iterdir():
        if not path.name.startswith(CLOCK):
            path.unlink()


@pytest.mark.parametrize("is_persisted", [False, True])
@pytest.mark.parametrize("folder", ["", "consumequeue"])
def test_the_log_alone_has_all_promises(make: Make, is_persisted: bool, folder: str) -> None:
    """A copy of the log must be a copy of the store."""
    broker = make()
    promise(broker)
    before = promises(broker)
    if is_persisted:
        broker.persist()
    broker.crash()
    lose_tables(broker)
    if folder:
        shutil.rmtree(broker.config.store_path / folder)
    broker.open()
    assert promises(broker) == before
    broker.crash()
    broker.open()
    assert promises(broker) == before


@pytest.mark.parametrize("lost", ["topics", "subscriptionGroup", "delayLevels", "deletedTopics"])
@pytest.mark.parametrize("suffixes", [(".json",), (".json", ".json.bak")])
def test_one_lost_or_old_file_loses_nothing(
    make: Make, lost: str, suffixes: tuple[str, ...]
) -> None:
    """The generation before takes its place, and the log has what came since."""
    broker = make()
    promise(broker)
    broker.persist()
    create_topic(broker, "later")
    save_group(broker, group="later")
    broker.send(plain("a", "later"))
    broker.broker[Deleting].delete_topic("later")
    broker.broker.levels.change(LevelsChange("7s"))
    before = promises(broker)
    broker.close()
    for suffix in suffixes:
        (config(broker) / f"{lost}{suffix}").unlink()
    broker.open()
    assert promises(broker) == before


def test_a_file_without_its_key_is_the_truth_and_the_log_gets_it(make: Make) -> None:
    """RocketMQ wrote it since, or an editor: it may have removed topics, too."""
    broker = make()
    promise(broker)
    create_topic(broker, "removed")
    broker.close()
    path = config(broker) / "topics.json"
    tree = tables.decode(path.read_bytes())
    tree.pop(LOG_END)
    rows = tree["topicConfigTable"]
    rows["added"] = {**rows.pop("removed"), "topicName": "added"}
    rows[TOPIC]["attributes"] = {"a": "b"}
    path.write_text(json.dumps(tree))
    broker.open()
    topics = broker.broker.topics
    assert (topics.get("removed"), topics.existing("added").topic) == (None, "added")
    broker.store.log_tables()
    before = promises(broker)
    broker.crash()
    lose_tables(broker)
    broker.open()
    assert promises(broker) == before
    broker.persist()
    rows = tables.decode(path.read_bytes())["topicConfigTable"]
    assert rows[TOPIC]["attributes"] == {"a": "b"}


def test_what_a_kill_kept_from_rocketmqs_file_is_added(make: Make) -> None:
    """A topic was acknowledged, and RocketMQ has written the table without it."""
    broker = make()
    create_topic(broker, "before")
    broker.persist()
    create_topic(broker, "last")
    broker.crash()
    path = config(broker) / "topics.json"
    tree = tables.decode(path.read_bytes())
    tree.pop(LOG_END)
    path.write_text(json.dumps(tree))
    broker.open()
    assert broker.broker.topics.get("last")
    assert broker.broker.topics.get("before")


def test_a_store_of_an_older_version_opens_and_goes_into_the_log(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables are the snapshot, and its log has no record of them."""
    broker = make()
    with monkeypatch.context() as patch:
        patch.setattr(LoggedTables, "records", lambda *_: [])
        promise(broker)
        before = promises(broker)
        broker.close()
    for path in config(broker).glob("*.json*"):
        tree = tables.decode(path.read_bytes())
        if tree.pop(LOG_END, None) is not None or tree.pop("tables", None) is not None:
            path.write_bytes(tables.encode(tree))
    broker.open()
    assert broker.store.queue(*TABLES_QUEUE) is None
    assert promises(broker) == before
    broker.store.log_tables()
    before = promises(broker)
    broker.crash()
    lose_tables(broker)
    broker.open()
    assert promises(broker) == before


def test_retention_carries_what_is_still_promised(make: Make) -> None:
    """The files with its records go, many times over."""
    broker = make(**RETENTION)
    promise(broker)
    broker.clock.forward(3_600_000)
    broker.deliver()
    for number in range(6):
        create_topic(broker, f"topic-{number}")
        fill(broker, 2)
        broker.persist()
        age(broker)
        assert broker.broker.retention.clean(NOW_MS)
    carry_tables(broker)
    topics, groups, levels = (
        broker.broker.topics.all(),
        broker.broker.groups.all(),
        broker.store.levels,
    )
    broker.crash()
    lose_tables(broker)
    broker.open()
    assert broker.broker.topics.all() == topics
    assert broker.broker.groups.all() == groups
    assert broker.store.levels == levels
    assert KeyValues(broker.store).orders == {TOPIC: "broker-a:4"}


def test_no_file_goes_before_its_rows_are_on_disk_again(make: Make) -> None:
    """Else a power cut takes the new record, and retention has taken the old one."""
    broker = make(**RETENTION)
    create_topic(broker, TOPIC)
    while broker.store.end < 3 * broker.store.log_file_bytes:
        broker.send(plain("x" * 30_000))
    broker.persist()
    age(broker)
    assert broker.broker.retention.clean(NOW_MS) == 0
    assert broker.store.end > broker.store.durable_end
    broker.sync()
    assert broker.broker.retention.clean(NOW_MS) >= 2


def test_reader_and_check_know_changes_that_are_in_no_file(make: Make) -> None:
    """A kill came before the snapshot: the levels decide when messages are due."""
    broker = make()
    promise(broker)
    broker.sync()
    with StoreReader(broker.config.store_path) as reader:
        assert TOPIC in reader._topics()
    broker.crash()
    assert [each for each in check(broker.config.store_path) if not each.is_leftover] == []
    broker.open()
    broker.crash()


def test_a_record_of_another_form_is_told_and_passed_over(
    make: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later version may write one; this one goes on without it."""
    broker = make()
    create_topic(broker, TOPIC)
    with monkeypatch.context() as patch:
        patch.setattr("rmqlite.kernel.store.tables.logged_tables._body", lambda *_: b'{"x":1}')
        create_topic(broker, "unread")
    broker.sync()
    broker.crash()
    lose_tables(broker)
    broker.open()
    assert broker.broker.topics.get(TOPIC)
    assert broker.broker.topics.get("unread") is None
    assert "a change of a table cannot be read" in caplog.text


def test_nobody_sends_to_the_topic(make: Make) -> None:
    """Whoever could would change every table."""
    broker = make()
    create_topic(broker, TOPIC)
    with pytest.raises(Exception, match="the broker's own"):
        broker.send(plain("x", TABLES_TOPIC))
