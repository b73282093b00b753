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
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from rmqlite.kernel import compiled
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.delivery import Announcements, DeliveryTasks
from rmqlite.kernel.process.indexing import Indexing
from rmqlite.kernel.process.loops import READY, STOPPING, Rebalancing, Reload, notify
from rmqlite.kernel.process.protocol_server import Endpoints, Neighbours, ProtocolServer, Running
from rmqlite.kernel.process.upkeep import ClockWatch, Loops, Upkeep, Watch
from rmqlite.kernel.service.access import Access, Limits
from rmqlite.kernel.service.group_commit import GroupCommit, SyncThread
from rmqlite.kernel.service.part import ServiceParts, Watched
from rmqlite.kernel.service.service import Feature, Service
from rmqlite.kernel.service.turns import event_loop
from rmqlite.kernel.service.waiting import ParkedCalls
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.store.opening.file_sizes import has_log
from rmqlite.kernel.words.clock import SystemClock
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable, Unavailable
from rmqlite.kernel.words.message import host_text

SWITCH_S: Final = 0.000_5
GC_THRESHOLDS: Final = (5_000, 5, 400)
"""gRPC leaves a circle of objects for each call.  A collection of so many new objects takes less
than 20 ms; ten times as many took 200."""
EXIT_FAILED: Final = 1
EXIT_AGAIN: Final = 75
"""The store is closed, and shall be served again in another role."""
STOP_SIGNALS: Final[dict[signal.Signals, Any]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
"""With what Python does at each of them."""
OWN_BLOCK_BYTES: Final = 1 << 20
"""From this size on each block of memory is a mapping of its own, which goes back to the system as
soon as it is free: the beginnings of long frames would else leave holes between other blocks."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

Ready = Callable[[Endpoints], None]
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What a broker is made of, beside the kernel.

    ports: of each protocol, in the order in which they are opened.  open_ports: what others can do
    there without an account, a sentence for each address.  clock: another one only in tests.
    store: opens it.
    """

    config: BrokerConfig
    ports: Sequence[ProtocolServer] = ()
    features: Sequence[Feature] = ()
    access: Access = field(default_factory=Access)
    limits: Limits | None = None
    watched: Sequence[Watched] = ()
    neighbours: Neighbours = field(default_factory=Neighbours)
    open_ports: Sequence[str] = ()
    clock: SystemClock = field(default_factory=SystemClock)
    store: Callable[..., MessageStore] = MessageStore


def serve(
    assembly: Assembly,
    on_ready: Ready | None = None,
    reload: Callable[[], BrokerConfig] | None = None,
) -> int:
    """Run a broker until SIGTERM or SIGINT; return the exit code: EXIT_AGAIN asks for another run.

    on_ready is called with the addresses when calls are accepted.  reload is called at a SIGHUP
    and reads the configuration again; None if there is no file.  Raises StoreLocked,
    StoreDamaged, StoreUnavailable, ConfigInvalid and InvalidValue when it cannot start.
    """
    # The thread that syncs must run soon after the disk has answered.
    sys.setswitchinterval(SWITCH_S)
    _give_memory_back()
    loop, name = event_loop()

    def ready(endpoints: Endpoints) -> None:
        if on_ready:
            on_ready(endpoints)
        notify(READY)

    log.info("the broker starts form=%s event_loop=%s", compiled.form(), name)
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(_Server(assembly, reload).run(ready))


class _Server:
    """One broker process."""

    def __init__(self, assembly: Assembly, reload: Callable[[], BrokerConfig] | None) -> None:
        self._assembly = assembly
        self._config = config = assembly.config
        self._load = reload
        self._clock = assembly.clock
        self._pulls = ParkedCalls("maxParkedPolls", config.parked_polls_max)
        self._heartbeats = ParkedCalls("maxParkedPolls", config.parked_polls_max)
        self._syncer = SyncThread()
        self._persister = ThreadPoolExecutor(1, "persist")
        self._indexer = ThreadPoolExecutor(1, "timers")
        self._announced = Announcements()
        self._indexing: Indexing
        self._stop = asyncio.Event()
        self._code = 0
        self._is_ended = False
        """By a signal."""

    async def run(self, on_ready: Ready) -> int:
        # First of all: without this handler SIGHUP ends the process.
        reload_asked = _event_of(signal.SIGHUP)
        store = drained = None
        try:
            # If a port is taken, the store is not even opened.
            ports: dict[str, int] = {}
            for protocol in self._assembly.ports:
                await protocol.bind()
                ports |= protocol.ports
            config = self._config.model_copy(update=ports)
            await self._assembly.neighbours.check(config)
            store = _opened_store(config, self._clock, self._assembly.store)
            drained = await self._until_stopped(config, store, reload_asked, on_ready)
        except BaseExceptionGroup as group:
            _log_stop(group)
        finally:
            await self._end()
            if drained is None:
                self._leave_signals()
                if store is not None:
                    store.release()
        if drained is None:
            return EXIT_FAILED
        code = _closed(drained, self._indexing)
        self._leave_signals()
        return code or (0 if self._is_ended else self._code)

    async def _until_stopped(
        self,
        config: BrokerConfig,
        store: MessageStore,
        reload_asked: asyncio.Event,
        on_ready: Ready,
    ) -> Broker:
        """Serve until a signal, then drain; return the broker, which no task uses any more."""
        self._take_signals()
        features, neighbours = self._assembly.features, self._assembly.neighbours
        broker = Broker(config, store, self._clock, self._announced, [f.make for f in features])
        _log_tables(store)
        rebalancing = Rebalancing(broker.membership, self._heartbeats, self._clock)
        announced = self._announced
        announced.commit = GroupCommit(config, store, self._syncer, self._pulls.wake)
        watch = ClockWatch(self._clock, self._clock.machine, store.clock_origin)
        self._indexing = Indexing(broker, self._clock, self._indexer, announced.due_sooner)
        neighbours.meet(config, broker, self._clock)
        upkeep = Upkeep(config, broker, self._persister, watch, neighbours.changed)
        # Before the first call: a broker that starts on a full disk refuses sends.
        upkeep.look_at_disk(clean=False)
        parts = self._service_parts(config, broker)
        service = Service(parts, [kind for feature in features for kind in feature.calls])
        service.serve_again = self._serve_again
        async with Loops() as tasks:
            loops = {
                "group commit": announced.commit.run(),
                "persist": upkeep.persist(),
                "upkeep": upkeep.look(),
                "reload": Reload(self._config, self._load, broker.levels).run(reload_asked),
                "rebalance": rebalancing.run(),
            }
            for feature in features:
                loops |= feature.loops(parts, service)
            loops |= {"timers": self._indexing.write(), "old timers": self._indexing.catch_up()}
            loops |= {files.name: files.watch() for files in self._assembly.watched}
            running = [tasks.create_task(loop, name=name) for name, loop in loops.items()]
            announced.delivery = DeliveryTasks(broker, self._clock, tasks)
            self._clock.on_jump = announced.delivery.wake_overdue
            for sentence in service.open_ports:
                log.warning("%s", sentence)
            opened = Running(service, tasks, broker, announced.commit, watch, config)
            for protocol in self._assembly.ports:
                await protocol.open(opened)
            looking = tasks.create_task(Watch(self._assembly.ports).run(), name="watch")
            neighbours.begin(tasks)
            # Objects that exist now live as long as the broker; reference counts free those of
            # a call at its end: a search for cycles would nearly always find none.
            gc.freeze()
            gc.set_threshold(*GC_THRESHOLDS)
            on_ready(_endpoints(config))
            await self._stop.wait()
            # From now on ports are closed one after the other, and tasks end.
            looking.cancel()
            tasks.drain()
            # Clients go to the cluster's other brokers while the calls here end.
            await neighbours.close()
            await self._drain(service, running)
        return broker

    def _take_signals(self) -> None:
        """Not as the loop does it: between two runs none would be read."""
        loop = asyncio.get_running_loop()

        def end(_number: int, _frame: object) -> None:
            self._is_ended = True
            loop.call_soon_threadsafe(self._stop.set)

        for number in STOP_SIGNALS:
            signal.signal(number, end)

    def _leave_signals(self) -> None:
        """One that has come was taken; before another run a later one ends the process."""
        is_again = self._code == EXIT_AGAIN and not self._is_ended
        for number, default in STOP_SIGNALS.items():
            signal.signal(number, _exit if is_again else default)

    def _serve_again(self) -> None:
        """Drain, and begin anew; a signal ends the process all the same."""
        self._code = EXIT_AGAIN
        self._stop.set()

    async def _drain(self, service: Service, running: Sequence[asyncio.Task[None]]) -> None:
        notify(STOPPING)
        for step in service.before_drain:
            await step()
        log.info("draining parked_calls=%d", service.parked)
        service.close()
        await asyncio.gather(*[protocol.drain() for protocol in self._assembly.ports])
        self._announced.delivery.close()
        for task in running:
            task.cancel()

    def _service_parts(self, config: BrokerConfig, broker: Broker) -> ServiceParts:
        assembly = self._assembly
        return ServiceParts(
            config=config,
            broker=broker,
            commit=self._announced.commit,
            pulls=self._pulls,
            heartbeats=self._heartbeats,
            clock=self._clock,
            access=assembly.access,
            limits=assembly.limits,
            watched=assembly.watched,
            name_servers=assembly.neighbours.statuses,
            other_queues=assembly.neighbours.queues_of,
            open_ports=assembly.open_ports,
        )

    async def _end(self) -> None:
        """Close all ports, then wait until the threads have written.

        A late write must not replace the tables that are written last with older ones.
        """
        for protocol in self._assembly.ports:
            await protocol.close()
        self._syncer.close()
        self._persister.shutdown()
        self._indexer.shutdown()


def _endpoints(config: BrokerConfig) -> Endpoints:
    ports = (config.grpc_port, config.listen_port, config.name_server_port)
    return Endpoints(*[host_text(config.bind_address, port) for port in ports])


def _give_memory_back() -> None:
    """Keep glibc from raising its thresholds up to 32 MiB, to the size of what was freed last."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, OWN_BLOCK_BYTES)
        mallopt(_M_TRIM_THRESHOLD, 2 * OWN_BLOCK_BYTES)


def _exit(_number: int, _frame: object) -> None:
    """Between two runs no store is open."""
    raise SystemExit(0)


def _event_of(number: signal.Signals) -> asyncio.Event:
    """An event that this signal sets."""
    event = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(number, event.set)
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


def _log_tables(store: MessageStore) -> None:
    """Append what the tables of an older version, or RocketMQ's, have and the log lacks."""
    if store.end > store.min_offset:
        # On a full disk the next start, or the next change, does it.
        with suppress(StoreUnavailable):
            store.log_tables()


def _opened_store(
    config: BrokerConfig, clock: SystemClock, opened: Callable[..., MessageStore]
) -> MessageStore:
    files = SystemFiles()
    if not has_log(files, config.store_path):
        config.check_new_store()
    store = opened(config, files, clock)
    log.info(
        "store opened path=%s log_end=%d recovered_records=%d",
        config.store_path,
        store.end,
        store.recovered,
    )
    return store
