"""A slave of RocketMQ, as far as the port for its log sees one; and a port to connect it to."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rmqlite.features.ha.frames import HEADER, REPORT
from rmqlite.features.ha.port import HaPort
from rmqlite.kernel.records.queue_entry import ENTRY
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.disk.segments import Segments
from rmqlite.kernel.store.log.log_walk import LogWalk
from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.broker_processes import free_port
from tests.support.brokers import BrokerUnderTest, small_config
from tests.support.loops import run_with

HOST = "127.0.0.1"
QUEUE_FILE_BYTES = 6_000


class FakeSlave:
    """log: what it was sent, from the physical offset `begin` on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.begin = -1
        self.log = bytearray()
        self.frames: list[tuple[int, int]] = []
        """Physical offset and size of each."""

    @property
    def end(self) -> int:
        return max(0, self.begin) + len(self.log)

    def report(self, end: int | None = None) -> None:
        self.writer.write(REPORT.pack(self.end if end is None else end))

    async def frame(self) -> int:
        """Take the next frame; how many bytes it brings.  Raises IncompleteReadError at the end."""
        at, size = HEADER.unpack(await self.reader.readexactly(HEADER.size))
        self.frames.append((at, size))
        if self.begin < 0:
            self.begin = at
        assert at == self.end, "a slave closes the connection at any other offset"
        self.log += await self.reader.readexactly(size)
        return int(size)

    async def follow(self, end: int) -> None:
        """Take frames up to a physical offset, and report each."""
        while self.end < end:
            await self.frame()
            self.report()

    async def is_closed(self) -> bool:
        """True once the master has ended the connection; what it sends until then is dropped."""
        try:
            while await self.reader.read(1 << 16):
                pass
        except ConnectionError:
            pass
        return True


class Slaves:
    """A port that serves the log of a broker, to slaves of the test."""

    def __init__(self, under_test: BrokerUnderTest, **settings: Any) -> None:
        self._config = small_config(
            under_test.config.store_path, ha_listen_port=free_port(), **settings
        )
        broker = under_test.broker
        broker.parts = replace(broker.parts, config=self._config)
        self.port = HaPort(broker)

    @asynccontextmanager
    async def slave(self, end: int | None = None) -> AsyncIterator[FakeSlave]:
        """A connected slave; end: of its log, which it reports."""
        port = self._config.ha_listen_port
        reader, writer = await asyncio.open_connection(HOST, port)
        made = FakeSlave(reader, writer)
        if end is not None:
            made.begin = end if end else -1
            made.report(end)
        try:
            yield made
        finally:
            writer.close()

    def troubles(self) -> list[str]:
        return [each.trouble for each in self.port.status() if each.trouble]


def with_slaves(
    under_test: BrokerUnderTest, scenario: Callable[[Slaves], Awaitable[None]], **settings: Any
) -> None:
    """Run a scenario in a loop whose time is the broker's clock."""

    async def main() -> None:
        slaves = Slaves(under_test, **settings)
        serving = asyncio.create_task(slaves.port.serve_slaves())
        await asyncio.sleep(0)
        try:
            await scenario(slaves)
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)

    run_with(under_test.clock, main())


def copied_log(port: int, end: int) -> bytes:
    """The log up to there, as a new slave gets it from the port of a broker process."""
    log = bytearray()
    with socket.create_connection((HOST, port)) as connection, connection.makefile("rb") as file:
        connection.sendall(REPORT.pack(0))
        while len(log) < end:
            at, size = HEADER.unpack(file.read(HEADER.size))
            assert at == len(log)
            log += file.read(size)
            connection.sendall(REPORT.pack(len(log)))
    return bytes(log)


def slaves_store(root: Path, log: bytes, file_bytes: int, tables: Mapping[str, str]) -> None:
    """Make the store of a slave: the log, RocketMQ's lock, its queues, and tables under config/.

    Its queues are those of a slave whose messageDelayLevel is another one: wrong due times.
    """
    for begin in range(0, len(log), file_bytes):
        path = root / "commitlog" / f"{begin:020d}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(log[begin : begin + file_bytes].ljust(file_bytes, b"\0"))
    (root / "lock").write_bytes(b"lock")
    (root / "config").mkdir()
    for name, text in tables.items():
        (root / "config" / name).write_text(text)
    walked = LogWalk(Segments(SystemFiles(), root / "commitlog", file_bytes), 0, len(log))
    queues: dict[tuple[str, int], bytearray] = {}
    for window in walked:
        for head in window.heads:
            is_level = head.topic == SCHEDULE_TOPIC
            tags = head.store_timestamp_ms + 1_000 if is_level else 0
            entry = ENTRY.pack(head.physical_offset, head.size, tags)
            queues.setdefault((head.topic, head.queue_id), bytearray()).extend(entry)
    for (topic, queue_id), entries in queues.items():
        folder = root / "consumequeue" / topic / str(queue_id)
        folder.mkdir(parents=True)
        for begin in range(0, len(entries), QUEUE_FILE_BYTES):
            part = bytes(entries[begin : begin + QUEUE_FILE_BYTES])
            data = part.ljust(QUEUE_FILE_BYTES, b"\0")
            (folder / f"{begin:020d}").write_bytes(data)
