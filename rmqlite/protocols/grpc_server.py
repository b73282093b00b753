"""The gRPC port: rmqlite.v1, apache.rocketmq.v2, gRPC's own health and reflection.

There is one health for the whole broker, under the name "" and under each service's name:
SERVING from the first call on, NOT_SERVING once the broker drains.  The library's own servicers
are not used: with them a watcher would hold up the drain, and malformed bytes would be logged
with a stack, like a bug.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME as HEALTH
from grpc_reflection.v1alpha import reflection, reflection_pb2

from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.protocol_server import Running, taking
from rmqlite.kernel.service.service import Ports
from rmqlite.kernel.words.errors import InvalidValue, Overloaded
from rmqlite.kernel.words.limits import TEXTS_BYTES_MAX
from rmqlite.kernel.words.message import host_text
from rmqlite.kernel.words.visible import shortened
from rmqlite.protocols.grpc.calls import (
    Context,
    Enter,
    Handlers,
    Read,
    everybody,
    many_answers,
    one_answer,
)
from rmqlite.protocols.grpc.in_flight import End, InFlight
from rmqlite.protocols.grpc.listening import KeyTexts, begun, calls_end, credentials, options
from rmqlite.protocols.native.bytes.rpcs import native_services
from rmqlite.protocols.native.guard import guard_of
from rmqlite.protocols.native.table import handlers_of, methods_of, streams_of
from rmqlite.protocols.rocketmq_v2.bytes.rpcs import SERVICE
from rmqlite.protocols.rocketmq_v2.table import Protocol
from rmqlite.protocols.shared.codec import parsed
from rmqlite.protocols.shared.tls import TlsKeys

WATCHES_MAX: Final = 1_000
REFLECTIONS_MAX: Final = 4
REFLECTION_S_MAX: Final = 10.0
"""How long one reflection call may last; a tool that needs longer calls again."""
REQUEST_BYTES_MAX: Final = 4_096
Status = health_pb2.HealthCheckResponse
END_S_MAX: Final = 0.5
"""How long gRPC may take to end the calls of a port that is opened anew."""
FAILURES_MAX: Final = 3
FAILURES_S: Final = 60.0
"""The broker ends when so many attempts to open its port anew have failed in this time."""
PAUSE_S: Final = 0.25
log = logging.getLogger(__name__)


class Health:
    """grpc.health.v1.Health and reflection for these services."""

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(services)
        names = (*self._services, HEALTH, reflection.SERVICE_NAME)
        self._reflection = reflection.aio.ReflectionServicer(names)
        self._is_draining = False
        self._is_away = False
        self._changed = asyncio.Event()
        self._running: dict[str, int] = {}

    @property
    def is_serving(self) -> bool:
        return not self._is_draining and not self._is_away

    def drain(self) -> None:
        """Answer NOT_SERVING from now on; each watcher gets that answer, and its call ends."""
        self._is_draining = True
        self._tell()

    def set_away(self, is_away: bool) -> None:
        """Does a part of the port not answer at the moment?"""
        if is_away != self._is_away:
            self._is_away = is_away
            self._tell()

    def _tell(self) -> None:
        """Wake all watchers."""
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def handlers(self, in_flight: InFlight, enter: Enter) -> Handlers:
        """gRPC handlers of both services; only reflection asks who calls."""
        check, watch = f"/{HEALTH}/Check", f"/{HEALTH}/Watch"
        reflect = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"
        return Handlers(
            {
                check: one_answer(check, self.check, in_flight, everybody),
                watch: many_answers(watch, self.watch, in_flight, everybody),
                reflect: many_answers(reflect, self.reflect, in_flight, enter),
            }
        )

    def running(self, what: str) -> int:
        """How many "watches" or "reflections" are running."""
        return self._running.get(what, 0)

    async def check(self, data: bytes, context: Context) -> bytes:
        """The health of one service, or of the broker for ""; NOT_FOUND for any other name."""
        service = _service_of(data)
        if not self._knows(service):
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details(f"no service {shortened(service)!r}")
        return self._response()

    async def watch(self, read: Read, context: Context) -> None:
        """Answer the health now and when it changes; SERVICE_UNKNOWN for any other name."""
        is_known = self._knows(_service_of(await read() or b""))
        with self._one_of("watches", WATCHES_MAX):
            unknown: bytes = Status(status=Status.SERVICE_UNKNOWN).SerializeToString()
            written = b""
            while True:
                # Both first: what changes while an answer is written is told next.
                changed, is_last = self._changed, self._is_draining
                now = self._response() if is_known else unknown
                if now != written:
                    await context.write(now)
                    written = now
                if is_last:
                    return
                await changed.wait()

    async def reflect(self, read: Read, context: Context) -> None:
        """Answer each question about the services and their messages."""
        with self._one_of("reflections", REFLECTIONS_MAX), suppress(TimeoutError):
            async with asyncio.timeout(REFLECTION_S_MAX):
                while (data := await read()) is not None:
                    asked = _one(_request(reflection_pb2.ServerReflectionRequest, data))
                    async for answer in self._reflection.ServerReflectionInfo(asked, context):
                        await context.write(answer.SerializeToString())

    @contextmanager
    def _one_of(self, what: str, most: int) -> Iterator[None]:
        """Count one running call of this kind.  Raises Overloaded at the limit."""
        if self.running(what) >= most:
            raise Overloaded(what, most)
        self._running[what] = self.running(what) + 1
        try:
            yield
        finally:
            self._running[what] -= 1

    def _knows(self, service: str) -> bool:
        return service == "" or service in self._services

    def _response(self) -> bytes:
        status = Status.SERVING if self.is_serving else Status.NOT_SERVING
        response: bytes = Status(status=status).SerializeToString()
        return response


def _request(pb_class: Any, data: bytes) -> Any:
    if len(data) > REQUEST_BYTES_MAX:
        raise InvalidValue("request", f"{len(data)} bytes", f"at most {REQUEST_BYTES_MAX} bytes")
    return parsed(pb_class, data)


def _service_of(data: bytes) -> str:
    service: str = _request(health_pb2.HealthCheckRequest, data).service
    return service


async def _one(request: Any) -> AsyncIterator[Any]:
    yield request


class GrpcCalls:
    """What answers the calls of gRPC, in whichever process the port is.

    end: closes connections, if this process does not have them.
    """

    def __init__(self, config: BrokerConfig, end: End | None = None) -> None:
        self._config = config
        self.health = Health({*native_services(), SERVICE})
        self.in_flight = InFlight(config.in_flight_bytes_max, request_bytes_max(config), end)
        self._rocketmq: Protocol | None = None
        self._loops: list[asyncio.Task[None]] = []

    def handlers(self, running: Running, port: int) -> tuple[Handlers, ...]:
        """gRPC handlers of all calls."""
        service = running.service
        self._rocketmq = Protocol(self._config, service, port)
        enter = guard_of(service.access, service.limits).enter
        return (
            handlers_of(methods_of(service), self.in_flight, self._config, enter),
            streams_of(service, self.in_flight, enter),
            self._rocketmq.handlers(self.in_flight),
            self.health.handlers(self.in_flight, enter),
        )

    def run_loops(self, tasks: asyncio.TaskGroup) -> None:
        assert self._rocketmq is not None
        self._loops = [
            tasks.create_task(self.in_flight.run(), name="requests"),
            self._rocketmq.run(tasks),
        ]

    def drain(self) -> None:
        """Tell those who watch the broker, and end the calls that would last."""
        assert self._rocketmq is not None
        self.health.drain()
        self._rocketmq.telemetry.close()

    def end_loops(self) -> None:
        """All calls have ended."""
        for loop in self._loops:
            loop.cancel()

    async def end_forwarding(self) -> None:
        if self._rocketmq is not None:
            await self._rocketmq.end_forwarding()


class GrpcServer:
    """The port of gRPC.

    gRPC takes calls in a loop of its own, which a single call can end, such as one whose path is no
    UTF-8; then it closes the port, and says so to nobody.  So the loop is watched, and the port
    is opened anew.
    """

    def __init__(self, config: BrokerConfig, keys: TlsKeys | None = None) -> None:
        self._config = config
        self._keys = keys
        self._calls = GrpcCalls(config)
        self._in_flight = self._calls.in_flight
        self._server: grpc.aio.Server | None = None
        self._handlers: tuple[Handlers, ...] = ()
        self._serving: asyncio.Task[None] | None = None
        self._staying: asyncio.Task[None] | None = None
        self.port = 0
        """The port that bind() took; the system chooses it if grpcPort is 0."""

    async def bind(self) -> None:
        self._bind()

    def _bind(self) -> None:
        """Take the ports, after the first time the same ones again.  Raises InvalidValue."""
        config = self._config
        sizes = config.connections_max, request_bytes_max(config)
        self._server = grpc.aio.server(options=options(*sizes, shares_port=False))
        is_plain = config.tls_mode != "enforcing"
        self.port = self._bound("grpcPort", self.port or config.grpc_port, is_plain=is_plain)
        if config.grpc_tls_port:
            self._bound("grpcTlsPort", config.grpc_tls_port, is_plain=False)

    async def open(self, running: Running) -> None:
        self._handlers = self._calls.handlers(running, self.port)
        await self._serve()
        self._calls.run_loops(running.tasks)
        staying = self._stay_open(running.service.ports)
        self._staying = running.tasks.create_task(staying, name="gRPC port")

    @property
    def ports(self) -> dict[str, int]:
        return {"grpc_port": self.port}

    @property
    def is_listening(self) -> bool:
        # _stay_open() opens it again, or ends the broker.
        return True

    async def _serve(self) -> None:
        """Answer calls on the ports that are taken."""
        assert self._server is not None
        self._server.add_generic_rpc_handlers(self._handlers)
        self._serving = await begun(self._server)

    async def _stay_open(self, ports: Ports) -> None:
        """Open the port anew each time when gRPC's loop has ended.  Raises InvalidValue."""
        failed_at_s: deque[float] = deque(maxlen=FAILURES_MAX)
        opened_at_s = -FAILURES_S
        while True:
            assert self._server is not None
            assert self._serving is not None
            await asyncio.wait([self._serving])
            if self._serving.cancelled():
                # Its memory is in use by gRPC's core, and is freed: nothing of it may be touched.
                self._server = None
                raise RuntimeError("gRPC's loop was cancelled")
            sentence = f"the gRPC port, {self.port}, does not answer; it is being opened anew"
            ports.away.append(sentence)
            log.error("%s reason=%s", sentence, self._serving.exception())
            await _end(self._server)
            # Who sends such calls again and again gets no more than some lines of log for it.
            now_s = asyncio.get_running_loop().time()
            await asyncio.sleep(PAUSE_S if now_s - opened_at_s < FAILURES_S else 0)
            while True:
                try:
                    self._bind()
                    await self._serve()
                    break
                except InvalidValue as error:
                    failed_at_s.append(asyncio.get_running_loop().time())
                    is_often = failed_at_s[-1] - failed_at_s[0] < FAILURES_S
                    if len(failed_at_s) == FAILURES_MAX and is_often:
                        raise
                    log.error("the gRPC port cannot be opened anew error=%s", error)
                    # It may have taken one of two ports, and gives that back only if it has begun.
                    await self._server.start()
                    await _end(self._server)
                    await asyncio.sleep(PAUSE_S)
            ports.away.remove(sentence)
            ports.opened_anew += 1
            opened_at_s = asyncio.get_running_loop().time()
            log.warning("the gRPC port is open again port=%d", self.port)

    def _bound(self, key: str, port: int, *, is_plain: bool) -> int:
        """Take a port; the one that was taken.  Raises InvalidValue."""
        assert self._server is not None
        target = host_text(self._config.bind_address, port)
        with taking(key, port, self._config.bind_address):
            if is_plain:
                return self._server.add_insecure_port(target)
            assert self._keys is not None
            texts = partial(texts_of, self._keys)
            keys = credentials(texts, needs_certificates=self._keys.needs_certificates)
            return self._server.add_secure_port(target, keys)

    async def drain(self) -> None:
        assert self._server is not None
        self._calls.drain()
        if self._staying is not None:
            self._staying.cancel()
            await asyncio.wait([self._staying])
        drain_s = self._config.drain_ms_max / 1000
        stopping = asyncio.ensure_future(self._server.stop(drain_s))
        if self._serving is not None:
            await asyncio.wait([self._serving])
        await calls_end(drain_s)
        await asyncio.wait([stopping], timeout=END_S_MAX)
        # A call that came just now may be lost inside gRPC: only this ends it, its caller waits.
        await self._server.stop(0)
        await stopping
        self._calls.end_loops()

    async def close(self) -> None:
        await self._calls.end_forwarding()
        if self._server is not None:
            await self._server.stop(0)
            # gRPC ends them in the next turns; who cancels them now makes it print stacks.
            await calls_end(END_S_MAX)


async def _end(server: grpc.aio.Server) -> None:
    """Close the ports and end all calls of a server whose loop has ended."""
    # If gRPC has not begun to stop it, the first stop() only raises the loop's error.
    for _ in range(2):
        stopping = asyncio.ensure_future(server.stop(None))
        await asyncio.wait([stopping], timeout=END_S_MAX)
        if stopping.done() and stopping.exception() is None:
            return


def texts_of(keys: TlsKeys) -> KeyTexts:
    pem = keys.pem
    return KeyTexts(pem.certificate, pem.key, pem.client_ca)


def request_bytes_max(config: BrokerConfig) -> int:
    """The longest request that gRPC accepts."""
    return config.send_bytes_max + TEXTS_BYTES_MAX
