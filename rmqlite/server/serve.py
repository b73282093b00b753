"""Open the store, run everything in one TaskGroup, drain, close.

If any loop dies the broker stops loudly and leaves the store as after a crash: the next
start recovers it.  A stop by signal drains: parked calls are answered, running ones finish,
then store and tables are closed so that RocketMQ, too, would find a clean shutdown.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rmqlite.broker.broker import Broker
from rmqlite.clock import SystemClock
from rmqlite.config import BrokerConfig
from rmqlite.errors import Unavailable
from rmqlite.server.clock_watch import ClockWatch
from rmqlite.server.delivery import Delivery
from rmqlite.server.exposure import warn_of_open_ports
from rmqlite.server.faces.face import Face, Running
from rmqlite.server.faces.metrics.face import MetricsFace
from rmqlite.server.faces.native.face import NativeFace
from rmqlite.server.front.front import Front
from rmqlite.server.group_commit import GroupCommit
from rmqlite.server.rebalancing import Rebalancing
from rmqlite.server.redriving import Redriving
from rmqlite.server.reload import Reload
from rmqlite.server.upkeep import Upkeep
from rmqlite.server.waiting import Waiting
from rmqlite.server.web import web_face
from rmqlite.store.file_sizes import has_log
from rmqlite.store.files import SystemFiles
from rmqlite.store.message_store import MessageStore

SWITCH_S: Final = 0.000_5
GC_OBJECTS: Final = 50_000
EXIT_FAILED: Final = 1

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
        self._native = NativeFace(config)
        self._faces: list[Face] = [self._native]
        if config.metrics_port:
            self._faces.append(MetricsFace(config))
        if config.web_port:
            self._faces.append(web_face(config))
        self._commit: GroupCommit
        self._delivery: Delivery

    def appended(self, topic: str, queue_id: int) -> None:
        self._commit.appended(topic, queue_id)

    def due_sooner(self) -> None:
        self._delivery.due_sooner()

    async def run(self, on_ready: Callable[[str], None]) -> int:
        # Before anything that takes long: until then this signal ends the process.
        reload_asked = _event_of(signal.SIGHUP)
        store = drained = None
        try:
            # A broker that cannot have a port does not even open its store.
            for face in self._faces:
                await face.bind()
            config = self._config.model_copy(update={"listen_port": self._native.port})
            store = _opened_store(config, self._clock)
            drained = await self._until_stopped(config, store, reload_asked, on_ready)
        except BaseExceptionGroup as group:
            log.critical("the broker stops, the next start will recover the store", exc_info=group)
        finally:
            await self._end()
            if store is not None and drained is None:
                store.release()
        return EXIT_FAILED if drained is None else _closed(drained)

    async def _until_stopped(
        self,
        config: BrokerConfig,
        store: MessageStore,
        reload_asked: asyncio.Event,
        on_ready: Callable[[str], None],
    ) -> Broker:
        """Serve until a signal, then drain; the broker, which nobody uses any more."""
        stop = _event_of(signal.SIGTERM, signal.SIGINT)
        broker = Broker(config, store, self._clock, self)
        rebalancing = Rebalancing(broker.membership, self._heartbeats, self._clock)
        self._commit = GroupCommit(config, store, self._syncer, self._pulls.wake)
        watch = ClockWatch(self._clock, self._clock.machine, store.clock_origin)
        upkeep = Upkeep(config, broker, self._persister, watch)
        # Before the first call: a broker that starts on a full disk takes no send.
        upkeep.look_at_disk(clean=False)
        front = Front(config, broker, self._commit, self._pulls, self._heartbeats, self._clock)
        async with asyncio.TaskGroup() as tasks:
            loops = {
                "group commit": self._commit.run(),
                "persist": upkeep.persist(),
                "upkeep": upkeep.look(),
                "reload": Reload(self._config, self._load, broker.levels).run(reload_asked),
                "redrive": Redriving(broker, self._commit, self._clock).run(),
                "rebalance": rebalancing.run(),
            }
            running = [tasks.create_task(loop, name=name) for name, loop in loops.items()]
            self._delivery = Delivery(broker, self._clock, tasks)
            warn_of_open_ports(config)
            for face in self._faces:
                await face.open(Running(front, tasks, broker, self._commit, watch))
            # What is alive now lives as long as the broker, and what a call makes dies
            # with it by reference count: looking for cycles is nearly always in vain.
            gc.freeze()
            gc.set_threshold(GC_OBJECTS, 20, 100)
            on_ready(f"{config.bind_address}:{config.listen_port}")
            await stop.wait()
            log.info("draining parked_calls=%d", front.parked)
            front.close()
            await asyncio.gather(*[face.drain() for face in self._faces])
            self._delivery.close()
            for task in running:
                task.cancel()
        return broker

    async def _end(self) -> None:
        """Answer nobody any more; then wait for what the threads are writing.

        Nothing older may follow the last tables.
        """
        for face in self._faces:
            await face.close()
        self._syncer.shutdown()
        self._persister.shutdown()


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
