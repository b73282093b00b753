"""Work at intervals: persist tables, expire silent members, watch disk and clocks.

A write that fails, because the disk is full for example, is tried again in a later round.  A
sync that fails ends the broker: the data that it covered may be gone, and no later sync would
report that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rmqlite.broker.broker import Broker
from rmqlite.broker.figures.traffic import SAMPLE_S
from rmqlite.clock import local_text, wall_ms
from rmqlite.config import BrokerConfig
from rmqlite.errors import StoreUnavailable
from rmqlite.server.clock_watch import ClockWatch
from rmqlite.server.outage import Outage
from rmqlite.server.turns import done_in_turns
from rmqlite.views.levels import level_text

PERSIST_BYTES_MAX: Final = 64 << 20
PERSIST_RECORDS_MAX: Final = 100_000
"""New log above either limit is persisted before the interval ends; so both bound a recovery."""
PERSIST_LOOK_S: Final = 0.5
LOOK_S: Final = 1.0
"""How often look() checks clocks, members and disk."""
PIN_WARNING_S: Final = 3600.0
"""How often the log warns that an undelivered message keeps old log files."""

log = logging.getLogger(__name__)


class Upkeep:
    """Three loops, run by the server until they are cancelled."""

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
        self._told_full = False
        self._next_pin_warning = self._loop.time()

    async def persist(self) -> None:
        """Write offsets and progress at their interval, or earlier after many appends.

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
                if is_much and not self._persist_outage.failures:
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

    async def sample(self) -> None:
        """Take samples of the traffic at their interval."""
        while True:
            await asyncio.sleep(SAMPLE_S)
            await done_in_turns(self._broker.traffic.sample())

    async def look(self) -> None:
        """Check the clocks; expire silent members; measure the disk; remove expired files."""
        clean_s = self._config.clean_interval_ms / 1000
        next_clean = self._loop.time() + clean_s
        while True:
            await asyncio.sleep(LOOK_S)
            self._watch.look()
            self._broker.membership.expire()
            self._broker.locks.expire()
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
        self._tell_whether_full()

    def _clean(self) -> None:
        try:
            removed = self._broker.retention.clean(wall_ms())
            self._broker.deleting.forget_old()
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

    def _tell_whether_full(self) -> None:
        retention = self._broker.retention
        if retention.is_disk_full and not self._told_full:
            log.warning(
                "disk full, sends are refused used_ratio=%.3f diskSpaceWarningLevelRatio=%d",
                retention.used_ratio,
                self._config.disk_warning_ratio,
            )
        elif self._told_full and not retention.is_disk_full:
            log.warning("sends are accepted again used_ratio=%.3f", retention.used_ratio)
        if self._told_full != retention.is_disk_full:
            self._told_full = retention.is_disk_full
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
            level_text(pin.level),
            local_text(pin.deliver_at_ms),
            pin.physical_offset,
        )
