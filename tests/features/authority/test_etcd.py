"""The calls of etcd, also when it answers late, junk, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

import pytest

from rmqlite.features.authority.etcd import EtcdRegister
from rmqlite.features.authority.record import MasterRecord, RecordChanged
from rmqlite.kernel.words.clock import elapsed_s, pause_s
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError, Unavailable
from rmqlite.protocols.etcd import ANSWER_BYTES_MAX, Etcd
from tests.support.eventually import eventually
from tests.support.fake_etcd import FakeEtcd

T = TypeVar("T")
RECORD = MasterRecord("127.0.0.1:1", 1, ("127.0.0.1:1",), "the log")
LEASE_MS = 2_000


def asked(
    endpoints: str, ask: Callable[[EtcdRegister], Awaitable[T]], timeout_s: float = 10.0
) -> T:
    """What ask returns, of a connection of its own."""

    async def run() -> T:
        register = EtcdRegister(Etcd(endpoints.split(","), "orders", timeout_s), LEASE_MS)
        try:
            return await ask(register)
        finally:
            await register.close_register()

    return asyncio.run(run())


def is_up(endpoint: str) -> bool:
    try:
        asked(endpoint, EtcdRegister.read_record)
    except Unavailable:
        return False
    return True


def test_one_of_two_gets_the_record(etcd: FakeEtcd) -> None:
    """Who has not seen the present one replaces nothing; the lease ends without renewals."""
    address = etcd.endpoint()
    eventually(lambda: is_up(address), "etcd answers")

    async def talk(register: EtcdRegister) -> None:
        assert await register.read_record() is None
        first = await register.write_record(RECORD, None, leases=True)
        with pytest.raises(RecordChanged):
            await register.write_record(RECORD, None, leases=True)
        assert await register.renew_lease(first) == first
        second = await register.write_record(replace(RECORD, term=2), first, leases=False)
        with pytest.raises(RecordChanged):
            await register.renew_lease(first)
        await register.renew_lease(second)
        assert await register.read_record() == second

    async def look(register: EtcdRegister) -> bool:
        found = await register.read_record()
        assert found is not None
        return found.is_held

    asked(address, talk)
    eventually(lambda: not asked(address, look), "the lease is out")


def test_the_next_endpoint_is_asked(fake: FakeEtcd) -> None:
    """An etcd cluster goes on without one of its servers."""
    fake.cut = {fake.ports[0]}
    both = f"{fake.endpoint(0)},{fake.endpoint(1)}"
    assert asked(both, EtcdRegister.read_record, timeout_s=1.0) is None
    fake.cut = {*fake.ports}
    began_s = elapsed_s()
    with pytest.raises(Unavailable, match="etcd does not answer"):
        asked(both, EtcdRegister.read_record, timeout_s=0.2)
    assert elapsed_s() - began_s >= 0.4


@pytest.mark.parametrize("junk", [b"\xff" * 100, b"x" * (ANSWER_BYTES_MAX * 2)])
def test_an_answer_that_is_none_is_refused(fake: FakeEtcd, junk: bytes) -> None:
    """It costs no more than the limit, and decides nothing."""
    fake.junk = junk
    for ask in (
        EtcdRegister.read_record,
        lambda register: register.write_record(RECORD, None, leases=True),
    ):
        with pytest.raises(RmqliteError):
            asked(fake.endpoint(), ask)


def test_another_programs_key_is_no_record(fake: FakeEtcd) -> None:
    """Somebody has used the name."""

    async def talk(register: EtcdRegister) -> None:
        await register._etcd.replace(b"{}", 0)
        with pytest.raises(InvalidValue, match="a record of rmqlite's"):
            await register.read_record()

    asked(fake.endpoint(), talk)


def test_a_lease_that_is_gone_is_not_renewed(fake: FakeEtcd) -> None:
    """etcd answers with a time of 0."""

    async def talk(register: EtcdRegister) -> None:
        entry = await register.write_record(RECORD, None, leases=True)
        pause_s(LEASE_MS / 1000 + 0.1)
        with pytest.raises(RecordChanged):
            await register.renew_lease(entry)

    asked(fake.endpoint(), talk)
