"""The master's side: its log goes to the standby as it grows, and what must have two copies waits.

One standby follows at a time; whoever comes later takes its place.  What is read for it comes from
the files, and no more than WINDOW_BYTES are under way, so a slow standby costs neither memory nor
a turn of the loop.  What the standby has on its disk moves store.copied_end, by which calls are
answered and consumers read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

from rmqlite.features.standby.authority import Authority, ByHand, other_leads
from rmqlite.features.standby.copied_store import next_piece
from rmqlite.features.standby.role import (
    OPEN,
    SLAVE,
    BrokerRole,
    role_of,
    save_role_aside,
    to_follow,
)
from rmqlite.features.standby.terms import begin_term, common_end, terms_of
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.kernel.service.part import ServiceParts
from rmqlite.kernel.service.service import Service
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.clock import Clock, elapsed_s
from rmqlite.kernel.words.errors import FlushFailed, NotMaster, Refused, Unavailable
from rmqlite.protocols.native.replication import (
    FollowerFrame,
    MasterFrame,
    Read,
    Write,
    pack_offsets,
    read_follower,
)

PIECE_BYTES: Final = 256 << 10
"""The most bytes of the log in a frame: a standby enters so many in a few milliseconds."""
WINDOW_BYTES: Final = 8 << 20
"""The most bytes that were sent and are not on the standby's disk."""
BEAT_S: Final = 1.0
AWAY_S: Final = 3.0
"""A standby from which nothing has come for so long is away, or one that gets nothing done."""
LOOK_S: Final = 0.25
HAND_OVER_S: Final = 3.0
log = logging.getLogger(__name__)


class StandbyCall:
    """One call of a standby."""

    def __init__(self, first: FollowerFrame, begin: int, write: Write) -> None:
        self.address, self.url = first.address, first.url or first.address
        self.write = write
        self.sent = self.known = begin
        # After a lost connection it may have what its disk has not.
        self.acked = min(begin, first.synced_end) if first.end else begin
        self.wake = asyncio.Event()
        self.took_over = asyncio.Event()
        self.sending = asyncio.Lock()
        self.is_over = self.is_beat_due = False
        self.began_s = elapsed_s()

    def beat(self) -> None:
        """Say the clock soon, and each second again."""
        if self.is_over:
            return
        self.is_beat_due = True
        self.wake.set()
        asyncio.get_running_loop().call_later(BEAT_S, self.beat)

    def end_call(self) -> None:
        self.is_over = True
        self.wake.set()


