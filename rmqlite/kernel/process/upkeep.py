"""Work at intervals: persist tables, expire silent members, watch disk and clocks.

A write that fails, because the disk is full for example, is tried again in a later round.  A
sync that fails ends the broker: the data that it covered may be gone, and no later sync would
report that.

The broker's clock follows neither a step of the wall clock nor a suspend of the machine, so no
message is early or late because of one.  But an operator who compares times must know of it.

What fails ends the broker by its error.  But a task that only returns or is cancelled, a thread
that is gone, or a port that is closed would leave a protocol dead, or the disk unwritten, while
health says that all is well: so these end the broker, too.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Protocol

from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.loops import Outage
from rmqlite.kernel.records.wait_queues import TIMERS
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.store.tables.clock_table import AHEAD_MS_MIN, Origin
from rmqlite.kernel.words.clock import Clock, Machine, local_text, wall_ms
from rmqlite.kernel.words.errors import StoreUnavailable

PARTS_LOOK_S: Final = 0.5
THREADS: Final = ("sync", "persist", "timers", "asyncio")
"""The beginnings of the names of threads that live as long as the broker, once they have begun."""
PERSIST_BYTES_MAX: Final = 64 << 20
PERSIST_RECORDS_MAX: Final = 100_000
"""New log above either limit is persisted before the interval ends; so both bound a recovery."""
PERSIST_LOOK_S: Final = 0.5
LOOK_S: Final = 1.0
"""How often look() checks clocks, members and disk."""
PIN_WARNING_S: Final = 3600.0
"""How often the log warns that an undelivered message keeps old log files."""
STEP_MS_MIN: Final = 500
"""Smaller moves of the wall clock against the broker's are not reported; drift adds up to it."""
SUSPEND_MS_MIN: Final = 1_000
READ_MS_MAX: Final = 50
"""If reading the clocks one after the other took longer, they cannot be compared."""
FORWARD: Final = "forward"
BACK: Final = "back"
log = logging.getLogger(__name__)


