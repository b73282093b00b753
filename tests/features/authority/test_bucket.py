"""The record in an object store, and in a folder."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from rmqlite.features.archive.objects import ArchiveBucket
from rmqlite.features.authority.bucket import LOCK, BucketRegister
from rmqlite.features.authority.record import MasterRecord, RecordChanged
from rmqlite.kernel.words.errors import InvalidValue, StoreUnavailable
from tests.support.s3 import BadBucket, s3_server

RECORD = MasterRecord("127.0.0.1:1", 1, ("127.0.0.1:1",), "the log")
LEASE_MS = 9_000
HOLDS = """
import os
fd = os.open({path!r}, os.O_RDWR | os.O_CREAT)
os.lockf(fd, os.F_LOCK, 0)
print("held", flush=True)
input()
"""


@pytest.fixture(params=["file", "s3"])
def url(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_long: bool,
) -> Iterator[str]:
    """Of a folder, and of an object store, which is a real server with --long."""
    if request.param == "file":
        yield f"file://{tmp_path}/archive"
        return
    with ExitStack() as stack:
        server = stack.enter_context(s3_server(tmp_path / "server.log")) if is_long else ""
        monkeypatch.setenv("AWS_ENDPOINT_URL", stack.enter_context(BadBucket(server)).address)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        yield "s3://bucket/brokers"


def test_one_of_two_gets_the_record(url: str) -> None:
    """By a conditional put, or under a lock; it is held until no renewal was seen for a lease."""
    now_s = 0.0

    async def talk() -> None:
        nonlocal now_s
        one, other = [BucketRegister(ArchiveBucket(url), LEASE_MS, lambda: now_s) for _ in "ab"]
        assert await one.read_record() is None
        first = await one.write_record(RECORD, None, leases=True)
        stale = replace(first.version, mark="x", version={"e_tag": '"x"'})
        for before in (None, replace(first, version=stale)):
            with pytest.raises(RecordChanged):
                await other.write_record(RECORD, before, leases=True)
        seen = await other.read_record()
        assert seen is not None
        assert (seen.record, seen.is_held) == (RECORD, True)
        now_s = 8.9
        first = await one.renew_lease(first)
        seen = await other.read_record()
        now_s = 17.8
        seen = await other.read_record()
        assert seen is not None
        assert seen.is_held
        now_s = 18.0
        seen = await other.read_record()
        assert seen is not None
        assert not seen.is_held
        await other.write_record(replace(RECORD, term=2), seen, leases=True)
        with pytest.raises(RecordChanged):
            await one.renew_lease(first)
        # The archive itself sees none of this.
        assert not (await ArchiveBucket(url).contents()).pieces

    asyncio.run(talk())


def test_a_lock_that_stays_is_an_outage(tmp_path: Path) -> None:
    """It is a lock on a file, which ends with the process that has it."""
    register = BucketRegister(ArchiveBucket(f"file://{tmp_path}"), LEASE_MS)
    command = [sys.executable, "-c", HOLDS.format(path=str(tmp_path / LOCK))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StoreUnavailable, match="others hold it"):
            asyncio.run(register.write_record(RECORD, None, leases=True))
        other.kill()
    asyncio.run(register.write_record(RECORD, None, leases=True))


def test_another_object_of_that_name_is_no_record(tmp_path: Path) -> None:
    """It decides nothing."""
    (tmp_path / "authority").write_bytes(b"{}")
    with pytest.raises(InvalidValue, match="what a broker has written"):
        asyncio.run(BucketRegister(ArchiveBucket(f"file://{tmp_path}"), LEASE_MS).read_record())
