"""The standby's side: it copies the master's log, and says what is on its disk.

What the master says beside the log, its clock and the committed offsets, is kept for the day on
which this broker is the master.  What cannot be copied now is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Final

from rmqlite.features.standby.authority import Authority, ByHand
from rmqlite.features.standby.copied_store import CopiedStore
from rmqlite.features.standby.leading import AWAY_S, BEAT_S
from rmqlite.features.standby.role import (
    OPEN,
    BrokerRole,
    master_name,
    own_url,
    role_of,
    save_role_aside,
)
from rmqlite.features.standby.terms import terms_of
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.process.loops import Outage
from rmqlite.kernel.records.wait_queues import TIMERS, queue_of
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.kernel.retention import Retention
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.store.tables.tables import Tree
from rmqlite.kernel.tables.offsets import TABLE as OFFSETS_TABLE
from rmqlite.kernel.words.clock import Clock, elapsed_s
from rmqlite.kernel.words.errors import (
    FlushFailed,
    NotMaster,
    Refused,
    RmqliteError,
    Unavailable,
)
from rmqlite.kernel.words.message import host_text
from rmqlite.protocols.native.replication import (
    FollowerFrame,
    MasterFrame,
    Read,
    Write,
    followed,
    read_master,
    unpack_offsets,
)

Say = Callable[[FollowerFrame], Awaitable[None]]
RETRY_S: Final = 0.5
_EVER_MS: Final = 1 << 62
_FIRST_S: Final = 5.0
"""How long the master may take for its first answer."""
log = logging.getLogger(__name__)


class MastersRetention(Retention):
    """Removes the log files that the master has removed."""

    masters_begin = 0

    def clean(self, wall_clock_ms: int) -> int:  # noqa: ARG002
        self.measure()
        store, before = self._store, self._store.min_offset
        if before < self.masters_begin:
            store.drop_before(min(self.masters_begin, store.expired_segments(_EVER_MS)))
        return (store.min_offset - before) // store.log_file_bytes


def take_clock(clock: Clock, masters_ms: int) -> None:
    """Turn the clock back to the master's, by which all that waits was promised.

    Only with the first word of a call, which has just been said: later ones may have lain about.
    """
    basis, ahead_ms = clock.basis(), clock.now_ms() - masters_ms
    if basis is not None and ahead_ms > 0:
        clock.go_on_from(replace(basis, offset_ns=basis.offset_ns - ahead_ms * 1_000_000), 0)


class Following:
    """Of a broker that is the standby."""

    def __init__(self, broker: Broker) -> None:
        store = broker.store
        assert isinstance(store, CopiedStore)
        self._broker = broker
        self._store = store
        self._config = broker.parts.config
        self._clock = broker.parts.clock
        self._offsets: Tree = broker.offsets.snapshot()()
        self._retention = MastersRetention(broker.parts, broker.schedule)
        broker.retention = self._retention
        # What features save is of their state at the start: the log has all of it.
        broker.tables_of_features[:] = [self._tables]
        self._service: Service
        self._parts: ServiceParts
        self._heard_s = -AWAY_S
        self._behind_since_ms = 0
        self._masters_end = 0
        self._trouble = "the master has not answered yet"
        self.is_promoted = False
        self.authority: Authority = ByHand()
        self.follow_once = self._follow_master
        """Follow until an error ends it."""
        self._synced = asyncio.Event()
        self._timers_seen = self._timers_end()
        self._outage = Outage(
            "the master cannot be followed, will be tried again", "the master is followed again"
        )

    def attach(self, parts: ServiceParts, service: Service) -> None:
        self._parts, self._service = parts, service
        service.replication = self.status
        parts.access.closed_to = self._refuse

    def status(self) -> tuple[ReplicationStatus, ...]:
        """What an operator should know."""
        terms = terms_of(self._store)
        status = ReplicationStatus(
            self._config.broker_role,
            term=terms[-1].number if terms else 0,
            peer=self._config.master_address,
            is_connected=self.hears_master,
            end=self._masters_end,
            behind_bytes=self.lacking,
            behind_since_ms=self._behind_since_ms,
            trouble=self._trouble,
        )
        return (self.authority.add_to(status),)

    @property
    def lacking(self) -> int:
        """Bytes of the master's log that are not on this disk, as far as this broker knows."""
        return max(0, self._masters_end - self._store.synced_end)

    async def run(self) -> None:
        """Follow, again and again.  Raises FlushFailed."""
        while not self.is_promoted:
            try:
                await self.follow_once()
            except FlushFailed:
                raise
            except RmqliteError as error:
                self._failed(error)
            except TimeoutError:
                self._failed(Unavailable("nothing comes from the master"))
            await asyncio.sleep(RETRY_S)
        await asyncio.Event().wait()

    def _failed(self, error: RmqliteError) -> None:
        self._store.begin_again()
        self._outage.failed(error)
        self._trouble = f"the master's log is not copied: {error}"

    async def promote(self, *, force: bool) -> int:
        """Be the master from the next start on, which follows; the bytes that it lacks.

        Raises Refused, Unavailable.
        """
        if self.hears_master and not force:
            rule = "rmqlite standby switch there, or --force"
            address = self._config.master_address
            raise Refused(f"{address} is a living master: {rule}", rule=rule)
        await self.authority.take_over(force=force)
        return await self.lead()

    async def lead(self) -> int:
        """The same, when that is decided.  Raises StoreUnavailable."""
        lacking = self.lacking
        await self._become_master()
        log.warning("promoted to master end=%d lacking_bytes=%d", self._store.end, lacking)
        asyncio.get_running_loop().call_later(0.05, self._service.serve_again)
        return lacking

    # ---- a call to the master

    async def _follow_master(self) -> None:
        async with followed(self._config, self._parts.access) as (read, write):
            await self._follow(read, write)
        raise Unavailable("the master has closed the call")

    async def _follow(self, read: Read, write: Write) -> None:
        store, config, loop = self._store, self._config, asyncio.get_running_loop()
        role = role_of(config)
        hello = FollowerFrame(
            host_text(config.broker_ip, config.grpc_port),
            store.end if store.end > store.min_offset else 0,
            terms_of(store),
            role.log_id,
            store.log_file_bytes,
            store.synced_end,
            url=own_url(config),
        )
        await write(hello.to_bytes())
        async with asyncio.timeout(_FIRST_S):
            first = await self._read(read)
        if not await self._begins(first, role):
            return
        sending = asyncio.Lock()

        async def say(frame: FollowerFrame) -> None:
            # gRPC fails if two are written at once.
            async with sending:
                await write(frame.to_bytes())

        acks = asyncio.create_task(self._acknowledge(say))
        try:
            async with asyncio.timeout(AWAY_S * 2) as silence:
                while not self.is_promoted:
                    frame = await self._read(read)
                    until_s = loop.time() + AWAY_S * 2
                    # Each call makes a timer.
                    if until_s - (silence.when() or 0) > BEAT_S:
                        silence.reschedule(until_s)
                    if frame.data:
                        await self.enter(frame)
                    else:
                        self._synced.set()
                    if frame.hands_over:
                        await self._take_over(frame, say, read)
        finally:
            acks.cancel()
            with suppress(asyncio.CancelledError):
                await acks

    async def _begins(self, first: MasterFrame, role: BrokerRole) -> bool:
        """Go on where the master begins; False if the store must be opened anew before."""
        store = self._store
        take_clock(self._clock, first.now_ms)
        if first.offset < store.end and store.end > store.min_offset:
            log.error("the master has another log from %d on end=%d", first.offset, store.end)
            await save_role_aside(self._config, replace(role, cut_at=first.offset))
            self._service.serve_again()
            return False
        store.agree()
        if first.log_id != role.log_id:
            await save_role_aside(self._config, replace(role, log_id=first.log_id))
        if store.end == store.min_offset and first.offset:
            store.begin_at(first.offset)
        log.info(
            "following master=%s from=%d of=%d",
            self._config.master_address,
            first.offset,
            first.synced_end,
        )
        return True

    async def _read(self, read: Read) -> MasterFrame:
        data = await read()
        if data is None:
            raise Unavailable("the master has ended the call")
        frame = read_master(data)
        self.hear(frame)
        return frame

    def hear(self, frame: MasterFrame) -> None:
        """The master has said so.  Raises InvalidValue."""
        self._heard_s = elapsed_s()
        self._outage.succeeded()
        self._trouble = ""
        self._masters_end = frame.synced_end
        self._retention.masters_begin = frame.min_offset
        # The new master's clock is never before the old one's last word.
        self._clock.not_before(frame.now_ms)
        if frame.offsets:
            self._offsets = unpack_offsets(frame.offsets)
        if not self.lacking:
            self._behind_since_ms = 0
        elif not self._behind_since_ms:
            self._behind_since_ms = self._clock.now_ms()

    async def enter(self, frame: MasterFrame) -> None:
        """Take bytes of the log.  Raises StoreUnavailable, FlushFailed."""
        self._store.receive(frame.offset, frame.data)
        # The disk works meanwhile.
        self._parts.commit.then(self._store.end, lambda _error: self._synced.set())
        while self._store.enter():
            await asyncio.sleep(0)
        self._notice_timers()

    def _notice_timers(self) -> None:
        """Keep the index of the timers warm."""
        timers, wait_queues = self._store.queue(*queue_of(TIMERS)), self._broker.wait_queues
        if timers is None or self._timers_seen >= timers.max_offset:
            return
        first, self._timers_seen = self._timers_seen, timers.max_offset
        entries = timers.read(first, timers.max_offset - first)
        for queue_offset, entry in enumerate(entries, first):
            is_first = wait_queues.timers is None
            wait_queues.notice(TIMERS, queue_offset, entry.tags_code)
            if is_first:
                # It has read the others itself.
                return

    async def _acknowledge(self, say: Say) -> None:
        """Say what is on the disk: when it has grown, and each second, when the master asks."""
        while True:
            self._synced.clear()
            await say(FollowerFrame(synced_end=self._store.synced_end))
            await self._synced.wait()

    async def _take_over(self, frame: MasterFrame, say: Say, read: Read) -> None:
        if self._store.end != frame.synced_end:
            raise Unavailable("the master hands over before everything was copied")
        await self._parts.commit.durable(self._store.end)
        await self._become_master()
        try:
            await say(FollowerFrame(synced_end=self._store.end, has_taken_over=True))
            log.info("the master has handed over end=%d", self._store.end)
            # It ends the call when it has read that; if this end did, the word could be lost.
            async with asyncio.timeout(BEAT_S):
                while await read() is not None:
                    pass
        except (RmqliteError, TimeoutError) as error:
            log.warning("the master may not know that it has handed over error=%s", error)
        finally:
            asyncio.get_running_loop().call_later(0.05, self._service.serve_again)

    async def _become_master(self) -> None:
        # The other one's address stays: after a loss, this broker asks there who is the master.
        name, other = master_name(self._config), self._config.master_address
        role = BrokerRole(name, other, alone_since_ms=self._clock.now_ms())
        # At once: nobody else may begin the same while it is saved.
        self.is_promoted = True
        try:
            await save_role_aside(self._config, role)
        except BaseException:
            self.is_promoted = False
            raise

    # ---- parts

    @property
    def access(self) -> Access:
        return self._parts.access

    @property
    def hears_master(self) -> bool:
        """Has anything come from it lately?"""
        return elapsed_s() - self._heard_s < AWAY_S

    def _refuse(self, name: str) -> None:
        if name not in OPEN:
            raise NotMaster("" if self.is_promoted else self._config.master_address)

    def _tables(self) -> Mapping[str, Tree]:
        return {OFFSETS_TABLE: self._offsets}

    def _timers_end(self) -> int:
        timers = self._store.queue(*queue_of(TIMERS))
        return timers.max_offset if timers is not None else 0
