"""The loops of the process that act beside the calls: assignments, SIGHUP; and what loops share.

The server runs each until it is cancelled.  Other calls get their turns between two steps.  What
the disk refuses for a while is tried again; a sync that fails ends the loop, and so the broker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Final

from rmqlite.kernel.config.config import KEYS, BrokerConfig
from rmqlite.kernel.service.turns import done_in_turns, set_or_late
from rmqlite.kernel.service.waiting import ParkedCalls
from rmqlite.kernel.tables.membership import SMALL_MEMBERS_MAX, Membership
from rmqlite.kernel.waits.wait_queues import LevelChanges
from rmqlite.kernel.words.clock import WAKE_MS_MAX, Clock, elapsed_s
from rmqlite.kernel.words.errors import ConfigInvalid, RmqliteError, StoreUnavailable

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"

REST_MS: Final = 1_000
"""How long a loop rests after a step that failed."""
LIVE: Final = "message_delay_level"
log = logging.getLogger(__name__)


class Outage:
    """Work that the disk refuses for a while: logs when that begins and when it is over."""

    def __init__(self, begins: str, ends: str) -> None:
        self._begins = begins
        self._ends = ends
        self.failures = 0
        """How many attempts have failed since the last success."""

    def failed(self, error: RmqliteError) -> None:
        if not self.failures:
            log.warning("%s error=%s", self._begins, error)
        self.failures += 1

    def succeeded(self) -> None:
        if self.failures:
            log.warning("%s failed_attempts=%d", self._ends, self.failures)
        self.failures = 0


async def due_or_woken(due_ms: int | None, wake: asyncio.Event, clock: Clock) -> None:
    """Return when an instant has come, or the event is set; perhaps earlier."""
    if due_ms is None:
        await wake.wait()
    elif (wait_ms := due_ms - clock.now_ms()) > 0:
        await set_or_late(wake, min(wait_ms, WAKE_MS_MAX) / 1000)


class Rebalancing:
    """Works out assignments of large groups in steps, and wakes their members a few at a time.

    The members of a small group are all woken at once.  heartbeats: those that wait, by group.
    """

    def __init__(self, membership: Membership, heartbeats: ParkedCalls, clock: Clock) -> None:
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
                await due_or_woken(due_ms, self._wake, self._clock)

    def _changed(self, group: str) -> None:
        """Wake the members of a group that has a new assignment."""
        if self._heartbeats.count_of(group) <= SMALL_MEMBERS_MAX:
            self._heartbeats.wake((group,))
        else:
            self._to_wake.add(group)
            self._wake.set()


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


def reloading() -> str:
    """The state while the file is read again; with the time, as Type=notify-reload wants it."""
    return f"RELOADING=1\nMONOTONIC_USEC={int(elapsed_s() * 1_000_000)}"


def notify(state: str) -> None:
    """Send a state, if somebody listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # Linux' abstract addresses begin with a zero byte, which no variable can have.
    address = "\0" + address[1:] if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.setblocking(False)
            manager.sendto(state.encode("ascii"), address)
    except OSError as error:
        log.warning("the service manager cannot be notified state=%r error=%s", state, error)
