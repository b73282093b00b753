"""100,000,000 messages that wait: memory, the start after SIGKILL, lists, and lateness beside them.

    python -m tests.benchmarks.pending --messages 100000000 --folder /var/tmp/pending

Half of them wait at a level and half are timers, whose due times are spread over two years and
scattered over their queue.  The store is made first, in about a minute of a core for each
50,000,000, and has real bytes everywhere: 150 for a record, 20 for its queue entry, 17 for a
timer's row.  The messages have neither keys nor ids, so that the key index is empty.  The rows of
the timers are written in due order; a broker would have needed hours of a slow disk for them.

A broker process of its own then delivers 200 of them a second, half of each kind, while it is asked
for counts and pages; it is killed in the middle of that, and started again.  Its memory is told
apart: what is its own, and pages of files that the system may take back.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from rmqlite.client import AdminClient
from rmqlite.features.changes.requests import PendingFilter, PendingQuery
from rmqlite.features.every import features
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.records.drafts import Draft
from rmqlite.kernel.records.packed import Packed, packed_records
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.routing import record_of
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.timer_index import FILE_NAME, IndexMark, IndexWrite
from rmqlite.kernel.words.clock import elapsed_s, pause_s, wall_ms
from rmqlite.kernel.words.message import Message
from rmqlite.testing import OF_ANY_DISK, BrokerProcess
from tests.support.broker_processes import cpu_s_of
from tests.support.brokers import Heard
from tests.support.clock import FakeClock
from tests.support.sends import BORN_HOST, sending
from tests.support.steps import done

LEVEL: Final = 2
LEVELS: Final = "1s 10d"
DAY_MS: Final = 86_400_000
WAIT_MS: Final = 10 * DAY_MS
"""The delay of LEVEL."""
SENT_BEFORE_MS: Final = 9 * DAY_MS
TOPICS: Final = {LEVEL: "of-level", TIMERS: "of-timers"}
STEP_MS: Final = 10
"""From one due message of each kind to the next one, while it is measured."""
PACED_S: Final = 300
PACED: Final = PACED_S * 1_000 // STEP_MS
TIMERS_MS: Final = 2 * 360 * DAY_MS
BATCH: Final = 8_192
BATCH_MS: Final = 100
"""The store's clock moves so far from one batch to the next."""
SYNC_BATCHES: Final = 512
SCATTER: Final = 38_654_705_711
"""A prime: the timer at queue offset n is number n * SCATTER modulo all, in due order."""
_INSERT: Final = """
    INSERT INTO timers
        WITH RECURSIVE timer(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM timer LIMIT ?)
        SELECT CASE WHEN n < ? THEN ? + n * ? ELSE ? + n * ? END, n * ? % ? FROM timer
"""
_ROW: Final = np.dtype([("size", "=u4"), ("queue", "=u4"), ("due_ms", "=i8")])
KINDS: Final = frozenset({"10d", "timers"})
ASKED: Final = 200
ASKED_S: Final = 10.0
"""Also on a busy machine there must be messages left that are due after the kill."""
PAUSE_S: Final = 0.02
LOOK_S: Final = 0.01
CALL_MS_MAX: Final = 60_000
MEASURED_S: Final = 40.0


# ---- the store


