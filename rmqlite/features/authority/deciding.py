"""A broker's side of the authority: a master renews its lease, a standby waits for the end of it.

A master counts its lease from before it asked for it, and stops at two thirds of it, by a clock
that also passes while the machine is suspended.  So it is silent before anybody else may lead,
whatever was slow.  Who is in sync is changed in the record before it counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from rmqlite.features.authority.record import (
    MasterRecord,
    RecordChanged,
    RecordEntry,
    Register,
    Step,
    next_step,
)
from rmqlite.features.authority.settings import call_s, own_address
from rmqlite.features.standby.following import Following
from rmqlite.features.standby.leading import Leading
from rmqlite.features.standby.role import OPEN
from rmqlite.features.standby.terms import terms_of
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.process.loops import Outage
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import Clock
from rmqlite.kernel.words.errors import (
    FlushFailed,
    NotMaster,
    Refused,
    RmqliteError,
    Unavailable,
)

RENEWALS: Final = 5
"""In the time of a lease."""
LOOK_S: Final = 0.5
RETRY_S: Final = 0.25
T = TypeVar("T")
log = logging.getLogger(__name__)


class LogIdentity(NamedTuple):
    """id: of the log's first term, empty if it has none; term: the number of its last one."""

    id: str
    term: int


def own_log(store: MessageStore) -> LogIdentity:
    """Of a store.  Raises StoreDamaged."""
    terms = terms_of(store)
    return LogIdentity(terms[0].id, terms[-1].number) if terms else LogIdentity("", 0)


