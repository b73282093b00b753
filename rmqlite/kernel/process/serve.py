"""Open the store, run everything in one TaskGroup, drain, close.

If any loop fails, the broker logs the error, exits with 1 and leaves the store as after a crash:
the next start recovers it.  A signal drains it: parked calls are answered, running calls finish,
then store and tables are closed so that RocketMQ, too, finds a clean shutdown.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from rmqlite.features.accounts.gate.exposure import check_exposure
from rmqlite.features.accounts.gate.limits import connections_max, limits_of
from rmqlite.features.accounts.gate.tls import Keys, load_keys
from rmqlite.features.cluster.addresses import with_own_address
from rmqlite.features.cluster.link import Connecting
from rmqlite.features.cluster.registration import Registering, check_cluster
from rmqlite.kernel import compiled
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.delivery import Delivery
from rmqlite.kernel.process.indexing import Indexing
from rmqlite.kernel.process.library_log import in_short_lines
from rmqlite.kernel.process.loops import CheckingBack, Expiring, Rebalancing, Redriving, Reload
from rmqlite.kernel.process.notify import READY, STOPPING, notify
from rmqlite.kernel.process.protocol_server import ProtocolServer, Running
from rmqlite.kernel.process.silent_ends import Loops, Watch
from rmqlite.kernel.process.upkeep import ClockWatch, Upkeep
from rmqlite.kernel.service.access import Access, AccountsFile
from rmqlite.kernel.service.group_commit import GroupCommit, SyncThread
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.service.turns import event_loop
from rmqlite.kernel.service.waiting import Waiting
from rmqlite.kernel.service.watched import WatchedFiles
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.file_sizes import has_log
from rmqlite.kernel.tables.missing import missing_tables
from rmqlite.kernel.words.clock import SystemClock
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable, Unavailable
from rmqlite.protocols.grpc_server import GrpcServer
from rmqlite.protocols.metrics.server import MetricsServer
from rmqlite.protocols.remoting.server import RemotingServer
from rmqlite.web import web_server

SWITCH_S: Final = 0.000_5
GC_THRESHOLDS: Final = (5_000, 5, 400)
"""gRPC leaves a circle of objects for each call.  A collection of so many new objects takes less
than 20 ms; ten times as many took 200."""
EXIT_FAILED: Final = 1
OWN_BLOCK_BYTES: Final = 1 << 20
"""From this size on each block of memory is a mapping of its own, which goes back to the system as
soon as it is free: the beginnings of long frames would else leave holes between other blocks."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

log = logging.getLogger(__name__)


class Endpoints(NamedTuple):
    """Where a broker answers, each as "address:port"."""

    grpc: str
    remoting: str
    name_server: str


Ready = Callable[[Endpoints], None]


