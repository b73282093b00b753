"""One sync for all calls that wait; after a failed sync every call fails."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Awaitable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from rmqlite.kernel import compiled
from rmqlite.kernel.service.group_commit import GroupCommit, SyncThread
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.disk.regular_file import Descriptor
from rmqlite.kernel.store.dispatch import QueueKey
from rmqlite.kernel.words.errors import FlushFailed
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.calls import turns_until
from tests.support.loops import run_with
from tests.support.sends import sending
from tests.support.services import HeldThread
from tests.support.steps import done


class CountingFiles(SystemFiles):
    """Counts syncs; they fail from the moment that failure is set."""

    syncs = 0
    failure: Exception | None = None

    def sync(self, path: Path) -> None:
        self.syncs += 1
        if self.failure is not None:
            raise self.failure
        super().sync(path)


@pytest.fixture
def syncer() -> Iterator[SyncThread]:
    with closing(SyncThread()) as thread:
        yield thread


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


needs_compiled = pytest.mark.skipif(not compiled.is_on, reason="there is no compiled form here")
BROKEN = FlushFailed("cannot sync: Input/output error")


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
        done(sending(self.under_test.broker, [Message("orders", b"x")], 0))
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


class Held(Committed):
    """Its syncs run when the test says so; answers: those of ask(), in their order."""

    def __init__(self, folder: Path) -> None:
        self.thread = HeldThread()
        self.answers: list[FlushFailed | None] = []
        super().__init__(folder, self.thread, "SYNC_FLUSH")

    def ask(self) -> None:
        """Append, and be told at once when it is on disk."""
        self.commit.then(self.append(), self.answers.append)

    async def until_answered(self, count: int) -> None:
        await turns_until(lambda: len(self.answers) == count)


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


def test_a_standby_gets_the_bytes_before_the_disk_works_on_them(held: Held) -> None:
    """Its way is the longer one; and what comes while a sync runs goes with the next sync."""
    syncs_begun: list[int] = []

    async def main() -> None:
        held.begin()
        held.commit.on_start = lambda: syncs_begun.append(len(held.thread.jobs))
        held.append()
        assert syncs_begun == [0]
        await turns_until(lambda: len(held.thread.jobs) == 1)
        held.append()
        assert syncs_begun == [0, 0]
        held.thread.run_next()
        assert syncs_begun == [0, 0, 0]
        held.thread.run_next()

    asyncio.run(main())


def test_a_call_is_answered_though_a_persist_was_faster_than_its_sync(held: Held) -> None:
    """It waited for a sync that nobody began, because everything was on disk already."""

    async def main() -> None:
        held.begin()
        first = asyncio.ensure_future(held.commit.durable(held.append()))
        await turns_until(lambda: len(held.thread.jobs) == 1)
        second = asyncio.ensure_future(held.commit.durable(held.append()))
        await asyncio.sleep(0)
        held.under_test.store.persist({})
        held.thread.run_next()
        await first
        await turns_until(lambda: len(held.thread.jobs) == 1)
        held.thread.run_next()
        await second

    asyncio.run(main())


def test_who_has_gathered_calls_is_told_at_once(held: Held) -> None:
    """then() begins the sync itself, and calls back without a turn of the loop in between."""

    async def main() -> None:
        held.begin()
        held.ask()
        assert len(held.thread.jobs) == 1
        held.ask()
        held.thread.run_next()
        await held.until_answered(1)
        # The second one was appended while the disk worked.
        held.files.failure = BROKEN
        held.thread.run_next()
        await held.until_answered(2)
        held.commit.then(0, held.answers.append)
        with pytest.raises(FlushFailed):
            await held.commit.run()

    asyncio.run(main())
    assert held.answers == [None, BROKEN, BROKEN]


def test_a_mistake_in_the_thread_that_syncs_is_a_failed_sync(held: Held) -> None:
    """Otherwise its callers would wait for ever, or take their bytes for durable."""

    async def main() -> None:
        held.begin()
        held.ask()
        held.files.failure = TypeError("a mistake")
        held.thread.run_next()
        await held.until_answered(1)
        with pytest.raises(FlushFailed):
            await held.commit.run()

    asyncio.run(main())
    assert "the sync failed: TypeError" in str(held.answers[0])


def test_a_disk_that_is_slow_refuses_once_and_goes_on(held: Held) -> None:
    """One timer serves many syncs: it must not be that of an earlier one that counts."""
    timeout_s = held.under_test.config.sync_flush_timeout_ms / 1000

    async def main() -> None:
        held.begin()
        held.ask()
        await asyncio.sleep(timeout_s * 0.8)
        held.thread.run_next()
        await held.until_answered(1)
        held.ask()
        await asyncio.sleep(timeout_s - 0.002)
        assert len(held.answers) == 1
        await asyncio.sleep(0.004)
        assert len(held.answers) == 2
        held.thread.run_next()
        await asyncio.sleep(0.001)
        held.ask()
        held.thread.run_next()
        await held.until_answered(3)

    run_with(held.under_test.clock, main())
    finals = [isinstance(each, FlushFailed) and each.is_final for each in held.answers]
    assert (finals, held.answers[1] is None) == ([False] * 3, False)


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
    committed.files.failure = BROKEN

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


def test_the_end_of_the_last_sync_starts_no_other(tmp_path: Path, syncer: SyncThread) -> None:
    """Its thread would keep the process after the store is closed."""

    committed = Committed(tmp_path, syncer, "SYNC_FLUSH")
    answers: list[FlushFailed | None] = []

    async def main() -> None:
        committed.begin()
        committed.commit.then(committed.append(), answers.append)
        committed.commit.then(committed.append(), answers.append)
        syncer.close()
        await turns_until(lambda: len(answers) > 0)
        committed.commit.then(committed.append(), answers.append)

    asyncio.run(main())
    assert "sync" not in {thread.name for thread in threading.enumerate()}


# ---- the compiled form


class PlainFiles(SystemFiles):
    """Nothing but the disk.  is_broken: its descriptors cannot be synced."""

    is_broken = False

    def descriptor(self, path: Path) -> Descriptor | None:
        found = super().descriptor(path)
        if found is not None and self.is_broken:
            reader, writer = os.pipe()
            os.close(writer)
            os.dup2(reader, found.fd)
            os.close(reader)
        return found


def eventfds() -> int:
    """How many of them this process has open."""
    links = [str(path.readlink()) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return sum("eventfd" in link for link in links)


@needs_compiled
def test_a_file_is_synced_without_the_interpreter(tmp_path: Path, syncer: SyncThread) -> None:
    """Each time, also when a file is full; then the plain form syncs both."""
    files = PlainFiles()
    broker = BrokerUnderTest(tmp_path, files=files, mapped_file_size_commit_log=1 << 16)
    broker.send(Message("orders", b"first"))
    ways: list[bool] = []

    async def main() -> None:
        commit = GroupCommit(broker.config, broker.store, syncer, lambda _: None)
        for _ in range(9):
            done(sending(broker.broker, [Message("orders", bytes(20_000))], 0))
            commit.appended("orders", 0)
            syncer._running = None
            await commit.durable(broker.store.end)
            ways.append(syncer._running is not None)
            assert broker.store.durable_end == broker.store.end
        assert commit.syncs.histogram().total == 9

    asyncio.run(main())
    assert ways[:3] == [True] * 3
    assert {True, False} == set(ways[3:])
    broker.close()


@needs_compiled
def test_a_sync_that_fails_there_ends_the_broker_too(tmp_path: Path, syncer: SyncThread) -> None:
    """With the same sentence, and for good."""
    files = PlainFiles()
    broker = BrokerUnderTest(tmp_path, files=files)
    broker.send(Message("orders", b"first"))
    answers: list[FlushFailed | None] = []

    async def main() -> None:
        commit = GroupCommit(broker.config, broker.store, syncer, lambda _: None)
        done(sending(broker.broker, [Message("orders", b"x")], 0))
        files.is_broken = True
        commit.then(broker.store.end, answers.append)
        with pytest.raises(FlushFailed, match=r"cannot sync .*: Invalid argument"):
            await commit.run()

    asyncio.run(main())
    (error,) = answers
    assert isinstance(error, FlushFailed)
    assert error.is_final
    broker.crash()


@needs_compiled
@pytest.mark.parametrize("is_begun", [False, True])
def test_the_thread_ends_with_a_sync_that_nobody_takes_back(
    tmp_path: Path, syncer: SyncThread, is_begun: bool
) -> None:
    """Also if it never had one; and its eventfd is closed with it."""
    broker = BrokerUnderTest(tmp_path, files=PlainFiles())
    broker.send(Message("orders", b"first"))
    before = eventfds()

    async def main() -> None:
        commit = GroupCommit(broker.config, broker.store, syncer, lambda _: None)
        if is_begun:
            done(sending(broker.broker, (Message("orders", b"x"),)))
            commit.then(broker.store.end, lambda _: None)
            syncer._running = None
        syncer.close()
        syncer.close()

    asyncio.run(main())
    assert "sync" not in {thread.name for thread in threading.enumerate()}
    assert eventfds() == before
    broker.crash()


async def _all(*waits: Awaitable[None]) -> None:
    await asyncio.gather(*waits)
