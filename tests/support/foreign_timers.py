"""Timers as RocketMQ 5 writes them into a store, and which of them are pending here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rmqlite.kernel.records.record import COMMITTED, OVERHEAD_BYTES, NewRecord
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.message import REAL_QID, REAL_TOPIC, UNIQ_KEY
from rmqlite.kernel.words.names import HALF_TOPIC, TIMER_TOPIC
from rmqlite.store_tools.reader import MessageFilter, StoreReader
from tests.support.brokers import small_config
from tests.support.clock import FakeClock
from tests.support.files import QuickFiles
from tests.support.golden import INDEX
from tests.support.looking import untouched
from tests.support.stores import StoreUnderTest, new_record

OUT_MS = 1_600_000_000_000


def opened(root: Path) -> MessageStore:
    return MessageStore(small_config(root, **INDEX), QuickFiles(), FakeClock())


def due_times(store: MessageStore) -> dict[int, int]:
    """Of all that is pending: queue offset and due time."""
    queue = store.queue(TIMER_TOPIC, 0)
    assert queue is not None
    waiting = store.progress.of(TIMERS).open_between(queue.min_offset, queue.max_offset)
    return {offset: queue.read(offset, 1)[0].tags_code for offset in waiting}


def seen(root: Path) -> dict[int, int]:
    """The same, without opening it."""
    with untouched(root), StoreReader(root) as reader:
        messages = list(reader.messages(MessageFilter(topic=TIMER_TOPIC)))
        waits = {each.queue_offset: reader.waiting(each) for each in messages}
        counted = [each.pending for each in reader.overview().levels() if each.level == TIMERS]
    found = {
        offset: wait.deliver_at_ms for offset, wait in waits.items() if wait and wait.is_pending
    }
    assert counted == [len(found)]
    return found


class Foreign:
    """A store in which RocketMQ writes, and that is opened here afterwards."""

    def __init__(self, under_test: StoreUnderTest) -> None:
        self.under_test = under_test
        self.properties: dict[str, str] = {}

    def timer(self, key: str = "k", topic: str = "orders", **more: Any) -> NewRecord:
        named = {UNIQ_KEY: key} if key else {}
        own = {"TIMER_OUT_MS": str(OUT_MS), REAL_TOPIC: topic, REAL_QID: "0"}
        properties = named | own | {name: str(value) for name, value in more.items()}
        return new_record(f"body of {key}", TIMER_TOPIC, 0, properties=properties)

    def copy(self, key: str = "k", times: int = 1) -> NewRecord:
        """The timer after a roll."""
        return self.timer(key, TIMER_ROLL_TIMES=times)

    def tombstone(self, named: str, **more: Any) -> NewRecord:
        return self.timer("t", TIMER_DEL_UNIQKEY=named, **more)

    def delivered(self, key: str = "k", **more: Any) -> NewRecord:
        return self.timer(key, **more)._replace(topic="orders")

    def first_end(self) -> int:
        """Where the first timer ends."""
        first = self.timer()
        parts = (first.body, first.topic, first.properties.encoded)
        return self.under_test.store.end + OVERHEAD_BYTES + sum(map(len, parts))

    def commit(self) -> dict[str, Any]:
        """RocketMQ's commit of a half message that lies directly behind the first timer."""
        return {"topic": HALF_TOPIC, "sys_flag": COMMITTED, "completes": self.first_end()}

    def pending(self, *records: NewRecord) -> list[int]:
        """The queue offsets that are pending after these were written."""
        self.under_test.append(*records)
        self.under_test.sync()
        self.under_test.crash()
        (self.under_test.root / "lock").write_bytes(b"lock")
        looked = seen(self.under_test.root)
        self.under_test.open()
        assert looked == due_times(self.under_test.store)
        return sorted(looked)