class WaitingStore:
    """A store at `path` in which messages wait; due_ms: when the first ones are due."""

    def __init__(self, path: Path, messages: int) -> None:
        self.count = messages // 2
        self._clock = FakeClock(wall_ms() - SENT_BEFORE_MS)
        self._config = BrokerConfig(
            store_path=path, disk_warning_ratio=100, message_delay_level=LEVELS
        )
        self._step_ms = TIMERS_MS // self.count
        self._make_topics()
        self.due_ms = self._clock.now_ms() + WAIT_MS

    def make(self) -> None:
        self._store = self._open()
        self._append_level()
        self._append_timers()
        self._sync()
        self._index_timers()
        self._store.close({})

    def _open(self) -> MessageStore:
        return MessageStore(self._config, SystemFiles(), self._clock)

    def _make_topics(self) -> None:
        store = self._store = self._open()
        broker = Broker(
            self._config, store, self._clock, Heard(), [each.make for each in features()]
        )
        done(sending(broker, [Message(topic, b"x") for topic in TOPICS.values()]))
        self._sync()
        store.close(broker.tables())

    def _sync(self) -> None:
        job = self._store.begin_sync()
        job.run()
        self._store.synced(job)

    def _template(self, wait_queue: int, messages: int) -> Packed:
        draft = Draft(TOPICS[wait_queue], 0, b"", b"x", self._clock.now_ms(), BORN_HOST)
        level, due_ms = (wait_queue, 0) if wait_queue > 0 else (0, self.due_ms)
        record = record_of(draft, level, due_ms, cluster="", store_host=BORN_HOST)
        return packed_records([record] * messages)

    def _append(self, template: Packed, data: bytearray, rows: bytes) -> None:
        packed = Packed(data, rows, template.keys, template.queues, template.waiting)
        self._store.append_packed([packed])

    def _append_level(self) -> None:
        one, many = self._template(LEVEL, 1), self._template(LEVEL, BATCH)
        paced = min(PACED, self.count)
        for _ in range(paced):
            self._append(one, bytearray(one.data), one.rows)
            self._clock.forward(STEP_MS)
        # So that no others are due while it is measured.
        self._clock.forward(DAY_MS)
        for at in range(paced, self.count, BATCH):
            if self.count - at < BATCH:
                many = self._template(LEVEL, self.count - at)
            self._append(many, bytearray(many.data), many.rows)
            self._clock.forward(BATCH_MS)
            if at // BATCH % SYNC_BATCHES == 0:
                self._sync()

    def _append_timers(self) -> None:
        template = self._template(TIMERS, BATCH)
        for at in range(0, self.count, BATCH):
            if self.count - at < BATCH:
                template = self._template(TIMERS, self.count - at)
            number = np.arange(at, at + len(template), dtype=np.int64) * (SCATTER % self.count)
            data, rows = _due_at(template, self._due_ms(number % self.count), self.due_ms)
            self._append(template, data, rows)
            self._clock.forward(BATCH_MS)
            if at // BATCH % SYNC_BATCHES == 0:
                self._sync()

    def _due_ms(self, number: np.ndarray) -> np.ndarray:
        """When timers are due, by their number in due order."""
        late = DAY_MS + (number - PACED) * self._step_ms
        return self.due_ms + np.where(number < PACED, number * STEP_MS, late)

    def _index_timers(self) -> None:
        store = self._store
        queue = store.queue(*queue_of(TIMERS))
        assert queue is not None
        last = queue.entry(queue.max_offset - 1)
        assert last is not None
        store.timers.make_folder()
        mark = IndexMark(queue.max_offset, last.physical_offset, last.tags_code, store.end)
        IndexWrite(store.timers, 0, (), (), mark).run()
        store.timers.close()
        path = self._config.store_path / "timers" / FILE_NAME
        with closing(sqlite3.connect(path, isolation_level=None)) as table:
            table.execute("PRAGMA journal_mode=OFF")
            table.execute("PRAGMA synchronous=OFF")
            back = pow(SCATTER, -1, self.count)
            late_ms = self.due_ms + DAY_MS - PACED * self._step_ms
            table.execute(
                _INSERT,
                (self.count, PACED, self.due_ms, STEP_MS, late_ms, self._step_ms, back, self.count),
            )


def _due_at(template: Packed, due_ms: np.ndarray, before_ms: int) -> tuple[bytearray, bytes]:
    """The bytes and rows of a template with these due times, instead of that which all have."""
    data, rows = bytearray(template.data), bytearray(template.rows)
    records = np.frombuffer(data, np.uint8).reshape(len(due_ms), -1)
    last = data.index(b"%d" % before_ms) + 12
    for digit in range(13):
        records[:, last - digit] = due_ms // 10**digit % 10 + ord("0")
    np.frombuffer(rows, _ROW)["due_ms"] = due_ms
    return data, bytes(rows)


# ---- the broker


def tell(name: str, *values: str) -> None:
    print(f"{name:52}", *[f"{each:>20}" for each in values], flush=True)


def memory(broker: BrokerProcess, when: str) -> None:
    """Resident memory, and the part of it that is the process's own."""
    lines = Path(f"/proc/{broker.pid}/smaps_rollup").read_text().splitlines()[1:]
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    own = kib["Pss_Anon"] / 1024
    tell(f"memory {when}", f"{kib['Rss'] / 1024:.0f} MiB", f"own {own:.0f} MiB")


