"""haListenPort: RocketMQ's slaves copy the log of this broker, as a copy for a disaster.

A slave acknowledges what its disk may not have yet, and can cut nothing off its log.  So it gets
only what this broker takes back in no case, nobody waits for it, and it never counts for
inSyncReplicas.  What it reports is believed only as far as it was sent.

Nobody logs in at this port: only the addresses of brokersAllowed may come.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from typing import Final

from rmqlite.features.ha.frames import BEAT_S, HEADER, REPORT, SILENCE_S, frame_size
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.addresses import parse_allowed
from rmqlite.kernel.process.protocol_server import bound_socket, taking
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.shared.tls import listen

SLAVES_MAX: Final = 4
"""Connections; a further one takes the place of the oldest that has reported nothing yet."""
HOSTS_MAX: Final = 16
"""Addresses of slaves that have gone, and what is known of them."""
LOOK_S: Final = 0.05
"""How long a slave that has all waits until it is looked whether there is more."""
log = logging.getLogger(__name__)


class SlaveRefused(Exception):
    """Its connection is closed, with this reason in our log and status."""


class Slave:
    """A connection.  sent: where its next frame begins, -1: it has not reported yet.
    acked: its last report."""

    def __init__(self, host: str, port: int, task: asyncio.Task[None]) -> None:
        self.host = host
        self.peer = host_text(host, port)
        self.task = task
        self.sent = self.acked = -1
        self.behind_since_ms = 0


class HaPort:
    """The port, of a broker that is a master."""

    def __init__(self, broker: Broker) -> None:
        """Take the port; nobody is served yet.  Raises InvalidValue."""
        self._config = config = broker.parts.config
        self._store: MessageStore = broker.store
        self._clock: Clock = broker.parts.clock
        self._allowed = parse_allowed(config.brokers_allowed)
        self._slaves: list[Slave] = []
        self._gone: dict[str, ReplicationStatus] = {}
        """By host, what was known when its connection ended."""
        with taking("haListenPort", config.ha_listen_port, config.bind_address):
            self._socket = bound_socket(config.bind_address, config.ha_listen_port)

    async def serve_slaves(self) -> None:
        """Until it is cancelled."""
        server = await listen(self._socket, self._connecting, None)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            self._socket.close()
            for slave in self._slaves:
                slave.task.cancel()

    def status(self) -> tuple[ReplicationStatus, ...]:
        """Each slave that follows, and each that has gone, or was refused."""
        followers = [each for each in self._slaves if each.acked >= 0]
        return (*map(self._status, followers), *self._gone.values())

    @property
    def _end(self) -> int:
        """The log up to there may be sent: nothing of it is ever cut off or written again."""
        return min(self._store.final_end, self._store.durable_end)

    # ---- a connection

    def _connecting(self) -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=REPORT.size * 64)
        return asyncio.StreamReaderProtocol(reader, self._serve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until its end."""
        task = asyncio.current_task()
        assert task is not None
        host, port = (writer.get_extra_info("peername") or ("", 0))[:2]
        slave, reason = Slave(host, port, task), ""
        try:
            self._admit(slave)
            await self._follow(slave, reader, writer)
        except SlaveRefused as error:
            reason = str(error)
        except (OSError, asyncio.IncompleteReadError, RmqliteError) as error:
            log.debug("a slave of RocketMQ is cut off peer=%s reason=%r", slave.peer, error)
            error.with_traceback(None)
        finally:
            writer.transport.abort()
            self._ended(slave, reason)

    def _admit(self, slave: Slave) -> None:
        """Raises SlaveRefused."""
        allowed, host = self._allowed, slave.host
        is_allowed = _is_loopback(host) if allowed.is_empty else allowed.holds(host, "")
        if not is_allowed:
            raise SlaveRefused(f"brokersAllowed does not name {host}")
        if len(self._slaves) >= SLAVES_MAX:
            silent = [each for each in self._slaves if each.acked < 0]
            if not silent:
                raise SlaveRefused(f"at most {SLAVES_MAX} slaves follow at a time")
            self._slaves.remove(silent[0])
            silent[0].task.cancel()
        self._slaves.append(slave)

    async def _follow(
        self, slave: Slave, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        slave.acked = await _report(reader)
        slave.sent = self._begin(slave.acked)
        self._gone.pop(slave.host, None)
        log.info(
            "a slave of RocketMQ follows peer=%s from=%d end=%d", slave.peer, slave.sent, self._end
        )
        reports = asyncio.create_task(self._take_reports(slave, reader))
        try:
            await self._ship(slave, writer, reports)
            await reports
        finally:
            reports.cancel()
            await asyncio.gather(reports, return_exceptions=True)

    def _begin(self, end: int) -> int:
        """Where its log goes on.  Raises SlaveRefused."""
        store = self._store
        if end == 0:
            # RocketMQ begins with its last file: such a copy lacks what waits in older ones.
            return store.min_offset
        self._check_place(end)
        if end > self._end:
            sentence = f"it has the log up to {end}, and this broker up to {self._end}"
            raise SlaveRefused(f"{sentence}; it cannot cut its own: remove its store, and start it")
        return end

    def _check_place(self, at: int) -> None:
        begin = self._store.min_offset
        if at < begin:
            sentence = f"it has the log up to {at}, and this broker has it from {begin} on"
            raise SlaveRefused(f"{sentence}: remove its store, and start it")

    async def _take_reports(self, slave: Slave, reader: asyncio.StreamReader) -> None:
        """Until the connection ends.  Raises SlaveRefused."""
        while True:
            end = await _report(reader)
            if not slave.acked <= end <= slave.sent:
                sentence = (
                    f"it reports {end}: it had {slave.acked}, and was sent up to {slave.sent}"
                )
                raise SlaveRefused(sentence)
            slave.acked = end

    async def _ship(
        self, slave: Slave, writer: asyncio.StreamWriter, reports: asyncio.Task[None]
    ) -> None:
        """Until the reports end."""
        store, loop = self._store, asyncio.get_running_loop()
        sent_s = loop.time()
        while not reports.done():
            size = frame_size(slave.sent, self._end, store.log_file_bytes)
            self._note(slave)
            if size <= 0 and loop.time() - sent_s < BEAT_S:
                await asyncio.wait((reports,), timeout=LOOK_S)
                continue
            self._check_place(slave.sent)
            data = store.read(slave.sent, size) if size > 0 else b""
            writer.write(HEADER.pack(slave.sent, len(data)) + data)
            slave.sent += len(data)
            sent_s = loop.time()
            async with asyncio.timeout(SILENCE_S):
                await writer.drain()
            # Others get their turns while it catches up.
            await asyncio.sleep(0)

    # ---- what is known of them

    def _note(self, slave: Slave) -> None:
        if slave.acked >= self._end:
            slave.behind_since_ms = 0
        elif not slave.behind_since_ms:
            slave.behind_since_ms = self._clock.now_ms()

    def _status(self, slave: Slave) -> ReplicationStatus:
        return ReplicationStatus(
            self._config.broker_role,
            peer=f"{slave.peer} (RocketMQ)",
            is_connected=True,
            end=slave.acked,
            behind_bytes=max(0, self._end - max(slave.acked, self._store.min_offset)),
            behind_since_ms=slave.behind_since_ms,
        )

    def _ended(self, slave: Slave, reason: str) -> None:
        if slave in self._slaves:
            self._slaves.remove(slave)
        host, before = slave.host, self._gone.get(slave.host)
        trouble = f"the slave of RocketMQ at {host} is refused: {reason}" if reason else ""
        if trouble and (before is None or before.trouble != trouble):
            log.warning("%s", trouble)
        if slave.acked < 0 and not trouble:
            return
        if before is not None or len(self._gone) < HOSTS_MAX:
            self._gone[host] = ReplicationStatus(
                self._config.broker_role,
                peer=f"{host} (RocketMQ)",
                end=max(0, slave.acked),
                behind_since_ms=slave.behind_since_ms or self._clock.now_ms(),
                trouble=trouble,
            )


def _is_loopback(host: str) -> bool:
    return bool(host) and ipaddress.ip_address(host.partition("%")[0]).is_loopback


async def _report(reader: asyncio.StreamReader) -> int:
    """The next report.  Raises TimeoutError, IncompleteReadError; SlaveRefused if it is none."""
    async with asyncio.timeout(SILENCE_S):
        data = await reader.readexactly(REPORT.size)
    end: int = REPORT.unpack(data)[0]
    if end < 0:
        raise SlaveRefused(f"it reports {end}, which is no physical offset")
    return end
