"""Two brokers and an authority, on a clock that is moved by hand."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from rmqlite.features.archive.objects import HeadChanged
from rmqlite.features.authority.bucket import BucketRegister
from rmqlite.features.authority.deciding import Deciding, LogIdentity
from rmqlite.features.authority.record import MasterRecord, RecordChanged, RecordEntry, Register
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.words.errors import NotMaster, Refused, RmqliteError, Unavailable
from tests.support.clock import FakeClock, FakeMachine

LEASE_MS = 9_000
LOG = LogIdentity("the log", 1)


class Shared:
    """The authority itself, as etcd is: a record, and a lease that ends by its own clock.

    cut: brokers that get no answer.  loses: a write is done, and its answer does not arrive.
    takes_ms: how long each answer takes.
    """

    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.record: MasterRecord | None = None
        self.version = 0
        self.holder = ""
        self.until_ns = 0
        self.cut: set[str] = set()
        self.loses = False
        self.takes_ms = 0


class FakeRegister:
    """One broker's way to it."""

    def __init__(self, shared: Shared, own: str) -> None:
        self._shared = shared
        self._own = own

    async def read_record(self) -> RecordEntry | None:
        shared = self._asked()
        if shared.record is None:
            return None
        return RecordEntry(
            shared.record, shared.version, shared.machine.boot_ns() < shared.until_ns
        )

    async def write_record(
        self, record: MasterRecord, replaced: RecordEntry | None, *, leases: bool
    ) -> RecordEntry:
        shared = self._asked()
        if (replaced.version if replaced else 0) != shared.version:
            raise RecordChanged
        shared.record, shared.version = record, shared.version + 1
        if leases:
            shared.holder = self._own
            self._begin_lease()
        if shared.loses:
            raise Unavailable("the answer is lost")
        self._wait()
        return RecordEntry(record, shared.version, is_held=True)

    async def renew_lease(self, entry: RecordEntry) -> RecordEntry:
        shared = self._asked()
        is_out = shared.machine.boot_ns() >= shared.until_ns
        if is_out or (shared.holder, shared.version) != (self._own, entry.version):
            raise RecordChanged
        self._begin_lease()
        self._wait()
        return entry

    async def close_register(self) -> None: ...

    def _asked(self) -> Shared:
        self._wait()
        if self._own in self._shared.cut:
            raise Unavailable("cut")
        return self._shared

    def _begin_lease(self) -> None:
        self._shared.until_ns = self._shared.machine.boot_ns() + LEASE_MS * 1_000_000

    def _wait(self) -> None:
        self._shared.machine.forward(self._shared.takes_ms // 2)


class FakeBucket:
    """An object store's conditional put."""

    url = "s3://bucket"

    def __init__(self, shared: Shared, own: str) -> None:
        self._shared = shared
        self._own = own

    def lock(self, _name: str) -> None: ...

    async def versioned(self, _name: str) -> Any:
        shared = self._asked()
        return (shared.record, shared.version) if shared.record else None

    async def put_versioned(self, _name: str, data: Any, replaced: Any) -> Any:
        shared = self._asked()
        if (replaced or 0) != shared.version:
            raise HeadChanged
        shared.record, shared.version = data, shared.version + 1
        if shared.loses:
            raise Unavailable("the answer is lost")
        return shared.version

    def _asked(self) -> Shared:
        self._shared.machine.forward(self._shared.takes_ms)
        if self._own in self._shared.cut:
            raise Unavailable("cut")
        return self._shared


class FakeBroker:
    """Both sides of the standby's feature."""

    def __init__(self, shared: Shared, number: int, kind: str) -> None:
        self.own, other = f"127.0.0.1:{number}", f"127.0.0.1:{3 - number}"
        self._config = BrokerConfig(
            **{  # type: ignore[arg-type]
                "broker_role": "SYNC_MASTER",
                "in_sync_replicas": 2,
                "grpc_port": number,
                "master_address": other,
                "authority": "etcd://e:1/orders",
                "authority_lease_ms": LEASE_MS,
            }
        )
        self._shared, self._kind = shared, kind
        self.log = LOG
        self.is_master = number == 1
        self.is_alone = self.hears_master = self.is_promoted = False
        self.start()

    def start(self) -> None:
        """A process begins, in the role that was noted."""
        shared, own = self._shared, self.own
        self.clock = FakeClock(machine=shared.machine)
        register: Register = FakeRegister(shared, own)
        if self._kind == "bucket":
            bucket: Any = FakeBucket(shared, own)
            machine = shared.machine
            register = BucketRegister(bucket, LEASE_MS, lambda: machine.awake_ns() / 1e9)
        self.deciding = Deciding(self._config, self.clock, register, lambda: self.log)
        self.is_promoted = False

    async def follow_the_other(self, _address: str) -> None:
        self.is_master = False
        self.start()

    async def lead(self) -> int:
        self.is_master = self.is_alone = True
        self.start()
        return 0

    async def step(self) -> None:
        me: Any = self
        try:
            if self.is_master:
                await self.deciding.hold(me)
            else:
                await self.deciding.look(me)
        except RecordChanged:
            self.deciding._is_leading = False
        except RmqliteError as error:
            self.deciding._failed(error)

    @property
    def leads(self) -> bool:
        return self.is_master and self.deciding.may_lead


class Two:
    """A master, and a standby that has all."""

    def __init__(self, kind: str = "etcd") -> None:
        self.machine = FakeMachine()
        self.shared = Shared(self.machine)
        self.first, self.second = [FakeBroker(self.shared, n, kind) for n in (1, 2)]
        self.run(self.first.step())
        self.run(self.first.deciding.note_peer(self.second.own))
        self.run(self.second.step())
        assert self.first.leads

    @staticmethod
    def run(coroutine: Any) -> Any:
        return asyncio.run(coroutine)


@pytest.fixture(params=["etcd", "bucket"])
def two(request: pytest.FixtureRequest) -> Two:
    return Two(request.param)


def test_a_master_is_silent_before_its_standby_leads(two: Two) -> None:
    """At two thirds of the lease; the standby, which has all, at the end of it."""
    two.shared.cut = {two.first.own}
    silent_ms = leads_ms = 0
    for now_ms in range(0, 2 * LEASE_MS, 100):
        for each in (two.first, two.second):
            two.run(each.step())
        if not two.first.leads and not silent_ms:
            silent_ms = now_ms
        if two.second.leads:
            leads_ms = now_ms
            break
        two.machine.forward(100)
    assert silent_ms == LEASE_MS * 2 // 3
    assert LEASE_MS <= leads_ms <= LEASE_MS + 200
    with pytest.raises(NotMaster, match="it may not lead"):
        two.first.deciding.closed_to("MessageCalls.send")
    two.first.deciding.closed_to("Service.status")
    # The former master comes back, and follows.
    two.shared.cut = set()
    two.run(two.first.step())
    two.run(two.first.step())
    assert (two.first.is_master, two.second.leads) == (False, True)


def test_a_lease_is_counted_from_before_it_was_asked_for(two: Two) -> None:
    """An answer that took long says nothing about the time since."""
    two.shared.takes_ms = 4_000
    two.run(two.first.step())
    two.shared.takes_ms = 0
    two.machine.forward(LEASE_MS * 2 // 3 - 4_000)
    assert not two.first.leads


def test_a_machine_that_was_suspended_is_silent_at_once(two: Two) -> None:
    """No timer has run meanwhile."""
    two.machine.suspend(LEASE_MS)
    assert not two.first.leads


def test_a_standby_that_lacks_something_never_leads(two: Two) -> None:
    """The master has noted that, and acknowledges alone."""
    two.run(two.first.deciding.note_peer(""))
    two.shared.cut = {two.first.own}
    for _ in range(10):
        two.machine.forward(LEASE_MS)
        two.run(two.second.step())
    assert not two.second.leads
    with pytest.raises(Refused, match=r"only .*:1 has all"):
        two.run(two.second.deciding.take_over(force=False))
    two.shared.cut = set()
    two.run(two.first.step())
    two.run(two.first.step())
    assert two.first.leads
    two.run(two.second.deciding.take_over(force=True))
    two.run(two.second.lead())
    two.run(two.second.step())
    two.run(two.first.step())
    two.run(two.first.step())
    assert (two.first.is_master, two.second.leads) == (False, True)


def test_a_set_that_may_have_been_written_is_taken_for_written(two: Two) -> None:
    """Then a standby may take over, though the master knows nothing."""
    two.run(two.first.deciding.note_peer(""))
    two.shared.loses = True
    with pytest.raises(Unavailable):
        two.run(two.first.deciding.note_peer(two.second.own))
    assert two.first.deciding.peer == two.second.own
    two.shared.loses = False
    for _ in range(3):
        two.run(two.first.step())
    two.run(two.first.deciding.note_peer(""))
    assert two.first.deciding.peer == ""
    assert two.first.deciding.add_to(status()).in_sync == (two.first.own,)


def test_a_switch_hands_over_at_the_authority(two: Two) -> None:
    """Before the standby knows; if it never hears of that, it takes over by itself."""
    two.run(two.first.deciding.hand_over(two.second.own))
    two.second.hears_master = True
    two.run(two.second.step())
    # It will be said by the master itself.
    assert not two.second.is_master
    two.second.hears_master = False
    two.run(two.second.step())
    two.run(two.second.step())
    assert two.second.leads


def test_a_master_with_a_new_disk_follows(two: Two) -> None:
    """It would lead with an empty log, and acknowledged messages would be gone."""
    two.first.log = LogIdentity("another", 1)
    two.first.start()
    two.run(two.first.step())
    assert not two.first.is_master
    two.machine.forward(LEASE_MS)
    two.run(two.second.step())
    two.run(two.second.step())
    assert two.second.leads


@pytest.mark.parametrize("kind", ["etcd", "bucket"])
@pytest.mark.seeds(12, 2_000)
def test_two_never_lead_at_once(seed: int, kind: str) -> None:
    """Cuts, lost and late answers, suspended and restarted processes, in any order."""
    drawn, two = random.Random(seed), Two(kind)
    both = (two.first, two.second)
    suspended: set[str] = set()
    led: set[str] = set()
    for _ in range(300):
        what = drawn.randrange(10)
        each = drawn.choice(both)
        if what == 0:
            two.shared.cut ^= {each.own}
        elif what == 1:
            suspended ^= {each.own}
        elif what == 2:
            two.shared.loses = drawn.random() < 0.3
            two.shared.takes_ms = drawn.choice([0, 0, 200, 3_000])
        elif what == 3:
            each.start()
        elif what == 4 and each.leads and each.own not in suspended:
            note = each.deciding.note_peer(drawn.choice(["", both[each is both[0]].own]))
            two.run(ignored(note))
        else:
            two.machine.forward(drawn.choice([10, 500, LEASE_MS // 5, LEASE_MS]))
        for other in both:
            if other.own not in suspended and drawn.random() < 0.8:
                two.run(other.step())
        leading = {other.own for other in both if other.leads}
        assert len(leading) < 2
        led |= leading
    assert led


async def ignored(asked: Any) -> None:
    with suppress(Unavailable):
        await asked


def status() -> Any:
    from rmqlite.kernel.requests.broker import ReplicationStatus

    return replace(ReplicationStatus("SYNC_MASTER"))