def spread(name: str, ask: Callable[[], object]) -> None:
    """The shortest time of many, which a busy machine changes least, the median and the p99."""
    times: list[float] = []
    until_s = elapsed_s() + ASKED_S
    while len(times) < ASKED and elapsed_s() < until_s:
        began_s = elapsed_s()
        ask()
        times.append((elapsed_s() - began_s) * 1000)
        pause_s(PAUSE_S)
    times.sort()
    p50, p99 = times[len(times) // 2], times[len(times) * 99 // 100]
    tell(name, f"least {times[0]:.1f} ms", f"p50 {p50:.1f} ms", f"p99 {p99:.1f} ms")


def questions(admin: AdminClient, due_ms: int) -> dict[str, Callable[[], object]]:
    list_pending = admin.schedule.list_pending
    later = PendingFilter(due_from_ms=due_ms + TIMERS_MS // 2)
    cursor = list_pending(PendingQuery(later)).cursor
    return {
        "count": admin.schedule.count_pending,
        "status": admin.broker_status,
        "page of 100, the first": lambda: list_pending(PendingQuery()),
        "page of 100, a year later": lambda: list_pending(PendingQuery(later)),
        "page of 100, by a cursor": lambda: list_pending(PendingQuery(later, cursor)),
    }


def late(admin: AdminClient, when: str) -> None:
    for each in admin.broker_status().levels:
        if each.delivered:
            tell(
                f"late {when}, {each.delay}: {each.delivered:,}",
                f"p50 {each.lateness_p50_ms} ms",
                f"p99 {each.lateness_p99_ms} ms",
                f"most {each.lateness_max_ms} ms",
            )


def start(broker: BrokerProcess, name: str, kinds: frozenset[str]) -> None:
    """Start it: wall time and CPU until it answers, and until it has delivered of each kind."""
    began_s = elapsed_s()
    broker.start()
    waits = set(kinds)
    tell(f"{name}, ready", f"{elapsed_s() - began_s:.2f} s", f"CPU {cpu_s_of(broker.pid):.2f} s")
    with AdminClient(broker.endpoint, timeout_ms=CALL_MS_MAX) as admin:
        while waits:
            there = {each.delay for each in admin.broker_status().levels if each.delivered} & waits
            took, cpu = elapsed_s() - began_s, cpu_s_of(broker.pid)
            for kind in there:
                tell(f"{name}, first of {kind}", f"{took:.2f} s", f"CPU {cpu:.2f} s")
            waits -= there
            pause_s(LOOK_S)


def sizes(store: Path) -> None:
    for name in ("commitlog", "consumequeue", "timers", "config", "index"):
        files = [each.stat() for each in (store / name).rglob("*") if each.is_file()]
        tell(f"bytes on disk of {name}", f"{sum([each.st_blocks for each in files]) * 512:,}")


def measure(folder: Path) -> None:
    broker = BrokerProcess(folder, OF_ANY_DISK | {"messageDelayLevel": LEVELS}, is_forked=False)
    # Nobody has noted yet that the queue of the level is in due order.
    start(broker, "the first start, which reads a queue", frozenset())
    broker.stop()
    start(broker, "start after a stop", frozenset())
    memory(broker, "after it")
    with AdminClient(broker.endpoint, timeout_ms=CALL_MS_MAX) as admin:
        waiting = sum([each.pending for each in admin.schedule.count_pending()])
        status = admin.broker_status()
        due_ms = max([each.next_due_ms for each in status.levels])
        tell("messages that wait", f"{waiting:,}")
        # To the first ones, not before them: a jump of the clock is noticed within a second only.
        broker.advance(seconds=(due_ms - status.now_ms) / 1000)
        began_s = elapsed_s()
        for name, ask in questions(admin, due_ms).items():
            spread(name, ask)
        pause_s(max(0.0, MEASURED_S - (elapsed_s() - began_s)))
        late(admin, "meanwhile")
        memory(broker, "meanwhile")
    broker.kill()
    start(broker, "start after SIGKILL", KINDS)
    memory(broker, "after it")
    sizes(broker.store)
    broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--messages", type=int, default=100_000_000)
    parser.add_argument("--folder", type=Path, help="where the store is, or is made; it stays")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        if not (folder / "store").exists():
            began_s = elapsed_s()
            WaitingStore(folder / "store", arguments.messages).make()
            tell("(the store, made without a broker)", f"{elapsed_s() - began_s:.0f} s")
        measure(folder)


if __name__ == "__main__":
    main()
