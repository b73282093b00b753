"""One sync for all calls that wait; after a failed sync every call fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rmqlite.errors import FlushFailed
from rmqlite.message import Message
from rmqlite.requests.messages import SendRequest
from rmqlite.server.group_commit import GroupCommit, SyncThread
from rmqlite.store.disk.files import SystemFiles
from rmqlite.store.dispatch import QueueKey
from tests.support.brokers import BORN_HOST, BrokerUnderTest
from tests.support.steps import done


class CountingFiles(SystemFiles):
    """Counts syncs; fails them while failing is set."""

    syncs = 0
    failing = False

    def sync(self, path: Path) -> None:
        self.syncs += 1
        if self.failing:
            raise FlushFailed("cannot sync: Input/output error")
        super().sync(path)


@pytest.fixture
def syncer() -> Iterator[SyncThread]:
    with closing(SyncThread()) as thread:
        yield thread


class Committed:
    """A group commit that runs, on a broker whose sends it makes durable."""

    def __init__(self, folder: Path, syncer: SyncThread, flush: str) -> None:
        self.files = CountingFiles()
        self.under_test = BrokerUnderTest(folder, files=self.files, flush_disk_type=flush)
        self.told: list[QueueKey] = []
        self.syncer = syncer
        self.commit: GroupCommit
        # The first record makes the log's file, and makes that durable by itself.
        self.under_test.send(Message("orders", b"first"))
        self.files.syncs = 0

    def begin(self) -> None:
        """On the loop that runs now."""
        self.commit = GroupCommit(
            self.under_test.config, self.under_test.store, self.syncer, self._readable
        )

    def _readable(self, keys: Iterable[QueueKey]) -> None:
        self.told += keys

    def append(self) -> int:
        request = SendRequest((Message("orders", b"x"),), queue_id=0)
        done(self.under_test.broker.send(request, BORN_HOST))
        self.commit.appended("orders", 0)
        return self.under_test.store.end

    async def running(self, work: asyncio.Future[None]) -> None:
        """Wait for work, or for the group commit to fail."""
        loop = asyncio.create_task(self.commit.run())
        try:
            await asyncio.wait([loop, work], return_when=asyncio.FIRST_COMPLETED)
            if loop.done():
                loop.result()
            await work
        finally:
            loop.cancel()
            with suppress(asyncio.CancelledError, FlushFailed):
                await loop


def test_an_answer_waits_until_its_bytes_are_on_disk(tmp_path: Path, syncer: SyncThread) -> None:
    """P1: what is acknowledged is durable, and only then may be read."""
    committed = Committed(tmp_path, syncer, "SYNC_FLUSH")

    async def main() -> None:
        committed.begin()
        end = committed.append()
        assert committed.under_test.store.durable_end < end
        work = asyncio.ensure_future(committed.commit.durable(end))
        await committed.running(work)
        assert committed.under_test.store.durable_end >= end
        assert committed.told == [("orders", 0)]

    asyncio.run(main())


def test_nobody_asks_for_a_sync_of_what_is_on_disk(tmp_path: Path, syncer: SyncThread) -> None:
    """A disk may be faster than the task that waits for it."""
    committed = Committed(tmp_path, syncer, "SYNC_FLUSH")

    async def main() -> None:
        committed.begin()
        end = committed.append()
        await committed.running(asyncio.ensure_future(committed.commit.durable(end)))
        await committed.commit.durable(end)
        assert not committed.commit._is_wanted

    asyncio.run(main())
    assert committed.files.syncs == 1


def test_those_who_wait_share_one_sync(tmp_path: Path, syncer: SyncThread) -> None:
    """The cost of the disk does not grow with the number of producers."""
    committed = Committed(tmp_path, syncer, "SYNC_FLUSH")

    async def main() -> None:
        committed.begin()
        ends = [committed.append() for _ in range(50)]
        work = asyncio.ensure_future(_all(*[committed.commit.durable(end) for end in ends]))
        await committed.running(work)

    asyncio.run(main())
    assert committed.files.syncs == 1
    assert committed.commit.syncs.histogram().total == 1


def test_async_flush_answers_and_shows_at_once(tmp_path: Path, syncer: SyncThread) -> None:
    """A call is answered before its bytes are on disk only if the operator has configured that."""
    committed = Committed(tmp_path, syncer, "ASYNC_FLUSH")

    async def main() -> None:
        committed.begin()
        end = committed.append()
        await committed.commit.durable(end)
        assert committed.files.syncs == 0

    asyncio.run(main())


def test_a_failed_sync_fails_who_waits_and_ends_the_broker(
    tmp_path: Path, syncer: SyncThread
) -> None:
    """The kernel may have dropped the pages: a second sync that succeeds proves nothing."""
    committed = Committed(tmp_path, syncer, "SYNC_FLUSH")
    committed.files.failing = True

    async def main() -> None:
        committed.begin()
        work = asyncio.ensure_future(committed.commit.durable(committed.append()))
        with pytest.raises(FlushFailed, match="Input/output"):
            await committed.running(work)
        with pytest.raises(FlushFailed, match="Input/output"):
            await work

        with pytest.raises(FlushFailed, match="Input/output"):
            await committed.commit.durable(0)

    asyncio.run(main())
    assert committed.commit.syncs.histogram().total == 0


@pytest.mark.parametrize("flush", ["SYNC_FLUSH", "ASYNC_FLUSH"])
def test_a_sync_that_failed_elsewhere_is_as_final(
    flush: str, tmp_path: Path, syncer: SyncThread
) -> None:
    """No call is answered after it, not even with ASYNC_FLUSH."""
    committed = Committed(tmp_path, syncer, flush)
    failed = FlushFailed("cannot cut: Input/output error")

    async def main() -> None:
        committed.begin()
        running = asyncio.create_task(committed.commit.run())
        await asyncio.sleep(0)
        committed.commit.fail(failed)
        with pytest.raises(FlushFailed, match="cannot cut"):
            await committed.commit.durable(committed.append())
        with pytest.raises(FlushFailed, match="cannot cut"):
            await running

    asyncio.run(main())


async def _all(*waits: Awaitable[None]) -> None:
    await asyncio.gather(*waits)
