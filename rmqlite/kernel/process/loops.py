"""The loops of the process that act beside the calls: assignments, redrives, transactions, SIGHUP.

The server runs each until it is cancelled.  Other calls get their turns between two steps.  What
the disk refuses for a while is tried again; a sync that fails ends the loop, and so the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rmqlite.features.redrive.redrive import STEP_DEAD_LETTERS_MAX
from rmqlite.features.redrive.requests import RedriveJob
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.process.notify import READY, notify, reloading
from rmqlite.kernel.schedule.level_changes import LevelChanges
from rmqlite.kernel.schedule.pace import Pace
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.service.messages import TransactionCalls
from rmqlite.kernel.service.turns import done_in_turns, let_others, set_or_late
from rmqlite.kernel.service.waiting import Waiting
from rmqlite.kernel.tables.membership import SMALL_MEMBERS_MAX, Membership
from rmqlite.kernel.words.clock import WAKE_MS_MAX, Clock
from rmqlite.kernel.words.errors import ConfigInvalid, FlushFailed, RmqliteError, StoreUnavailable

REST_MS: Final = 1_000
"""How long a job rests after a step that failed."""
LIVE: Final = "message_delay_level"
log = logging.getLogger(__name__)


class Outage:
    """Work that the disk refuses for a while: logs when that begins and when it is over."""

    def __init__(self, begins: str, ends: str) -> None:
        self._begins = begins
        self._ends = ends
        self.failures = 0
        """How many attempts have failed since the last success."""

    def failed(self, error: StoreUnavailable) -> None:
        if not self.failures:
            log.warning("%s error=%s", self._begins, error)
        self.failures += 1

    def succeeded(self) -> None:
        if self.failures:
            log.warning("%s failed_attempts=%d", self._ends, self.failures)
        self.failures = 0


async def _due_or_woken(due_ms: int | None, wake: asyncio.Event, clock: Clock) -> None:
    """Return when an instant has come, or the event is set; perhaps earlier."""
    if due_ms is None:
        await wake.wait()
    elif (wait_ms := due_ms - clock.now_ms()) > 0:
        await set_or_late(wake, min(wait_ms, WAKE_MS_MAX) / 1000)


class Rebalancing:
    """Works out assignments of large groups in steps, and wakes their members a few at a time.

    The members of a small group are all woken at once.  heartbeats: those that wait, by group.
    """

    def __init__(self, membership: Membership, heartbeats: Waiting, clock: Clock) -> None:
        self._membership = membership
        self._heartbeats = heartbeats
        self._clock = clock
        self._wake = asyncio.Event()
        self._to_wake: set[str] = set()
        membership.on_change.append(self._changed)
        membership.on_stale = self._wake.set

    async def run(self) -> None:
        while True:
            self._wake.clear()
            while self._to_wake:
                await self._heartbeats.wake_in_turns(self._to_wake.pop())
            due_ms = self._membership.due_ms()
            if due_ms is not None and due_ms <= self._clock.now_ms():
                await done_in_turns(self._membership.rebalance())
            else:
                await _due_or_woken(due_ms, self._wake, self._clock)

    def _changed(self, group: str) -> None:
        """Wake the members of a group that has a new assignment."""
        if self._heartbeats.count_of(group) <= SMALL_MEMBERS_MAX:
            self._heartbeats.wake((group,))
        else:
            self._to_wake.add(group)
            self._wake.set()


class Redriving:
    """Runs redrive jobs: one step of each job in turn, on disk before its next step.

    A job that is paused, rests or waits for its rate holds up no other.  Jobs that were running
    when the broker stopped continue when it starts.  After a step that cannot be stored the job
    rests, and its note says why it stands still.
    """

    def __init__(self, broker: Broker, commit: GroupCommit, clock: Clock) -> None:
        self._broker = broker
        self._commit = commit
        self._clock = clock
        self._wake = asyncio.Event()
        self._paces: dict[str, Pace] = {}
        self._rests_until_ms: dict[str, int] = {}
        broker.redrive.on_change.append(self._wake.set)

    async def run(self) -> None:
        """Raises FlushFailed."""
        while True:
            self._wake.clear()
            await _due_or_woken(await self._round(), self._wake, self._clock)

    async def _round(self) -> int | None:
        """Step each job that may continue.  Return when the next may; None if none is running."""
        running = self._broker.redrive.running()
        ids = {job.job_id for job in running}
        for known in (self._paces, self._rests_until_ms):
            for job_id in known.keys() - ids:
                del known[job_id]
        return min([await self._turn(job) for job in running], default=None)

    async def _turn(self, job: RedriveJob) -> int:
        """Step one job if it may.  Return when its next step may come."""
        now_ms = self._clock.now_ms()
        rests_until_ms = self._rests_until_ms.get(job.job_id, 0)
        if rests_until_ms > now_ms:
            return rests_until_ms
        pace = self._pace(job)
        free = pace.free(now_ms, STEP_DEAD_LETTERS_MAX)
        if not free:
            return pace.free_at_ms(now_ms)
        redrive = self._broker.redrive
        try:
            stepped = redrive.step(job.job_id, free)
        except FlushFailed:
            # Ends this task, and so the broker.
            raise
        except RmqliteError as error:
            self._rest(job, error)
            return self._clock.now_ms() + REST_MS
        # At the end of the append: with its start, a slow one would bring two shares closer.
        pace.take(self._clock.now_ms(), stepped.sent)
        try:
            await self._commit.durable(self._broker.store.end)
        except (FlushFailed, StoreUnavailable) as error:
            if isinstance(error, FlushFailed) and error.is_final:
                raise
            self._rest(job, error)
            return self._clock.now_ms() + REST_MS
        if self._rests_until_ms.pop(job.job_id, 0):
            log.warning("a redrive continues job=%s", job.job_id)
            redrive.note(job.job_id, "")
        await let_others()
        return now_ms

    def _pace(self, job: RedriveJob) -> Pace:
        pace = self._paces.get(job.job_id)
        if pace is None or pace.rate_max != job.spec.max_per_second:
            pace = self._paces[job.job_id] = Pace(job.spec.max_per_second)
        return pace

    def _rest(self, job: RedriveJob, error: RmqliteError) -> None:
        if job.job_id not in self._rests_until_ms:
            log.warning("a redrive failed, it is tried again job=%s error=%s", job.job_id, error)
        self._rests_until_ms[job.job_id] = self._clock.now_ms() + REST_MS
        self._broker.redrive.note(job.job_id, str(error))


class Expiring:
    """Ends leases when they are due, a few messages in a step.

    What becomes of a message is appended like any other, and whoever waits for it is woken.
    """

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._ending = broker.leases.ending
        self._clock = clock
        self._wake = asyncio.Event()
        self._outage = Outage("leases cannot end, it is tried again", "leases end again")
        broker.leases.table.on_end_sooner = self._wake.set

    async def run(self) -> None:
        """Raises FlushFailed."""
        while True:
            self._wake.clear()
            due_ms = self._step()
            if due_ms is not None and due_ms <= self._clock.now_ms():
                await let_others()
            else:
                await _due_or_woken(due_ms, self._wake, self._clock)

    def _step(self) -> int | None:
        """Do a step; when the next one is due."""
        try:
            due_ms = self._ending.expire()
        except StoreUnavailable as error:
            self._outage.failed(error)
            return self._clock.now_ms() + REST_MS
        self._outage.succeeded()
        return due_ms


class CheckingBack:
    """Asks producers at an interval how their open transactions ended.

    A round goes over all half messages that are open when it begins.  A question leaves when the
    copy of its half message is on disk.  While the disk is full nobody is asked, because each
    question stores a copy.
    """

    def __init__(
        self, config: BrokerConfig, broker: Broker, commit: GroupCommit, producers: TransactionCalls
    ) -> None:
        self._interval_s = config.transaction_check_interval_ms / 1000
        self._broker = broker
        self._commit = commit
        self._producers = producers
        self._outage = Outage(
            "transactions cannot be checked, it is tried again", "transactions are checked again"
        )

    async def run(self) -> None:
        """Raises FlushFailed."""
        while True:
            await asyncio.sleep(self._interval_s)
            if self._broker.retention.is_disk_full:
                continue
            try:
                await self.round()
            except FlushFailed as error:
                if error.is_final:
                    raise
                log.warning("questions to producers wait, the disk is slow error=%s", error)
            except StoreUnavailable as error:
                self._outage.failed(error)
            else:
                self._outage.succeeded()

    async def round(self) -> None:
        """Check every half message that is open now.  Raises StoreUnavailable, FlushFailed."""
        transactions = self._broker.transactions
        rest = transactions.begin_round()
        while rest is not None:
            checked = transactions.check(rest, self._producers.has_producer)
            rest = checked.rest
            if checked.questions:
                await self._commit.durable(self._broker.store.end)
            for question in checked.questions:
                self._producers.ask(question)
            await let_others()


class Reload:
    """Reads the configuration file again after a SIGHUP.

    Only messageDelayLevel takes effect at once.  One warning names the other changed keys, which
    take effect at the next start.  A file with an error changes nothing; the log says why.
    """

    def __init__(
        self, config: BrokerConfig, load: Callable[[], BrokerConfig] | None, levels: LevelChanges
    ) -> None:
        """config: the one at the start.  load: reads the current one; None if there is no file."""
        self._config = config
        self._load = load
        self._levels = levels

    async def run(self, asked: asyncio.Event) -> None:
        """Read the file each time asked is set.  Raises FlushFailed."""
        while True:
            await asked.wait()
            asked.clear()
            notify(reloading())
            self.read()
            notify(READY)

    def read(self) -> None:
        """Read the file now.  Raises FlushFailed."""
        if self._load is None:
            log.warning("the broker was started without a configuration file, SIGHUP reads none")
            return
        try:
            config = self._load()
            changed = self._levels.configure(config.levels)
        except ConfigInvalid as error:
            log.error("the configuration cannot be used, nothing has changed error=%s", error)
            return
        except StoreUnavailable as error:
            log.error("the new delay levels cannot be stored, the old ones stay error=%s", error)
            return
        if changed.before == changed.after:
            log.info("configuration read again, the delay levels stay levels=%r", changed.after)
        self._warn_of_others(config)

    def _warn_of_others(self, config: BrokerConfig) -> None:
        names = [
            key
            for name, key in KEYS.items()
            if name != LIVE and getattr(config, name) != getattr(self._config, name)
        ]
        if names:
            log.warning("these keys take effect at the next start keys=%s", ",".join(names))
