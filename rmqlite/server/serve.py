"""Open the store, run everything in one TaskGroup, drain, close.

If any loop dies the broker stops loudly and leaves the store as after a crash: the next
start recovers it.  A stop by signal drains: parked calls are answered, running ones finish,
then store and tables are closed so that RocketMQ, too, would find a clean shutdown.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import grpc.aio

from rmqlite.broker.broker import Broker
from rmqlite.clock import SystemClock
from rmqlite.config import BrokerConfig
from rmqlite.errors import InvalidValue, Unavailable
from rmqlite.limits import TEXTS_BYTES_MAX
from rmqlite.server.admin_service import AdminService
from rmqlite.server.calls import handlers_of
from rmqlite.server.clock_watch import ClockWatch
from rmqlite.server.conversion import Conversion
from rmqlite.server.delivery import Delivery
from rmqlite.server.exposure import warn_of_open_ports
from rmqlite.server.front import Front
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.health import Health
from rmqlite.server.http_port import HttpPort, Page
from rmqlite.server.in_flight import InFlight
from rmqlite.server.log_service import LogService
from rmqlite.server.metrics import TEXT_TYPE, Metrics
from rmqlite.server.native_service import NativeService
from rmqlite.server.rebalancing import Rebalancing
from rmqlite.server.redriving import Redriving
from rmqlite.server.reload import Reload
from rmqlite.server.upkeep import Upkeep
from rmqlite.server.waiting import Waiting
from rmqlite.server.web import bound_port
from rmqlite.store.file_sizes import has_log
from rmqlite.store.files import OPEN_FILES_MAX, SystemFiles
from rmqlite.store.message_store import MessageStore
from rmqlite.wire import rpcs

if TYPE_CHECKING:
    from rmqlite.server.web.port import WebPort

SWITCH_S: Final = 0.000_5
GC_OBJECTS: Final = 50_000
EXIT_FAILED: Final = 1
OTHER_FILES: Final = OPEN_FILES_MAX + 288
"""File descriptors that connections to the gRPC port must leave: of the store, of the pages."""

log = logging.getLogger(__name__)


def serve(
    config: BrokerConfig,
    on_ready: Callable[[str], None] | None = None,
    reload: Callable[[], BrokerConfig] | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; the exit code.

    on_ready is told "address:port" when calls are accepted.  reload gives the configuration
    as it is at a SIGHUP; None where there is no file to read.  Raises StoreLocked,
    StoreDamaged, StoreUnavailable, ConfigInvalid and InvalidValue when it cannot start.
    """
    logging.getLogger("rmqlite").setLevel(logging.INFO)
    # The thread that syncs must get its turn soon after the disk has answered.
    sys.setswitchinterval(SWITCH_S)
    return asyncio.run(_Server(config, reload).run(on_ready or (lambda _endpoint: None)))


def front_of(
    config: BrokerConfig,
    broker: Broker,
    commit: GroupCommit,
    pulls: Waiting,
    heartbeats: Waiting,
) -> Front:
    """All methods of a broker."""
    service = NativeService(config, broker, commit, pulls, heartbeats)
    admin = AdminService(broker, pulls, commit)
    raw = LogService(broker)
    return Front({**service.methods(), **admin.methods(), **raw.methods()}, commit)


