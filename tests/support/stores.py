"""A message store with tiny files and a clock moved by hand: open, write, crash, compare."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from rmqlite.kernel.records.drafts import Draft, fresh
from rmqlite.kernel.records.queue_entry import Entry
from rmqlite.kernel.records.record import NewRecord, Written
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.store.disk.files import Files
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables import tables
from rmqlite.kernel.words.message import (
    DELAY,
    KEYS,
    REAL_QID,
    REAL_TOPIC,
    TAGS,
    TIMER_EXACT,
    TIMER_OUT_MS,
    encode_properties,
    pack_host,
)
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from rmqlite.store_tools.check import Finding, check
from tests.support.brokers import small_config
from tests.support.clock import FakeClock
from tests.support.files import QuickFiles

HOST = pack_host("10.0.0.1:1234")
STORE_HOST = pack_host("10.0.0.2:10911")
LOG_FILE_BYTES = 4096
QUEUE_FILE_BYTES = 200


def new_record(
    body: bytes | str, topic: str = "orders", queue_id: int = 0, **changes: Any
) -> NewRecord:
    """A plain record; properties: pairs, or a property string."""
    raw = body.encode() if isinstance(body, str) else body
    given = changes.pop("properties", {})
    properties = given if isinstance(given, bytes) else encode_properties(given)
    return fresh(Draft(topic, queue_id, properties, raw, 1, HOST), STORE_HOST)._replace(**changes)


def scheduled(body: bytes | str, level: int) -> NewRecord:
    """A record that waits at a level for its delivery to the first queue of orders."""
    properties = {DELAY: str(level), REAL_TOPIC: "orders", REAL_QID: "0"}
    return new_record(body, SCHEDULE_TOPIC, level - 1, properties=properties)


def timed(body: bytes | str, due_ms: int) -> NewRecord:
    """A record that waits for an instant, for its delivery to the first queue of orders."""
    real = {TIMER_OUT_MS: str(due_ms), REAL_TOPIC: "orders", REAL_QID: "0", TIMER_EXACT: "1"}
    return new_record(body, *queue_of(TIMERS), properties=real)


def tagged(body: bytes | str, tags: str, topic: str = "orders", queue_id: int = 0) -> NewRecord:
    """A record with tags, and with these as its key."""
    return new_record(body, topic, queue_id, properties={TAGS: tags, KEYS: tags})


class Content(bytes):
    """What is in a file.  A comparison that fails prints length and digest, not the bytes."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes, SHA-256 {sha256(self).hexdigest()[:16]}>"