def serve(
    config: BrokerConfig,
    on_ready: Callable[[Endpoints], None] | None = None,
    reload: Callable[[], BrokerConfig] | None = None,
    clock: SystemClock | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code.

    on_ready is called with the addresses when calls are accepted.  reload is called at a SIGHUP
    and reads the configuration again; None if there is no file.  clock: only rmqlite.testing has
    one of its own.  Raises StoreLocked, StoreDamaged, StoreUnavailable, ConfigInvalid and
    InvalidValue when it cannot start.
    """
    logging.getLogger("rmqlite").setLevel(logging.INFO)
    check_exposure(config)
    config = with_own_address(config)
    connections = connections_max(config)
    access = Access()
    keys = load_keys(config)
    watched: list[WatchedFiles[Any]] = [keys] if keys else []
    if config.acl_enabled:
        watched.append(AccountsFile(config.acl_file, access))
        watched[-1].load()
    connecting = Connecting(config, access)
    # The thread that syncs must run soon after the disk has answered.
    sys.setswitchinterval(SWITCH_S)
    _give_memory_back()
    loop, name = event_loop()

    def ready(endpoints: Endpoints) -> None:
        if on_ready:
            on_ready(endpoints)
        notify(READY)

    log.info("the broker starts form=%s event_loop=%s", compiled.form(), name)
    clock = clock or SystemClock()
    with in_short_lines(), asyncio.Runner(loop_factory=loop) as runner:
        server = _Server(config, reload, access, keys, watched, connections, connecting, clock)
        return runner.run(server.run(ready))


class _Server:
    """One broker process; as the broker's listener it passes appends to the commit and delivery."""

    def __init__(
        self,
        config: BrokerConfig,
        reload: Callable[[], BrokerConfig] | None,
        access: Access,
        keys: Keys | None,
        watched: Sequence[WatchedFiles[Any]],
        connections: int,
        connecting: Connecting,
        clock: SystemClock,
    ) -> None:
        """connections: how many of them each protocol accepts.  connecting: to name servers."""
        self._config = config
        self._connecting = connecting
        self._access = access
        self._watched = watched
        self._load = reload
        self._clock = clock
        self._pulls = Waiting("maxParkedPolls", config.parked_polls_max)
        self._heartbeats = Waiting("maxParkedPolls", config.parked_polls_max)
        self._syncer = SyncThread()
        self._persister = ThreadPoolExecutor(1, "persist")
        self._indexer = ThreadPoolExecutor(1, "timers")
        bounded = config.model_copy(update={"connections_max": connections})
        self._grpc = GrpcServer(bounded, keys)
        self._remoting = RemotingServer(bounded, keys)
        self._protocols: list[ProtocolServer] = [self._grpc, self._remoting]
        if config.metrics_port:
            self._protocols.append(MetricsServer(config, keys))
        if config.web_port:
            self._protocols.append(web_server(config, keys))
        self._commit: GroupCommit
        self._delivery: Delivery
        self._indexing: Indexing

    def appended(self, topic: str, queue_id: int) -> None:
        self._commit.appended(topic, queue_id)

    def due_sooner(self, wait_queue: int) -> None:
        self._delivery.due_sooner(wait_queue)

    async def run(self, on_ready: Ready) -> int:
        # First of all: without this handler SIGHUP ends the process.
        reload_asked = _event_of(signal.SIGHUP)
        store = drained = None
        try:
            # If a port is taken, the store is not even opened.
            for protocol in self._protocols:
                await protocol.bind()
            ports = {
                "listen_port": self._remoting.port,
                "name_server_port": self._remoting.name_server_port,
            }
            config = self._config.model_copy(update=ports)
            await check_cluster(config, self._connecting)
            store = _opened_store(config, self._clock)
            drained = await self._until_stopped(config, store, reload_asked, on_ready)
        except BaseExceptionGroup as group:
            _log_stop(group)
        finally:
            await self._end()
            if store is not None and drained is None:
                store.release()
        return EXIT_FAILED if drained is None else _closed(drained, self._indexing)

    async def _until_stopped(
        self,
        config: BrokerConfig,
        store: MessageStore,
        reload_asked: asyncio.Event,
        on_ready: Ready,
    ) -> Broker:
        """Serve until a signal, then drain; return the broker, which no task uses any more."""
        stop = _event_of(signal.SIGTERM, signal.SIGINT)
        broker = Broker(config, store, self._clock, self)
        rebalancing = Rebalancing(broker.membership, self._heartbeats, self._clock)
        self._commit = GroupCommit(config, store, self._syncer, self._pulls.wake)
        watch = ClockWatch(self._clock, self._clock.machine, store.clock_origin)
        self._indexing = Indexing(broker, self._clock, self._indexer, self.due_sooner)
        registering = Registering(config, broker, self._clock, self._connecting)
        upkeep = Upkeep(config, broker, self._persister, watch, registering.changed)
        # Before the first call: a broker that starts on a full disk refuses sends.
        upkeep.look_at_disk(clean=False)
        service = Service(self._service_parts(config, broker, registering))
        async with Loops() as tasks:
            loops = {
                "group commit": self._commit.run(),
                "persist": upkeep.persist(),
                "upkeep": upkeep.look(),
                "traffic": upkeep.sample(),
                "reload": Reload(self._config, self._load, broker.levels).run(reload_asked),
                "redrive": Redriving(broker, self._commit, self._clock).run(),
                "rebalance": rebalancing.run(),
                "leases": Expiring(broker, self._clock).run(),
                "transactions": CheckingBack(
                    config, broker, self._commit, service.transactions
                ).run(),
            }
            loops |= {"timers": self._indexing.write(), "old timers": self._indexing.catch_up()}
            loops |= {files.name: files.run() for files in self._watched}
            running = [tasks.create_task(loop, name=name) for name, loop in loops.items()]
            self._delivery = Delivery(broker, self._clock, tasks)
            self._clock.on_jump = self._delivery.wake_overdue
            for sentence in service.open_ports:
                log.warning("%s", sentence)
            for protocol in self._protocols:
                await protocol.open(
                    Running(service, tasks, broker, self._commit, watch, self._grpc.port)
                )
            looking = tasks.create_task(Watch(self._protocols).run(), name="watch")
            registering.begin(tasks)
            # Objects that exist now live as long as the broker; reference counts free those of
            # a call at its end: a search for cycles would nearly always find none.
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            on_ready(self._endpoints())
            await stop.wait()
            # From now on ports are closed one after the other, and tasks end.
            looking.cancel()
            tasks.drain()
            # Clients go to the cluster's other brokers while the calls here end.
            await registering.close()
            await self._drain(service, running)
        return broker

    async def _drain(self, service: Service, running: Sequence[asyncio.Task[None]]) -> None:
        notify(STOPPING)
        log.info("draining parked_calls=%d", service.parked)
        service.close()
        await asyncio.gather(*[protocol.drain() for protocol in self._protocols])
        self._delivery.close()
        for task in running:
            task.cancel()

    def _service_parts(
        self, config: BrokerConfig, broker: Broker, registering: Registering
    ) -> ServiceParts:
        return ServiceParts(
            config=config,
            broker=broker,
            commit=self._commit,
            pulls=self._pulls,
            heartbeats=self._heartbeats,
            clock=self._clock,
            access=self._access,
            limits=limits_of(config),
            watched=self._watched,
            name_servers=registering.statuses,
            other_queues=registering.queues_of,
        )

    def _endpoints(self) -> Endpoints:
        remoting = self._remoting
        ports = (self._grpc.port, remoting.port, remoting.name_server_port)
        return Endpoints(*[f"{self._config.bind_address}:{port}" for port in ports])

    async def _end(self) -> None:
        """Close all ports, then wait until the threads have written.

        A late write must not replace the tables that are written last with older ones.
        """
        for protocol in self._protocols:
            await protocol.close()
        self._syncer.close()
        self._persister.shutdown()
        self._indexer.shutdown()


def _give_memory_back() -> None:
    """Keep glibc from raising its thresholds up to 32 MiB, to the size of what was freed last."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, OWN_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * OWN_BLOCK_BYTES)


def _event_of(*signals: signal.Signals) -> asyncio.Event:
    """An event that each of these signals sets."""
    event = asyncio.Event()
    for signal_number in signals:
        asyncio.get_running_loop().add_signal_handler(signal_number, event.set)
    return event


def _log_stop(group: BaseExceptionGroup) -> None:
    """Why the broker stops: a failed disk in one line, a mistake of ours with its stack."""
    failed, others = group.split(FlushFailed)
    if failed is None or others is not None:
        log.critical("the broker stops, the next start will recover the store", exc_info=group)
        return
    error: BaseException = failed
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    log.critical("the disk has failed, the next start will recover the store error=%s", error)


def _closed(broker: Broker, indexing: Indexing) -> int:
    """Close the store; return the exit code: 0 if all that was acknowledged is on disk."""
    try:
        indexing.close()
        broker.store.close(broker.tables())
    except StoreUnavailable as error:
        # The log is synced before, and all but the newest committed offsets is made of it again.
        broker.store.release()
        log.warning(
            "the tables cannot be written, the next start will recover them from the log;"
            " groups may get some messages again error=%s",
            error,
        )
    except Unavailable as error:
        broker.store.release()
        log.critical("the store cannot be closed, the next start will recover it error=%s", error)
        return EXIT_FAILED
    return 0


def _opened_store(config: BrokerConfig, clock: SystemClock) -> MessageStore:
    files = SystemFiles()
    if not has_log(files, config.store_path):
        config.check_new_store()
    names = files.names(config.store_path / "config")
    store = MessageStore(config, files, clock)
    log.info(
        "store opened path=%s log_end=%d recovered_records=%d",
        config.store_path,
        store.end,
        store.recovered,
    )
    for sentence in missing_tables(store, config, names):
        log.warning("%s", sentence)
    return store