class _Server:
    """One broker process; as the broker's listener it carries news to those who wait."""

    def __init__(self, config: BrokerConfig, reload: Callable[[], BrokerConfig] | None) -> None:
        self._config = config
        self._load = reload
        self._clock = SystemClock()
        self._pulls = Waiting("maxParkedPolls", config.parked_polls_max)
        self._heartbeats = Waiting("maxParkedPolls", config.parked_polls_max)
        self._syncer = ThreadPoolExecutor(1, "sync")
        self._persister = ThreadPoolExecutor(1, "persist")
        self._health = Health({rpc.service for rpc in rpcs.ALL})
        self._in_flight = InFlight(config.in_flight_bytes_max, _request_bytes_max(config))
        self._http = HttpPort()
        self._web: WebPort | None = None
        self._commit: GroupCommit
        self._watch: ClockWatch
        self._delivery: Delivery

    def appended(self, topic: str, queue_id: int) -> None:
        self._commit.appended(topic, queue_id)

    def due_sooner(self) -> None:
        self._delivery.due_sooner()

    async def run(self, on_ready: Callable[[str], None]) -> int:
        # Before anything that takes long: until then this signal ends the process.
        reload_asked = _event_of(signal.SIGHUP)
        server, port = _listening_server(self._config)
        await self._take_http_ports()
        config = self._config.model_copy(update={"listen_port": port})
        store = _opened_store(config, self._clock)
        stop = _event_of(signal.SIGTERM, signal.SIGINT)
        try:
            broker = Broker(config, store, self._clock, self)
            rebalancing = Rebalancing(broker.membership, self._heartbeats, self._clock)
            self._commit = GroupCommit(config, store, self._syncer, self._pulls.wake)
            self._watch = ClockWatch(self._clock, self._clock.machine, store.clock_origin)
            upkeep = Upkeep(config, broker, self._persister, self._watch)
            # Before the first call: a broker that starts on a full disk takes no send.
            upkeep.look_at_disk(clean=False)
            async with asyncio.TaskGroup() as tasks:
                loops = {
                    "group commit": self._commit.run(),
                    "persist": upkeep.persist(),
                    "upkeep": upkeep.look(),
                    "reload": Reload(self._config, self._load, broker.levels).run(reload_asked),
                    "redrive": Redriving(broker, self._commit, self._clock).run(),
                    "requests": self._in_flight.run(),
                    "rebalance": rebalancing.run(),
                }
                running = [tasks.create_task(loop, name=name) for name, loop in loops.items()]
                self._delivery = Delivery(broker, self._clock, tasks)
                await self._open(server, config, broker)
                if self._web:
                    running.append(tasks.create_task(self._web.run(), name="web page"))
                # What is alive now lives as long as the broker, and what a call makes dies
                # with it by reference count: looking for cycles is nearly always in vain.
                gc.freeze()
                gc.set_threshold(GC_OBJECTS, 20, 100)
                on_ready(f"{config.bind_address}:{port}")
                await stop.wait()
                await self._drain(server)
                self._delivery.close()
                for task in running:
                    task.cancel()
            self._end()
            return _closed(broker)
        except BaseExceptionGroup as group:
            # First of all nobody is answered any more.
            await server.stop(0)
            self._end()
            store.release()
            log.critical("the broker stops, the next start will recover the store", exc_info=group)
            return EXIT_FAILED
        except BaseException:
            self._end()
            store.release()
            raise

    async def _take_http_ports(self) -> None:
        """A broker that cannot have them does not even open its store."""
        if self._config.metrics_port:
            await self._http.bind(self._config.bind_address, self._config.metrics_port)
        if self._config.web_port:
            self._web = bound_port(self._config)

    async def _open(self, server: grpc.aio.Server, config: BrokerConfig, broker: Broker) -> None:
        """Take calls, and requests for metrics."""
        warn_of_open_ports(config)
        front = front_of(config, broker, self._commit, self._pulls, self._heartbeats)
        server.add_generic_rpc_handlers((handlers_of(front, self._in_flight, Conversion(config)),))
        server.add_generic_rpc_handlers((self._health.handlers(self._in_flight),))
        await server.start()
        if self._web:
            self._web.open(front, self._clock)
        if config.metrics_port:
            metrics = Metrics(broker, self._commit, self._pulls, self._watch)

            async def metrics_page() -> Page:
                return Page(await asyncio.to_thread(metrics.collected().text), TEXT_TYPE)

            await self._http.open({"/metrics": metrics_page, "/healthz": self._health.page})
            log.info("metrics are served address=%s port=%d", config.bind_address, self._http.port)

    def _end(self) -> None:
        """Wait for what the threads are writing: nothing older may follow the last tables."""
        self._http.close()
        self._syncer.shutdown()
        self._persister.shutdown()

    async def _drain(self, server: grpc.aio.Server) -> None:
        """Answer the parked calls, let the running ones finish, take no more."""
        log.info("draining parked_calls=%d", self._pulls.count + self._heartbeats.count)
        self._health.drain()
        self._pulls.close()
        self._heartbeats.close()
        stops = [server.stop(self._config.drain_ms_max / 1000)]
        if self._web:
            stops.append(self._web.drain())
        await asyncio.gather(*stops)


def _event_of(*signals: signal.Signals) -> asyncio.Event:
    """Set by each of these."""
    event = asyncio.Event()
    for signal_number in signals:
        asyncio.get_running_loop().add_signal_handler(signal_number, event.set)
    return event


def _closed(broker: Broker) -> int:
    """Close the store; the exit code."""
    try:
        broker.store.close(broker.tables())
    except Unavailable as error:
        broker.store.release()
        log.critical("cannot close, the next start will recover the store error=%s", error)
        return EXIT_FAILED
    return 0


def _opened_store(config: BrokerConfig, clock: SystemClock) -> MessageStore:
    files = SystemFiles()
    if not has_log(files, config.store_path):
        config.check_new_store()
    store = MessageStore(config, files, clock)
    log.info(
        "store opened path=%s log_end=%d recovered_records=%d",
        config.store_path,
        store.end,
        store.recovered,
    )
    return store


def _request_bytes_max(config: BrokerConfig) -> int:
    """The longest request that gRPC accepts."""
    return config.send_bytes_max + TEXTS_BYTES_MAX


def connections_max(config: BrokerConfig) -> int:
    """How many connections the gRPC port may take, so that the store can always open a file.

    Raises the process's limit of open files as far as it must and may.
    """
    wanted = config.connections_max + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
    if files < wanted:
        log.warning(
            "fewer connections than maxConnections: the limit of open files is low"
            " connections=%d open_files=%d wanted=%d",
            max(1, files - OTHER_FILES),
            files,
            wanted,
        )
    return max(1, files - OTHER_FILES)


def _listening_server(config: BrokerConfig) -> tuple[grpc.aio.Server, int]:
    """A server that has its port but does not answer yet.  Raises InvalidValue."""
    server = grpc.aio.server(
        options=(
            # A second broker on the same port must fail, not share its calls.
            ("grpc.so_reuseport", 0),
            ("grpc.max_allowed_incoming_connections", connections_max(config)),
            ("grpc.max_receive_message_length", _request_bytes_max(config)),
            ("grpc.max_send_message_length", -1),
            # gRPC cancels calls at random when a thousand of them arrive at once.
            ("grpc.server.max_pending_requests", config.parked_polls_max),
            ("grpc.server.max_pending_requests_hard_limit", config.parked_polls_max),
            # Of a request that waits to be read gRPC holds 64 KiB, and not some megabytes.
            ("grpc.http2.bdp_probe", 0),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
        )
    )
    address = config.bind_address
    host = f"[{address}]" if ":" in address else address
    try:
        port = server.add_insecure_port(f"{host}:{config.listen_port}")
    except RuntimeError as error:
        rule = f"a port that is free on bindAddress={config.bind_address}"
        raise InvalidValue("listenPort", config.listen_port, rule) from error
    return server, port