def contents(folder: Path) -> dict[str, Content | None]:
    """Every name below a folder with its content; None for a folder."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else Content(path.read_bytes())
        for path in sorted(folder.rglob("*"))
    }


class StoreUnderTest:
    """Several files are crossed within a few records; levels are 1s 5s 10s."""

    def __init__(
        self,
        folder: Path,
        *,
        files: Files | None = None,
        clock: FakeClock | None = None,
        log_file_bytes: int = LOG_FILE_BYTES,
        queue_file_bytes: int = QUEUE_FILE_BYTES,
        levels: str = "1s 5s 10s",
    ) -> None:
        self.root = folder
        self.files = files or QuickFiles()
        self.clock = clock or FakeClock()
        self.log_file_bytes = log_file_bytes
        self.queue_file_bytes = queue_file_bytes
        self.open(levels)

    def open(self, levels: str = "") -> None:
        if levels:
            self.config = small_config(self.root, message_delay_level=levels).model_copy(
                update={
                    "mapped_file_size_commit_log": self.log_file_bytes,
                    "mapped_file_size_consume_queue": self.queue_file_bytes,
                    "max_hash_slots": 7,
                    "max_index_entries": 9,
                }
            )
        self.store = MessageStore(self.config, self.files, self.clock)

    def append(self, *records: NewRecord) -> list[Written]:
        return self.store.append(records)

    def send(self, *bodies: bytes | str, topic: str = "orders", queue_id: int = 0) -> list[Written]:
        return self.append(*(new_record(body, topic, queue_id) for body in bodies))

    def deliver(self, level: int, *written: Written, topic: str = "orders") -> list[Written]:
        """Complete scheduled records of a wait queue as the broker does: in one batch, now."""
        said = {TIMER_OUT_MS: "1"} if level == TIMERS else {DELAY: str(level)}
        records = [
            new_record(
                self.store.read_message(each.physical_offset).body,
                topic,
                properties=said,
                completes=each.physical_offset + each.size,
            )
            for each in written
        ]
        delivered = self.append(*records)
        for each in written:
            self.complete(level, each.queue_offset, topic)
        return delivered

    def complete(self, level: int, queue_offset: int, topic: str = "orders") -> None:
        """Tell the store what a record that was appended has completed."""
        progress = self.store.progress
        is_open = progress.of(level).next_open(queue_offset) == queue_offset
        progress.complete(level, queue_offset, queue_offset + 1, {topic: 1} if is_open else {})

    def fill(self) -> None:
        """A bit of everything: several files, tags, levels delivered out of order, progress."""
        for number in range(12):
            self.append(tagged(f"order {number}" * 20, f"tag-{number % 3}", queue_id=number % 2))
            self.clock.forward(7)
        waiting = [self.append(scheduled(f"later {n}", 1 + n % 3))[0] for n in range(18)]
        self.clock.forward(5_000)
        self.deliver(1, *waiting[0:9:3])
        self.deliver(2, waiting[1], waiting[7])
        due_ms = [self.clock.now_ms() + at_ms for at_ms in (9_000, 500, 86_400_000, 500)]
        timers = [self.append(timed(f"timer {n}", at_ms))[0] for n, at_ms in enumerate(due_ms)]
        self.clock.forward(500)
        self.deliver(TIMERS, timers[1], timers[3])
        self.sync()

    def sync(self) -> None:
        job = self.store.begin_sync()
        job.run()
        self.store.synced(job)

    def persist(self) -> None:
        self.store.persist({})

    def close(self) -> None:
        self.store.close({})

    def crash(self) -> None:
        """The process is gone; what was written stays."""
        self.store.release()

    def restart(self, levels: str = "") -> None:
        self.close()
        self.open(levels)

    def bodies(self, topic: str = "orders", queue_id: int = 0) -> list[bytes]:
        """What a consumer would read from a queue."""
        queue = self.store.queue(topic, queue_id)
        if queue is None:
            return []
        return [
            self.store.read_message(entry.physical_offset, entry.size).body
            for entry in queue.read(queue.min_offset, 1 << 20)
        ]

    def view(self) -> dict[str, object]:
        """All that a broker sees of the store; equal views are equal stores."""
        queues: dict[str, tuple[int, list[Entry]]] = {}
        for topic, queue_id in sorted(self.store.queue_keys()):
            queue = self.store.queue(topic, queue_id)
            if queue is not None and queue.max_offset:
                entries = queue.read(queue.min_offset, 1 << 20)
                queues[f"{topic}-{queue_id}"] = (queue.min_offset, entries)
        progress = self.store.progress.to_json()
        return {
            "end": self.store.end,
            "queues": queues,
            "completed": {level: ranges for level, ranges in progress.items() if ranges},
            "newest": self.store.newest_timestamp_ms,
            "index": {
                tag: list(self.store.index.find("orders", tag)) for tag in ("tag-0", "tag-1")
            },
        }

    def findings(self) -> list[Finding]:
        return findings(self.root)

    def table(self, name: str) -> tables.Tree:
        return tables.decode((self.root / "config" / name).read_bytes())

    def write_table(self, name: str, tree: tables.Tree) -> None:
        (self.root / "config" / name).write_text(json.dumps(tree))

    def log_files(self) -> list[Path]:
        return sorted((self.root / "commitlog").iterdir())


def findings(root: Path) -> list[Finding]:
    """What check says of a store with tiny files."""
    return list(check(root))