class Deciding:
    """Of one broker, in either role."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, register: Register, log: Callable[[], LogIdentity]
    ) -> None:
        self._config = config
        self._clock = clock
        self._register = register
        self._log = log
        self._own = own_address(config)
        self._lease_ms = config.authority_lease_ms
        self._seen: RecordEntry | None = None
        """As it was read or written last."""
        self._is_leading = False
        """Is the last entry this master's own?"""
        self._until_ms = 0
        self._is_over = False
        """Another broker is the master from now on."""
        self._changing = asyncio.Lock()
        self._away_since_ms = self._clock.now_ms()
        self._trouble = "it has not answered yet"
        self._outage = Outage(
            "the authority does not answer, will be tried again", "the authority answers again"
        )
        self.peer = ""

    def attach(self, parts: ServiceParts) -> None:
        """Before the first call: a master answers none until it may lead."""
        for side in (parts.broker.get(Leading), parts.broker.get(Following)):
            if side is not None:
                side.authority = self
        if parts.broker.get(Leading):
            parts.access.closed_to = self.closed_to

    async def run_deciding(self, parts: ServiceParts) -> None:
        """Ask the authority until it is cancelled."""
        leading = parts.broker.get(Leading)
        try:
            if leading is not None:
                await asyncio.gather(self._lead(leading), self._fence(parts))
            else:
                await self._stand_by(parts.broker[Following])
        finally:
            await self._register.close_register()

    # ---- what the standby's feature asks

    @property
    def may_lead(self) -> bool:
        return self._clock.now_ms() < self._until_ms

    def closed_to(self, name: str) -> None:
        if not self.may_lead and name not in OPEN:
            raise NotMaster("", self._why_silent)

    async def note_peer(self, address: str) -> None:
        in_sync = (self._own, address) if address else (self._own,)
        async with self._changing:
            entry = self._own_entry()
            if entry.record.in_sync != in_sync:
                # An answer that does not come leaves it open.
                self.peer = self.peer or address
                await self._write(replace(entry.record, in_sync=in_sync), entry)
                log.info("in sync, as the authority knows brokers=%s", ",".join(in_sync))
            self.peer = address

    async def hand_over(self, address: str) -> None:
        async with self._changing:
            entry = self._own_entry()
            in_sync = (self._own, address)
            await self._write(replace(entry.record, master=address, in_sync=in_sync), entry)
            self._is_over = True

    async def take_over(self, *, force: bool) -> None:
        async with self._changing:
            found = await self._asked(self._register.read_record())
            self._seen = found
            if found is not None and not force:
                self._check_may_take(found)
            await self._claim(found)

    def add_to(self, status: ReplicationStatus) -> ReplicationStatus:
        record = self._seen.record if self._seen else None
        trouble = self._reason
        return replace(
            status,
            authority=self._config.authority,
            unheard_since_ms=self._away_since_ms,
            authority_master=record.master if record else "",
            lease_left_ms=max(0, self._until_ms - self._clock.now_ms()),
            in_sync=record.in_sync if record else (),
            trouble="; ".join(filter(None, (status.trouble, trouble))),
        )

    # ---- the master

    async def _lead(self, leading: Leading) -> None:
        while not self._is_over:
            pause_s = self._lease_ms / 1000 / RENEWALS
            try:
                async with self._changing:
                    await self.hold(leading)
            except RecordChanged:
                self._is_leading, pause_s = False, 0.0
            except RmqliteError as error:
                self._failed(error)
                pause_s = RETRY_S
            await asyncio.sleep(pause_s)
        # A task that ends would end the broker.
        await asyncio.Event().wait()

    async def hold(self, leading: Leading) -> None:
        """Renew the lease, or take it.  Raises RecordChanged, RmqliteError."""
        if self._is_over:
            return
        began_ms = self._clock.now_ms()
        if self._is_leading:
            self._seen = await self._asked(self._register.renew_lease(self._own_entry()))
        elif not await self._taken(leading):
            return
        was_silent = not self.may_lead
        self._until_ms = began_ms + self._lease_ms * 2 // 3
        if was_silent:
            log.info("this broker may lead authority=%s", self._config.authority)

    async def _taken(self, leading: Leading) -> bool:
        """Take the record, unless another broker has it."""
        found = self._seen = await self._asked(self._register.read_record())
        own = self._log()
        step = next_step(found, self._own, own.id, is_master=True)
        if step is not Step.LEAD:
            self._is_over = True
            self._until_ms = 0
            other = self._config.master_address
            await leading.follow_the_other(other or (found.record.master if found else ""))
            return False
        is_kept = found is not None and found.record.master == self._own and not leading.is_alone
        in_sync = found.record.in_sync if found and is_kept else (self._own,)
        self.peer = next((each for each in in_sync if each != self._own), "")
        record = MasterRecord(self._own, own.term, in_sync, own.id)
        self._seen = await self._asked(self._register.write_record(record, found, leases=True))
        self._is_leading = True
        return True

    async def _fence(self, parts: ServiceParts) -> None:
        """End the calls that wait when the lease is out."""
        while True:
            while self.may_lead:
                await asyncio.sleep(max(0.001, (self._until_ms - self._clock.now_ms()) / 1000))
            if self._until_ms and not self._is_over:
                log.error("the lease is out, nothing is answered reason=%s", self._trouble)
            parts.commit.refuse_waiters(FlushFailed(self._why_silent, is_final=False))
            while not self.may_lead:
                await asyncio.sleep(RETRY_S / 5)

    # ---- the standby

    async def _stand_by(self, following: Following) -> None:
        while True:
            try:
                async with self._changing:
                    await self.look(following)
            except RmqliteError as error:
                self._failed(error)
            await asyncio.sleep(LOOK_S)

    async def look(self, following: Following) -> None:
        """Take over, if the lease is out and this standby has all."""
        found = self._seen = await self._asked(self._register.read_record())
        if following.is_promoted or found is None or self._step(found) is not Step.LEAD:
            return
        if found.is_held and following.hears_master:
            # It hands over, and will say so.
            return
        await self._claim(found)
        await following.lead()

    async def _claim(self, found: RecordEntry | None) -> None:
        own = self._log()
        number = max(own.term, found.record.term if found else 0) + 1
        record = MasterRecord(self._own, number, (self._own,), own.id)
        try:
            self._seen = await self._asked(self._register.write_record(record, found, leases=True))
        except RecordChanged:
            raise Unavailable("another broker has become the master meanwhile") from None
        log.warning("this broker has become the master at the authority term=%d", number)

    def _check_may_take(self, found: RecordEntry) -> None:
        """Raises Refused."""
        record = found.record
        if found.is_held and record.master != self._own:
            rule = "rmqlite standby switch there, or --force"
            raise Refused(f"the authority says that {record.master} leads: {rule}", rule=rule)
        if self._step(found) is not Step.LEAD:
            rule = "start the other one, or --force"
            who = ", ".join(record.in_sync)
            raise Refused(f"the authority says that only {who} has all: {rule}", rule=rule)

    # ---- parts

    def _step(self, found: RecordEntry) -> Step:
        return next_step(found, self._own, self._log().id, is_master=False)

    def _own_entry(self) -> RecordEntry:
        if not self._is_leading or self._seen is None:
            raise Unavailable(self._why_silent)
        return self._seen

    async def _write(self, record: MasterRecord, replaced: RecordEntry) -> None:
        """Change an own record, under the lease that it has.  Raises Unavailable."""
        try:
            self._seen = await self._asked(
                self._register.write_record(record, replaced, leases=False)
            )
        except RecordChanged:
            self._is_leading = False
            raise Unavailable("the authority has another master") from None

    async def _asked(self, asked: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(2 * call_s(self._config)):
                answer = await asked
        except TimeoutError:
            raise Unavailable("it does not answer") from None
        self._outage.succeeded()
        self._away_since_ms, self._trouble = 0, ""
        return answer

    def _failed(self, error: RmqliteError) -> None:
        self._trouble = str(error)
        self._outage.failed(error)
        if not self._away_since_ms:
            self._away_since_ms = self._clock.now_ms()

    @property
    def _why_silent(self) -> str:
        return f"it may not lead, the authority {self._config.authority} is away: {self._trouble}"

    @property
    def _reason(self) -> str:
        """What an operator should mend, a sentence, or ""."""
        if self._away_since_ms:
            return f"the authority {self._config.authority} is away: {self._trouble}"
        step = self._step(self._seen) if self._seen else Step.FOLLOW
        if step is Step.FORBIDDEN:
            return "the authority knows another log: promote the broker that has it with --force"
        return ""