class Upkeep:
    """Two loops, run by the server until they are cancelled."""

    def __init__(
        self,
        config: BrokerConfig,
        broker: Broker,
        persister: ThreadPoolExecutor,
        watch: ClockWatch,
        on_full: Callable[[], None],
    ) -> None:
        """on_full: called when the disk is full, and when it is no longer."""
        self._config = config
        self._on_full = on_full
        self._broker = broker
        self._watch = watch
        self._persister = persister
        self._loop = asyncio.get_running_loop()
        self._persist_outage = Outage(
            "offsets and progress cannot be written, will be tried again",
            "offsets and progress are written again",
        )
        self._measure_outage = Outage(
            "the disk's use cannot be measured, will be tried again",
            "the disk's use is measured again",
        )
        self._clean_outage = Outage(
            "log files cannot be removed, will be tried again", "log files are removed again"
        )
        self._is_persisting = False
        self._logged_full = False
        self._next_pin_warning = self._loop.time()

    async def persist(self) -> None:
        """Write tables and progress at their interval, or earlier after a change or many appends.

        Raises FlushFailed.
        """
        loop, store, config = self._loop, self._broker.store, self._config
        shorter_ms = min(
            config.flush_consumer_offset_interval_ms, config.flush_delay_offset_interval_ms
        )
        while True:
            until = loop.time() + shorter_ms / 1000
            while (left_s := until - loop.time()) > 0:
                await asyncio.sleep(min(left_s, PERSIST_LOOK_S))
                behind_bytes = store.end - store.persisted_end
                is_much = (
                    behind_bytes > PERSIST_BYTES_MAX or store.unpersisted > PERSIST_RECORDS_MAX
                )
                # RocketMQ reads the files, and it may be started after a SIGKILL.
                if (is_much or store.tables.changed) and not self._persist_outage.failures:
                    break
            job = store.begin_persist(self._broker.tables())
            self._is_persisting = True
            try:
                await loop.run_in_executor(self._persister, job.run)
            except StoreUnavailable as error:
                # store.persisted() is not called, so the next job does this one's work, too.
                self._persist_outage.failed(error)
            else:
                store.persisted(job)
                self._persist_outage.succeeded()
            finally:
                self._is_persisting = False

    async def look(self) -> None:
        """Check the clocks; expire silent members; measure the disk; remove expired files."""
        clean_s = self._config.clean_interval_ms / 1000
        next_clean = self._loop.time() + clean_s
        while True:
            await asyncio.sleep(LOOK_S)
            self._watch.look()
            self._broker.membership.expire()
            # Remove nothing while a persist job runs: it would miss the files that it syncs.
            is_due = self._loop.time() >= next_clean and not self._is_persisting
            if is_due:
                next_clean = self._loop.time() + clean_s
            self.look_at_disk(clean=is_due)
            if is_due:
                await self._carry()
                self._warn_of_pin()
            if not self._is_persisting:
                self._trim()

    def look_at_disk(self, *, clean: bool) -> None:
        """Measure the disk, remove expired files if clean, and log warnings for the operator."""
        retention = self._broker.retention
        try:
            retention.measure()
        except StoreUnavailable as error:
            self._measure_outage.failed(error)
            return
        self._measure_outage.succeeded()
        if clean:
            self._clean()
        self._log_whether_full()

    def _clean(self) -> None:
        try:
            removed = self._broker.retention.clean(wall_ms())
            for forget in self._broker.retention.on_clean:
                forget()
        except StoreUnavailable as error:
            self._clean_outage.failed(error)
            return
        self._clean_outage.succeeded()
        if removed:
            log.info("log files removed count=%d", removed)

    async def _carry(self) -> None:
        try:
            carried = await done_in_turns(self._broker.retention.carry())
        except StoreUnavailable as error:
            self._clean_outage.failed(error)
            return
        if carried:
            log.info("pending timers carried to the log's end count=%d", carried)

    def _trim(self) -> None:
        try:
            self._broker.store.trim_queues()
            self._broker.store.deletions.remove_files()
        except StoreUnavailable as error:
            self._clean_outage.failed(error)

    def _log_whether_full(self) -> None:
        retention = self._broker.retention
        if retention.is_disk_full and not self._logged_full:
            log.warning(
                "disk full, sends are refused used_ratio=%.3f diskSpaceWarningLevelRatio=%d"
                " disk_bytes=%d log_bytes=%d",
                retention.used_ratio,
                self._config.disk_warning_ratio,
                retention.disk_bytes,
                self._broker.store.end - self._broker.store.min_offset,
            )
        elif self._logged_full and not retention.is_disk_full:
            log.warning("sends are accepted again used_ratio=%.3f", retention.used_ratio)
        if self._logged_full != retention.is_disk_full:
            self._logged_full = retention.is_disk_full
            self._on_full()

    def _warn_of_pin(self) -> None:
        pin = self._broker.retention.pin
        if not pin.kept_bytes or self._loop.time() < self._next_pin_warning:
            return
        self._next_pin_warning = self._loop.time() + PIN_WARNING_S
        if not pin.level:
            log.warning(
                "an open half message keeps expired log files bytes=%d physical_offset=%d",
                pin.kept_bytes,
                pin.physical_offset,
            )
            return
        log.warning(
            "an undelivered message keeps expired log files bytes=%d level=%s due=%s"
            " physical_offset=%d",
            pin.kept_bytes,
            "timer" if pin.level == TIMERS else pin.level,
            local_text(pin.deliver_at_ms),
            pin.physical_offset,
        )


