"""The port of gRPC in grpcWorkers processes, which share it.

The broker holds the port with a socket that does not listen, so no other program can take it, and
keeps the workers alive: one that ends, answers no ping, or lets too much wait is replaced.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections import deque
from collections.abc import Collection
from contextlib import suppress
from typing import Any, Final

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import Running, taking
from rmqlite.kernel.service.service import Ports
from rmqlite.kernel.words.errors import InvalidValue
from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.grpc.calls import Handlers
from rmqlite.protocols.grpc.listening import PENDING_MAX
from rmqlite.protocols.grpc_server import GrpcCalls, request_bytes_max, texts_of
from rmqlite.protocols.shared.tls import TlsKeys
from rmqlite.protocols.workers.frames import Kind
from rmqlite.protocols.workers.link import WorkerLink
from rmqlite.protocols.workers.relayed import Beginning

PING_S: Final = 0.5
PINGS_MAX: Final = 10
"""A worker that has left so many pings in a row unanswered is killed."""
FREE_S_MAX: Final = 2.0
"""How long the port may still be in use when the broker starts."""
START_S_MAX: Final = 30.0
STARTS_MAX: Final = 20
STARTS_S: Final = 60.0
PAUSE_S: Final = 1.0
"""How long the broker waits before it starts a worker if so many have started in this time."""
WAITING_BYTES: Final = 64 << 20
"""How many bytes, beside the answers that maxBytesInFlight counts, may wait for a worker."""
END_S_MAX: Final = 1.0
log = logging.getLogger(__name__)


class GrpcWorkers:
    """The port of gRPC, shared by workers."""

    def __init__(self, config: BrokerConfig, keys: TlsKeys | None = None) -> None:
        self._config = config
        self._keys = keys
        self._calls = GrpcCalls(config, self._end_connections)
        self._in_flight = self._calls.in_flight
        self._sockets: list[socket.socket] = []
        self._links: list[WorkerLink | None] = [None] * config.grpc_workers
        self._tasks: list[asyncio.Task[None]] = []
        self._started_at_s: deque[float] = deque(maxlen=STARTS_MAX)
        self._handlers: dict[str, Any] = {}
        self._beginning: Beginning
        self.port = 0
        """The port that bind() took; the system chooses it if grpcPort is 0."""

    async def bind(self) -> None:
        config = self._config
        self.port = await self._held_soon("grpcPort", config.grpc_port)
        if config.grpc_tls_port:
            await self._held_soon("grpcTlsPort", config.grpc_tls_port)

    async def _held_soon(self, key: str, port: int) -> int:
        """Workers of a broker that was killed end a moment after it.  Raises InvalidValue."""
        until_s = asyncio.get_running_loop().time() + FREE_S_MAX
        while True:
            try:
                return self._held(key, port)
            except InvalidValue:
                if asyncio.get_running_loop().time() >= until_s:
                    raise
                await asyncio.sleep(FREE_S_MAX / 40)

    def _held(self, key: str, port: int) -> int:
        """Take a port, and let only processes of this user share it.  Raises InvalidValue."""
        address = self._config.bind_address
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        held = socket.socket(family, socket.SOCK_STREAM)
        try:
            with taking(key, port, address):
                held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                held.bind((address, port))
        except InvalidValue:
            held.close()
            raise
        self._sockets.append(held)
        # Only now: a second broker on the same port must fail.
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taken: int = held.getsockname()[1]
        return taken

    @property
    def ports(self) -> dict[str, int]:
        return {"grpc_port": self.port}

    @property
    def is_listening(self) -> bool:
        # _keep() starts a worker anew, again and again.
        return True

    async def open(self, running: Running) -> None:
        self._handlers = _by_path(self._calls.handlers(running, self.port))
        self._beginning = Beginning(self._handlers.get)
        self._calls.run_loops(running.tasks)
        starts = [self._start(place) for place in range(len(self._links))]
        links = await asyncio.gather(*starts)
        if None in links:
            raise InvalidValue(
                "grpcWorkers", self._config.grpc_workers, "a number of processes that can start"
            )
        ports = running.service.ports
        for place in range(len(self._links)):
            keeping = self._keep(place, ports)
            name = f"gRPC worker {place + 1}"
            self._tasks.append(running.tasks.create_task(keeping, name=name))

    # ---- workers

    async def _start(self, place: int) -> WorkerLink | None:
        """A worker that takes calls; None if it does not start."""
        config, size = self._config, request_bytes_max(self._config)
        link = self._links[place] = WorkerLink(
            self._beginning,
            calls_max=config.parked_polls_max + PENDING_MAX,
            message_bytes_max=size,
            waiting_bytes_max=config.in_flight_bytes_max + WAITING_BYTES,
        )
        self._started_at_s.append(asyncio.get_running_loop().time())
        with suppress(OSError, TimeoutError):
            await link.start_process()
            self._send_keys(link)
            link.send_frame(Kind.START, 0, json.dumps(self._what()).encode())
            ready = asyncio.ensure_future(link.ready.wait())
            lost = asyncio.ensure_future(link.lost.wait())
            try:
                async with asyncio.timeout(START_S_MAX):
                    await asyncio.wait([ready, lost], return_when=asyncio.FIRST_COMPLETED)
            finally:
                ready.cancel()
                lost.cancel()
            if link.answers:
                log.info("a gRPC worker takes calls pid=%d", link.pid)
                return link
        link.kill()
        await link.reap()
        return None

    def _what(self) -> dict[str, Any]:
        config = self._config
        targets = [(host_text(config.bind_address, self.port), config.tls_mode == "enforcing")]
        if config.grpc_tls_port:
            targets.append((host_text(config.bind_address, config.grpc_tls_port), True))
        workers = config.grpc_workers
        return {
            "paths": {path: each.response_streaming for path, each in self._handlers.items()},
            "targets": targets,
            "connections_max": max(1, config.connections_max // workers),
            "request_bytes_max": request_bytes_max(config),
            "calls_max": config.parked_polls_max + PENDING_MAX,
            "needs_certificates": self._keys is not None and self._keys.needs_certificates,
        }

    async def _keep(self, place: int, ports: Ports) -> None:
        """Look after one worker, until cancelled."""
        link = self._links[place]
        while True:
            assert link is not None
            await self._watch(link)
            link.kill()
            sentence = (
                f"worker {place + 1} of {len(self._links)} of the gRPC port, {self.port},"
                " does not answer; another is being started"
            )
            log.error("%s pid=%d", sentence, link.pid)
            ports.away.append(sentence)
            self._calls.health.set_away(True)
            await link.reap()
            link = None
            while link is None:
                await self._pause()
                link = await self._start(place)
            ports.away.remove(sentence)
            ports.opened_anew += 1
            if all(each is not None and each.answers for each in self._links):
                self._calls.health.set_away(False)

    async def _watch(self, link: WorkerLink) -> None:
        """Return when a worker has ended, or answers nothing."""
        lost = asyncio.ensure_future(link.lost.wait())
        try:
            while not lost.done() and link.unanswered < PINGS_MAX:
                link.ping()
                self._send_keys(link)
                await asyncio.wait([lost], timeout=PING_S)
        finally:
            lost.cancel()

    def _send_keys(self, link: WorkerLink) -> None:
        """Those in force, unless the worker has them: they may change while it starts."""
        if self._keys is not None and link.keys is not self._keys.pem:
            link.keys = self._keys.pem
            link.send_frame(Kind.KEYS, 0, json.dumps(texts_of(self._keys)).encode())

    async def _pause(self) -> None:
        """Before a worker is started, if many were."""
        times = self._started_at_s
        now_s = asyncio.get_running_loop().time()
        if len(times) == STARTS_MAX and now_s - times[0] < STARTS_S:
            log.error("gRPC workers do not stay: %d starts in %d s", STARTS_MAX, STARTS_S)
            await asyncio.sleep(PAUSE_S)

    async def _end_connections(self, peers: Collection[str]) -> None:
        for link in self._links:
            if link is not None:
                link.send_frame(Kind.CLOSE, 0, json.dumps([*peers]).encode())

    # ---- the end

    async def drain(self) -> None:
        self._calls.drain()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        drain_s = self._config.drain_ms_max / 1000
        links = [each for each in self._links if each is not None]
        for link in links:
            link.send_frame(Kind.DRAIN, 0, json.dumps(drain_s).encode())
        ends = [asyncio.ensure_future(link.lost.wait()) for link in links]
        if ends:
            await asyncio.wait(ends, timeout=drain_s + 2 * END_S_MAX)
        for end in ends:
            end.cancel()
        self._calls.end_loops()

    async def close(self) -> None:
        await self._calls.end_forwarding()
        for link in self._links:
            if link is not None:
                link.kill()
                await link.reap()
        for held in self._sockets:
            held.close()


def _by_path(handlers: Collection[Handlers]) -> dict[str, Any]:
    return {path: handler for each in handlers for path, handler in each.paths.items()}