class Leading:
    """Of a broker that is the master."""

    def __init__(self, broker: Broker) -> None:
        """Begins a term, unless there never was a standby.  Raises StoreUnavailable."""
        self._broker = broker
        self._store = store = broker.store
        self._config = broker.parts.config
        self._clock: Clock = broker.parts.clock
        self._role = role_of(self._config)
        self._needs_copy = self._config.in_sync_replicas == 2
        # A former master whose disk is new has no log of its own, and may follow.
        self._is_new = self._needs_copy and store.end == store.min_offset
        if not self._is_new and (self._needs_copy or terms_of(store)):
            begin_term(store)
        self._session: StandbyCall | None = None
        self._peer = ""
        self._acked = 0
        self._heard_s = elapsed_s()
        """When the standby was last heard, and had something done, or nothing to do."""
        self._behind_since_ms = 0
        self._saving = asyncio.Lock()
        self._is_handing_over = False
        self._is_followed = asyncio.Event()
        self.authority: Authority = ByHand()
        # What the standby had before the start is not known: readers go on where they were.
        if self._waits:
            store.copied_end = store.end

    @property
    def _waits(self) -> bool:
        """Must a standby have what is acknowledged?"""
        return self._needs_copy and not self._role.alone_since_ms

    @property
    def is_alone(self) -> bool:
        """Is what this broker alone has acknowledged?"""
        return self._role.alone_since_ms > 0

    def attach(self, parts: ServiceParts, service: Service) -> None:
        self._commit = parts.commit
        self._access = parts.access
        self._service = service
        if self._is_new:
            self._commit.refusal = Unavailable(self._absence)
        service.replication = self.status
        service.before_drain.append(self._leave)

    def status(self) -> tuple[ReplicationStatus, ...]:
        """What an operator should know; nothing if there never was a standby."""
        terms, session = terms_of(self._store), self._session
        if not terms and not self._needs_copy:
            return ()
        behind = self._store.end - self._acked if self._peer else 0
        refusal = self._commit.refusal
        trouble = str(refusal) if refusal else ""
        if self._needs_copy and self._role.alone_since_ms:
            trouble = "messages are acknowledged with one copy, until a standby has all"
        status = ReplicationStatus(
            self._config.broker_role,
            term=terms[-1].number if terms else 0,
            peer=self._peer,
            is_connected=session is not None,
            end=self._acked,
            behind_bytes=behind,
            behind_since_ms=self._behind_since_ms if behind or not session else 0,
            alone_since_ms=self._role.alone_since_ms,
            trouble=trouble,
        )
        return (self.authority.add_to(status),)

    @property
    def _is_away(self) -> bool:
        return elapsed_s() - self._heard_s > AWAY_S

    @property
    def _absence(self) -> str:
        return f"the standby is away, and inSyncReplicas=2: {self._peer or 'none has come'}"

    async def watch(self) -> None:
        """Refuse messages while the standby that must have them is away."""
        if not self._needs_copy:
            await self._is_followed.wait()
        while True:
            rest_s = self._heard_s + AWAY_S - elapsed_s()
            await asyncio.sleep(min(BEAT_S, max(LOOK_S, rest_s)))
            self._note_behind()
            if not self._waits or self._is_handing_over:
                continue
            session, is_away = self._session, self._is_away
            if not is_away:
                await self._note_copy()
            if not is_away or await self._goes_alone():
                continue
            if self._commit.refusal is None:
                log.error("the standby is away, messages are refused peer=%s", self._peer)
            self._commit.refusal = Unavailable(self._absence)
            self._commit.refuse_waiters(FlushFailed(self._absence, is_final=False))
            if session is not None:
                # A call is no sign of life: who cannot write calls again and again.
                if elapsed_s() - session.began_s > AWAY_S:
                    session.end_call()
            elif self._config.master_address:
                await self._ask_the_other()

    def _note_behind(self) -> None:
        session = self._session
        if session is not None and session.acked == self._store.end:
            self._behind_since_ms = 0
        elif self._peer and not self._behind_since_ms:
            self._behind_since_ms = self._clock.now_ms()

    async def _note_copy(self) -> None:
        """Let the standby take over, if it has all that was acknowledged."""
        session = self._session
        if session is not None and session.acked >= self._store.durable_end:
            with suppress(Unavailable):
                await self.authority.note_peer(session.address)

    async def _goes_alone(self) -> bool:
        """Acknowledge with one copy, if that is asked for and nobody else can be the master."""
        if not self._config.auto_in_sync_replicas or self._config.min_in_sync_replicas == 2:
            return False
        try:
            await self.authority.note_peer("")
        except Unavailable:
            return False
        if not await self._save(replace(self._role, alone_since_ms=self._clock.now_ms())):
            return False
        self._store.copied_end = MessageStore.copied_end
        self._commit.refusal = None
        self._commit.settle()
        log.error("the standby is away, one copy is acknowledged from now on peer=%s", self._peer)
        return True

    async def _ask_the_other(self) -> None:
        """Follow the other broker, if it was promoted: here nothing is acknowledged without it."""
        has_led, file_bytes = bool(terms_of(self._store)), self._store.log_file_bytes
        if await other_leads(
            self._config, self._access, file_bytes, has_led=has_led, seconds=AWAY_S
        ):
            await self.follow_the_other(self._config.master_address)

    async def follow_the_other(self, address: str) -> None:
        """Be its standby from the next start on, which follows.  Raises StoreUnavailable."""
        log.warning("the other broker is the master, this one follows address=%s", address)
        self._keep_closed(address)
        await self._save(BrokerRole(SLAVE, address))
        self._service.serve_again()

    # ---- a call of a standby

    async def follow(self, read: Read, write: Write) -> None:
        """Ship the log until the standby is gone.  Raises Refused, InvalidValue."""
        data = await read()
        if data is None:
            return
        first = read_follower(data)
        if not (first.address or terms_of(self._store)):
            # Whoever asks who is the master does not follow: the log begins with who does.
            raise NotMaster("", "it has no log yet")
        begin = await self._begin(first)
        noted = self.authority.peer
        if noted and (noted != first.address or begin < self._store.copied_end):
            # It must not take over before it has all again.
            await self.authority.note_peer("")
        if self._session is not None:
            self._session.end_call()
        session = self._session = StandbyCall(first, begin, write)
        self._peer = first.address
        self._is_followed.set()
        log.info("a standby follows peer=%s from=%d end=%d", self._peer, begin, self._store.end)
        self._commit.on_start = partial(self._wake, session)
        acks = asyncio.create_task(self._take_acks(session, read))
        try:
            await self._ship(session)
        finally:
            session.end_call()
            acks.cancel()
            with suppress(asyncio.CancelledError):
                await acks
            if self._session is session:
                self._session = self._commit.on_start = None
            log.warning("the standby has gone peer=%s has=%d", self._peer, session.acked)

    async def _begin(self, first: FollowerFrame) -> int:
        """Where its log goes on.  Raises Refused."""
        store = self._store
        if self._is_handing_over:
            raise NotMaster(self._peer)
        if not self.authority.may_lead:
            raise NotMaster("", "it may not lead: rmqlite standby show")
        if first.log_file_bytes != store.log_file_bytes:
            rule = f"mappedFileSizeCommitLog={store.log_file_bytes}, as the master's"
            raise Refused(f"the log files must be as long: {rule}", rule=rule)
        if not terms_of(store):
            begin_term(store)
        terms = terms_of(store)
        # Nobody else may have a term that this broker could lose.
        while store.synced_end <= terms[-1].start:
            self._sync()
            await asyncio.sleep(0.005)
        if first.end == 0:
            return store.min_offset
        begin = common_end(terms, store.end, first.terms, first.end)
        if begin < 0 and first.log_id == terms[0].id and first.end <= terms[0].start:
            begin = first.end
        if begin < 0:
            rule = "a standby begins with an empty store, or with a copy of the master's"
            raise Refused(f"the standby has another log: {rule}", rule=rule)
        if begin < store.min_offset:
            rule = "remove its store, and start it"
            sentence = f"the standby ends at {begin}, and the master begins at {store.min_offset}"
            raise Refused(f"{sentence}: {rule}", rule=rule)
        return begin

    async def _ship(self, session: StandbyCall) -> None:
        store, terms, offsets = self._store, terms_of(self._store), self._broker.offsets
        changes = -1
        await session.write(
            MasterFrame(
                session.sent,
                log_id=terms[0].id,
                log_file_bytes=store.log_file_bytes,
                is_alone=bool(self._role.alone_since_ms),
                term=terms[-1].number,
                min_offset=store.min_offset,
                now_ms=self._clock.now_ms(),
                synced_end=store.synced_end,
            ).to_bytes()
        )
        session.beat()
        while not session.is_over:
            session.wake.clear()
            if session.is_beat_due:
                session.is_beat_due = False
                is_new, changes = offsets.changes != changes, offsets.changes
                await self._write(session, b"", await self._encoded_offsets() if is_new else b"")
            if session.sent < store.end and session.sent - session.acked < WINDOW_BYTES:
                piece = next_piece(store, session.sent, session.known, PIECE_BYTES)
                session.sent, session.known, data = piece
                await self._write(session, data)
            else:
                await session.wake.wait()

    def _wake(self, session: StandbyCall) -> None:
        if session.sent < self._store.end:
            session.wake.set()

    async def _encoded_offsets(self) -> bytes:
        tree = self._broker.offsets.snapshot()
        return await asyncio.to_thread(lambda: pack_offsets(tree()))

    async def _write(self, session: StandbyCall, data: bytes, offsets: bytes = b"") -> None:
        frame = MasterFrame(
            session.sent,
            data,
            synced_end=self._store.synced_end,
            now_ms=self._clock.now_ms(),
            min_offset=self._store.min_offset,
            offsets=offsets,
        )
        session.sent += len(data)
        async with session.sending:
            await session.write(frame.to_bytes())

    async def _take_acks(self, session: StandbyCall, read: Read) -> None:
        """Until the call ends.  Raises InvalidValue, for a frame that is none."""
        try:
            while (data := await read()) is not None and self._take_ack(session, data):
                if self._role.alone_since_ms and session.acked >= self._store.synced_end:
                    await self._count_two(session)
        finally:
            session.end_call()

    def _take_ack(self, session: StandbyCall, data: bytes) -> bool:
        """False: it was the last one, or what it says cannot be."""
        frame = read_follower(data)
        if frame.synced_end > session.sent:
            log.error("a standby says that it has what was not sent peer=%s", self._peer)
            return False
        is_done = frame.synced_end > session.acked or session.acked == self._store.end
        session.acked = self._acked = max(session.acked, frame.synced_end)
        if is_done:
            self._heard_s = elapsed_s()
        if frame.has_taken_over:
            session.took_over.set()
            return False
        self._take_copy(session)
        self._wake(session)
        return True

    def _take_copy(self, session: StandbyCall) -> None:
        """Count what the standby has."""
        store = self._store
        if not self._waits or session is not self._session or not self.authority.may_lead:
            return
        store.copied_end = max(store.copied_end, session.acked)
        is_back = store.end - session.acked <= WINDOW_BYTES and not self._is_away
        if self._commit.refusal is not None and is_back:
            self._commit.refusal = None
            log.warning("the standby is back, messages are taken again peer=%s", self._peer)
        self._commit.settle()

    async def _count_two(self, session: StandbyCall) -> None:
        """Wait for two copies from now on: the standby has all.  Raises StoreUnavailable."""
        if not self._needs_copy or session is not self._session:
            return
        if not await self._save(replace(self._role, alone_since_ms=0)):
            return
        self._store.copied_end = session.acked
        log.info("there are two copies again peer=%s", self._peer)
        self._take_copy(session)

    async def _save(self, role: BrokerRole) -> bool:
        """Note a role; False: too late, this is no master any more.  Raises StoreUnavailable."""
        async with self._saving:
            if self._is_handing_over and role.name != SLAVE:
                return False
            await save_role_aside(self._config, role)
            self._role = role
            return True

    def _sync(self) -> None:
        """Let everything be on this disk soon, though no call waits for it."""
        self._commit.wanted()
        self._commit.then(self._store.end, lambda _error: None)

    # ---- handing over

    async def _leave(self) -> None:
        """The broker stops: hand over, if there is a standby that has all."""
        if self._session is None or self._is_handing_over:
            return
        try:
            await self.hand_over()
        except (Refused, Unavailable) as error:
            log.warning("the standby does not take over error=%s", error)

    async def switch(self) -> str:
        """hand_over(), and go on as the standby."""
        try:
            return await self.hand_over()
        finally:
            if self._is_handing_over:
                # Whether or not the other one has said that it is the master: this one is no more.
                asyncio.get_running_loop().call_later(0.05, self._service.serve_again)

    async def hand_over(self) -> str:
        """Let the standby be the master; its address.  From then on nothing is appended here.

        Raises Refused if there is none that has all; Unavailable if it does not answer: then
        neither is the master, until the standby is promoted by hand.
        """
        session, store = self._session, self._store
        if session is None or store.end - session.acked > WINDOW_BYTES or self._is_handing_over:
            rule = "a standby that has all"
            raise Refused(f"there must be {rule}: rmqlite standby show", rule=rule)
        with self._closed(session.address):
            async with asyncio.timeout(HAND_OVER_S):
                while session.acked < store.end:
                    if session.is_over:
                        raise Unavailable("the standby has gone")
                    self._sync()
                    await asyncio.sleep(0.005)
                await self.authority.hand_over(session.address)
        self._keep_closed(session.address)
        await self._save(BrokerRole(SLAVE, await to_follow(self._config, session.url)))
        frame = MasterFrame(
            session.sent,
            synced_end=store.end,
            now_ms=self._clock.now_ms(),
            offsets=await self._encoded_offsets(),
            hands_over=True,
        )
        async with session.sending:
            await session.write(frame.to_bytes())
        try:
            async with asyncio.timeout(HAND_OVER_S):
                await session.took_over.wait()
        except TimeoutError:
            sentence = f"{session.address} has not said that it is the master: promote it"
            raise Unavailable(sentence) from None
        log.info("the standby is the master now address=%s", session.address)
        return session.address

    @contextmanager
    def _closed(self, address: str) -> Iterator[None]:
        """Inside it nobody is served, and nothing is appended; after an error everything is."""
        self._keep_closed(address)
        try:
            yield
        except (TimeoutError, Unavailable) as error:
            self._store.is_copy = self._is_handing_over = False
            self._access.closed_to = self.authority.closed_to
            raise Unavailable(f"the standby was too slow to take over: {error}") from error

    def _keep_closed(self, address: str) -> None:
        self._is_handing_over = self._store.is_copy = True

        def refuse(name: str) -> None:
            if name not in OPEN:
                raise NotMaster(address)

        self._access.closed_to = refuse