class ClockWatch:
    """Notices that the wall clock stepped or the machine slept; logs it and counts it.

    Two clocks are compared at each look(): if their difference changes, one stepped.
    """

    def __init__(self, clock: Clock, machine: Machine, origin: Origin) -> None:
        """Warn if the broker's clock differs from the wall clock already."""
        self._clock = clock
        self._machine = machine
        self.steps = {FORWARD: 0, BACK: 0}
        """How often the wall clock stepped, by direction."""
        self.suspends = 0
        self.suspended_ms = 0
        """How long the machine was suspended, since the broker started."""
        self._logged_ahead_ms = self.ahead_of_wall_ms()
        self._logged_asleep_ms = self._asleep_ms()
        self._log_start(origin)

    def ahead_of_wall_ms(self) -> int:
        """The broker's clock less the wall clock."""
        return self._clock.now_ms() - self._machine.wall_ns() // 1_000_000

    def look(self) -> None:
        """Compare the clocks; to be called about once a second."""
        before_ms = self._clock.now_ms()
        ahead_ms, asleep_ms = self.ahead_of_wall_ms(), self._asleep_ms()
        if self._clock.now_ms() - before_ms > READ_MS_MAX:
            # The process was stopped, or the machine slept, in between: the next look notices it.
            return
        slept_ms = asleep_ms - self._logged_asleep_ms
        if slept_ms >= SUSPEND_MS_MIN:
            self._logged_asleep_ms = asleep_ms
            self.suspends += 1
            self.suspended_ms += slept_ms
            log.warning(
                "the machine was suspended, messages that fell due are delivered now seconds=%.3f",
                slept_ms / 1000,
            )
        step_ms = self._logged_ahead_ms - ahead_ms
        if abs(step_ms) >= STEP_MS_MIN:
            self._logged_ahead_ms = ahead_ms
            direction = FORWARD if step_ms > 0 else BACK
            self.steps[direction] += 1
            log.warning(
                "the wall clock stepped, delays are not affected direction=%s seconds=%.3f"
                " clock_ahead_of_wall_seconds=%.3f",
                direction,
                abs(step_ms) / 1000,
                ahead_ms / 1000,
            )

    def _asleep_ms(self) -> int:
        """How long the machine slept; only the difference of two values means something."""
        return (self._machine.boot_ns() - self._machine.awake_ns()) // 1_000_000

    def _log_start(self, origin: Origin) -> None:
        ahead_ms = self._logged_ahead_ms
        if abs(ahead_ms) <= AHEAD_MS_MIN:
            return
        if origin is Origin.STORE and ahead_ms > 0:
            reason = "the newest time in its store is later than the wall clock"
        else:
            reason = "the wall clock stepped since its last run, and messages are pending"
        log.warning(
            "the broker's clock is not the wall clock: %s; delays are not affected"
            " clock_ahead_of_wall_seconds=%.3f",
            reason,
            ahead_ms / 1000,
        )


class EndedSilently(Exception):
    """A part has ended before the broker drained."""


class Loops(asyncio.TaskGroup):
    """Tasks that run until drain(): one that ends before ends all of them with an error."""

    def __init__(self) -> None:
        super().__init__()
        self._is_over = False

    def drain(self) -> None:
        """From now on tasks may end."""
        self._is_over = True

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        """As in the base class, whose signature differs from one Python to the next."""
        task = super().create_task(coro, **more)
        task.add_done_callback(self._ended)
        return task

    async def __aexit__(self, *error: Any) -> None:
        self._is_over = self._is_over or error[0] is not None
        await super().__aexit__(*error)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if self._is_over:
            return
        # Its end, or the error that follows, cancels the others.
        self._is_over = True
        if task.cancelled() or task.exception() is None:
            super().create_task(_fail(f"the task {task.get_name()!r} has ended"))


async def _fail(sentence: str) -> None:
    raise EndedSilently(sentence)


class OpenPort(Protocol):
    """A port."""

    @property
    def is_listening(self) -> bool:
        """Are connections accepted?"""
        ...


class Watch:
    """Looks at the threads and at the ports."""

    def __init__(self, protocols: Sequence[OpenPort]) -> None:
        self._protocols = protocols
        self._seen: set[threading.Thread] = set()

    async def run(self) -> None:
        """Look again and again.  Raises EndedSilently."""
        while True:
            self.look(threading.enumerate())
            await asyncio.sleep(PARTS_LOOK_S)

    def look(self, running: Iterable[threading.Thread]) -> None:
        """Raises EndedSilently if a thread is gone, or a port is closed."""
        found = {each for each in running if each.name.startswith(THREADS)}
        for gone in self._seen - found:
            raise EndedSilently(f"the thread {gone.name!r} has ended")
        self._seen = found
        for protocol in self._protocols:
            if not protocol.is_listening:
                raise EndedSilently(f"the port of {type(protocol).__name__} is closed")
