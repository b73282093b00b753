"""Stores that RocketMQ 4.9.8 wrote: they open here, and every message is there.

rocketmq-4.9.8.tar.xz holds `clean` (shut down), `killed` (copied while running) and
`expected.jsonl`: every queue entry of `clean` with its record, as RocketMQ decoded it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rmqlite.kernel.config.table_shapes import ConsumerOffsetsTable, TopicsTable
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.store_tools.check import check
from tests.support.brokers import LONG_BODIES, small_config
from tests.support.clock import FakeClock
from tests.support.files import QuickFiles
from tests.support.golden import Row, rows
from tests.support.stores import contents, new_record

ROW_FIELDS = {
    "physicalOffset": "physical_offset",
    "size": "store_size",
    "flag": "flag",
    "sysFlag": "sys_flag",
    "bornTimestamp": "born_timestamp_ms",
    "storeTimestamp": "store_timestamp_ms",
    "reconsumeTimes": "reconsume_times",
    "preparedTransactionOffset": "prepared_transaction_offset",
    "topic": "topic",
    "queueId": "queue_id",
}
"""The names in expected.jsonl, and ours."""


@contextmanager
def opened(root: Path) -> Iterator[MessageStore]:
    store = MessageStore(small_config(root, **LONG_BODIES), QuickFiles(), FakeClock())
    try:
        yield store
    finally:
        store.release()


def expected(golden: Path) -> dict[tuple[str, int], list[Row]]:
    queues: dict[tuple[str, int], list[Row]] = {}
    for row in rows(golden):
        queues.setdefault((row["topic"], row["queueId"]), []).append(row)
    return queues


def compare(store: MessageStore, rows: list[Row]) -> None:
    queue = store.queue(rows[0]["topic"], rows[0]["queueId"])
    assert queue is not None
    entries = queue.read(queue.min_offset, 1 << 20)
    assert [each["queueOffset"] for each in rows] == list(range(queue.min_offset, queue.max_offset))
    for entry, row in zip(entries, rows, strict=True):
        assert (*entry,) == (row["physicalOffset"], row["size"], row["tagsCode"])
        message = store.read_message(entry.physical_offset, entry.size)
        assert {name: getattr(message, ours) for name, ours in ROW_FIELDS.items()} == {
            name: row[name] for name in ROW_FIELDS
        }
        assert message.properties == row["properties"]
        assert (message.born_host, message.store_host) == (
            row["bornHost"].removeprefix("/"),
            row["storeHost"].removeprefix("/"),
        )
        assert hashlib.md5(message.body).hexdigest() == row["storedBodyMd5"]


def test_every_message_of_a_clean_store_is_there(golden: Path) -> None:
    """P8: each entry and each field of each record, as RocketMQ itself decoded them."""
    queues = expected(golden)
    with opened(golden / "clean") as store:
        held = {key for key in store.queue_keys() if (q := store.queue(*key)) and q.max_offset}
        assert held == set(queues)
        for rows in queues.values():
            compare(store, rows)


def test_queues_made_again_are_rocketmqs_own(golden: Path) -> None:
    """Byte by byte: transactions, batches, retries and schedule included."""
    root = golden / "clean"
    before = contents(root / "consumequeue")
    for path in sorted((root / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with opened(root):
        pass
    after = contents(root / "consumequeue")
    with_entries = {name: data for name, data in before.items() if data and any(data)}
    assert {name: data for name, data in after.items() if data} == with_entries


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_opening_changes_neither_log_nor_queues(golden: Path, which: str) -> None:
    """RocketMQ can go on with it."""
    root = golden / which
    before = {name: contents(root / name) for name in ("commitlog", "consumequeue")}
    for _ in range(2):
        with opened(root):
            pass
        for name, was in before.items():
            now = contents(root / name)
            assert {k: v for k, v in now.items() if v and any(v)} == {
                k: v for k, v in was.items() if v and any(v)
            }


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_a_store_of_rocketmqs_is_sound(golden: Path, which: str) -> None:
    """The checker knows RocketMQ's ways; before and after we have opened it."""
    assert list(check(golden / which)) == []
    with opened(golden / which):
        pass
    assert list(check(golden / which)) == []


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_messages_are_appended_behind_rocketmqs(golden: Path, which: str) -> None:
    """Queue offsets go on, and the store opens again with them."""
    root = golden / which
    with opened(root) as store:
        queue = store.queue("orders", 2)
        assert queue is not None
        following = queue.max_offset
        written = store.append([new_record("x" * 100_000, queue_id=2)] * 15)
        assert [each.queue_offset for each in written] == list(range(following, following + 15))
        # Into the next file: RocketMQ's two have room for less.
        assert written[-1].physical_offset > 2 << 20
        store.close({})
    assert list(check(root)) == []
    with opened(root) as store:
        assert store.read_message(written[-1].physical_offset).body == b"x" * 100_000


def test_what_rocketmq_delivered_is_not_delivered_again(golden: Path) -> None:
    """Its delayOffset.json says how far it came in levels 1 to 5; the rest is pending."""
    with opened(golden / "clean") as store:
        assert store.progress.delay_offsets() == {1: 6, 2: 6, 3: 12, 4: 10, 5: 8}
        pending = {
            queue_id + 1: queue.max_offset - store.progress.of(queue_id + 1).below
            for topic, queue_id in store.queue_keys()
            if topic == SCHEDULE_TOPIC and (queue := store.queue(topic, queue_id))
        }
        sent_back_last = {5: 2}
        never_due = {**dict.fromkeys(range(6, 18), 6), 18: 7}
        assert {k: v for k, v in pending.items() if v} == sent_back_last | never_due


@pytest.mark.parametrize("which", ["clean", "killed"])
def test_rocketmqs_tables_are_read(golden: Path, which: str) -> None:
    """Bare integer keys, its own names."""
    with opened(golden / which) as store:
        offsets = store.load_table("consumerOffset.json", ConsumerOffsetsTable)
        topics = store.load_table("topics.json", TopicsTable)
    assert offsets is not None
    assert set(offsets.offset_table["orders@order-closer"]) == {0, 1, 2, 3}
    assert topics is not None
    assert topics.topic_config_table["orders"].write_queue_nums == 4
