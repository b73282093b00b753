"""A broker on real files with a clock moved by hand: everything but gRPC and waiting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rmqlite.features.every import features
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.pulling import Pulled
from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.store.disk.files import Files, SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.protocols.native.bytes.messages import PullResult, SendResult
from tests.support.clock import FakeClock
from tests.support.disk import SimulatedDisk
from tests.support.files import QuickFiles
from tests.support.sends import sending
from tests.support.steps import done

CALL_MESSAGES = 500
BODY_BYTES_MAX: Final = 1 << 16
LONG_BODIES: Final[dict[str, Any]] = {
    "mapped_file_size_commit_log": 1 << 20,
    "max_message_bytes": 1 << 19,
}
"""For tests with longer ones; every opening of a store, and every check, reads its whole files."""


@dataclass
class Heard:
    """A listener that remembers what it was told."""

    appended_to: list[tuple[str, int]] = field(default_factory=list)
    sooner: list[int] = field(default_factory=list)
    """The wait queues whose earliest message was due earlier than before, each time."""

    def appended(self, topic: str, queue_id: int) -> None:
        self.appended_to.append((topic, queue_id))

    def due_sooner(self, wait_queue: int) -> None:
        self.sooner.append(wait_queue)


def small_config(folder: Path, **changes: Any) -> BrokerConfig:
    """Small files, so that tests cross their ends; everything else is the default."""
    values: dict[str, Any] = {
        "store_path": folder,
        "mapped_file_size_commit_log": 1 << 17,
        "mapped_file_size_consume_queue": 4_000,
        "max_message_bytes": BODY_BYTES_MAX,
        "max_hash_slots": 100,
        "max_index_entries": 500,
        # However full the disk of whoever runs the tests.
        "disk_warning_ratio": 100,
        **changes,
    }
    return BrokerConfig(**values)


class BrokerUnderTest:
    """Open, use, crash, open again; synced after every call, as a server does."""

    def __init__(
        self,
        folder: Path,
        *,
        clock: FakeClock | None = None,
        files: Files | None = None,
        **changes: Any,
    ) -> None:
        self.config = small_config(folder, **changes)
        self.clock = clock or FakeClock()
        self.files = files or QuickFiles()
        self.heard = Heard()
        self.open()

    def open(self, **changes: Any) -> None:
        """Open the store, with other settings if any are given."""
        if changes:
            self.config = small_config(self.config.store_path, **changes)
        # A test may give the next broker another clock while this one is still open.
        self._clock_of_broker = self.clock
        self.store = MessageStore(self.config, self.files, self.clock)
        self.broker = Broker(
            self.config, self.store, self.clock, self.heard, [each.make for each in features()]
        )

    def sync(self) -> None:
        job = self.store.begin_sync()
        job.run()
        self.store.synced(job)

    def persist(self) -> None:
        self.store.persist(self.broker.tables())

    def tables(self) -> dict[str, Tree]:
        """What the broker would persist now."""
        return {name: snapshot() for name, snapshot in self.broker.tables().items()}

    def crash(self) -> None:
        """The process is gone: nothing is persisted, what was written stays."""
        self.store.release()

    def close(self) -> None:
        self.store.close(self.broker.tables())

    def restart(self, **changes: Any) -> None:
        self.close()
        self.open(**changes)

    def send(self, *messages: Message, queue_id: int = 0) -> tuple[SendResult, ...]:
        """In calls of CALL_MESSAGES."""
        results: list[SendResult] = []
        for begin in range(0, len(messages) or 1, CALL_MESSAGES):
            part = messages[begin : begin + CALL_MESSAGES]
            results += done(sending(self.broker, part, queue_id=queue_id))
        self.sync()
        return tuple(results)

    def deliver(self) -> int:
        """Deliver everything that is due now; how many messages."""
        before = self.broker.schedule.delivered
        while True:
            due_ms = self.deliver_slice()
            if due_ms is None or due_ms > self._clock_of_broker.now_ms():
                break
        self.sync()
        return self.broker.schedule.delivered - before

    def deliver_slice(self) -> int | None:
        """Deliver a slice of the wait queue that has the earliest message of all.

        Returns when there is more to deliver, None if nothing waits.
        """
        if times := self._due_times():
            self.broker.deliver(min(times)[1])
        return self.next_due_ms()

    def next_due_ms(self) -> int | None:
        """When a wait queue that does not rest has a message that may be delivered."""
        paced_ms = self.broker.schedule.paced_until_ms()
        times = self._due_times()
        return max(min(times)[0], paced_ms) if times else None

    def _due_times(self) -> list[tuple[int, int]]:
        """When each wait queue with messages has something to deliver."""
        return [
            (max(due_ms, known.rests_until_ms), known.id)
            for known in self.broker.wait_queues
            if (due_ms := known.next_due_ms()) is not None
        ]

    def pull(
        self, topic: str, queue_id: int = 0, queue_offset: int = 0, group: str = "readers"
    ) -> PullResult:
        return decoded(done(self.broker.pull(PullRequest(group, topic, queue_id, queue_offset))))

    def messages(self, topic: str, queue_id: int = 0) -> Sequence[StoredMessage]:
        """Everything in a queue."""
        found: list[StoredMessage] = []
        offset = 0
        while True:
            result = self.pull(topic, queue_id, offset)
            found += result.messages
            if result.next_offset == offset:
                return found
            offset = result.next_offset


def decoded(pulled: Pulled) -> PullResult:
    """What a client makes of an answer."""
    bounds = (pulled.status, pulled.next_offset, pulled.min_offset, pulled.max_offset)
    return PullResult(*bounds, tuple([record.to_message() for record in pulled.records]))


class BrokerOnDisk(BrokerUnderTest):
    """A broker on a simulated disk."""

    def __init__(self, config: BrokerConfig, disk: SimulatedDisk, clock: FakeClock) -> None:
        self.config = config
        self.clock = clock
        self.files = SystemFiles(disk)
        self.heard = Heard()
        self.open()
