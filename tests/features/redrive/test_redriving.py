"""Redrive jobs on a loop whose time is the fake clock: fair, even, never stuck, never busy."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rmqlite.features.redrive.redrive import Redrive
from rmqlite.features.redrive.redriving import Redriving
from rmqlite.features.redrive.requests import (
    JobAction,
    JobChange,
    JobState,
    OutcomesQuery,
    RedriveJobQuery,
    RedrivePreviewRequest,
    RedriveRequest,
    RedriveSpec,
)
from rmqlite.features.redrive.service import RedriveCalls
from rmqlite.kernel.records.packed import Packed
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.words.errors import FlushFailed, StoreUnavailable
from rmqlite.store_tools.check import check
from tests.support.brokers import BrokerUnderTest
from tests.support.loops import SyncsAtOnce, run_with, turns_beside
from tests.support.redrives import GROUP, bury_many, redriven_messages, start
from tests.support.services import Served


class Stop(Exception):
    """Ends the task group of a test."""


@pytest.fixture
def under_test(tmp_path: Path) -> Iterator[BrokerUnderTest]:
    broker = BrokerUnderTest(tmp_path / "store")
    yield broker
    broker.store.release()
    assert list(check(tmp_path / "store")) == []


def run(under_test: BrokerUnderTest, scenario: Callable[[RedriveCalls], Awaitable[None]]) -> None:
    """Run a scenario beside the task that runs jobs."""

    async def main() -> None:
        with closing(SyncsAtOnce()) as syncer:
            server = Served(under_test, syncer)
            redriving = Redriving(under_test.broker, server.commit, under_test.clock)
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(redriving.run())
                    await scenario(server.service[RedriveCalls])
                    raise Stop
            except* Stop:
                pass

    run_with(under_test.clock, main())


def request(**spec: Any) -> RedriveRequest:
    return RedriveRequest(RedriveSpec(GROUP, **spec))


def times(under_test: BrokerUnderTest) -> list[int]:
    """The times at which the letters were sent, from the first one on."""
    found = [message.store_timestamp_ms for message in redriven_messages(under_test)]
    return [each - found[0] for each in found]


async def until_over(redrives: RedriveCalls, job_id: str) -> None:
    while not (await redrives.get(RedriveJobQuery(job_id))).is_over:
        await asyncio.sleep(0.01)


def test_a_job_runs_to_its_end_by_itself(under_test: BrokerUnderTest) -> None:
    """The client that started it may be gone; the messages of each step are on disk."""
    bury_many(under_test, 450)

    async def scenario(redrives: RedriveCalls) -> None:
        job = await redrives.start(request())
        assert under_test.store.durable_end == under_test.store.end
        await until_over(redrives, job.job_id)
        assert (await redrives.get(RedriveJobQuery(job.job_id))).sent == 450
        assert under_test.store.durable_end == under_test.store.end

    run(under_test, scenario)


def test_a_rate_is_kept_evenly(under_test: BrokerUnderTest) -> None:
    """No second has more than that, and they do not all come at its beginning."""
    bury_many(under_test, 300)

    async def scenario(redrives: RedriveCalls) -> None:
        job = await redrives.start(request(max_per_second=100))
        await until_over(redrives, job.job_id)

    run(under_test, scenario)
    sent = times(under_test)
    for at_ms in range(0, sent[-1], 50):
        assert sum(at_ms <= each < at_ms + 1_000 for each in sent) <= 100
        assert sum(at_ms <= each < at_ms + 100 for each in sent) <= 30
    assert 1_900 <= sent[-1] <= 3_200


def test_a_slow_job_holds_up_no_other(under_test: BrokerUnderTest) -> None:
    """Each has its own rate."""
    bury_many(under_test, 60)

    async def scenario(redrives: RedriveCalls) -> None:
        slow = await redrives.start(request(max_per_second=1))
        paused = await redrives.start(request(again=True))
        await redrives.change(JobChange(paused.job_id, JobAction.PAUSE))
        began_ms = under_test.clock.now_ms()
        fast = await redrives.start(request(again=True))
        await until_over(redrives, fast.job_id)
        assert under_test.clock.now_ms() - began_ms < 500
        assert (await redrives.get(RedriveJobQuery(slow.job_id))).sent < 3

    run(under_test, scenario)


def test_pause_and_resume_take_effect_at_once(under_test: BrokerUnderTest) -> None:
    """It does not wait for the end of the current pause."""
    bury_many(under_test, 30)

    async def scenario(redrives: RedriveCalls) -> None:
        job_id = (await redrives.start(request(max_per_second=2))).job_id
        await asyncio.sleep(3.1)
        job = await redrives.change(JobChange(job_id, JobAction.PAUSE))
        assert (job.state, 5 <= job.sent <= 8) == (JobState.PAUSED, True)
        await asyncio.sleep(3_600)
        assert (await redrives.get(RedriveJobQuery(job_id))).sent == job.sent
        began_ms = under_test.clock.now_ms()
        await redrives.change(JobChange(job_id, JobAction.RESUME))
        await asyncio.sleep(0.001)
        assert (await redrives.get(RedriveJobQuery(job_id))).sent == job.sent + 1
        assert under_test.clock.now_ms() - began_ms < 100

    run(under_test, scenario)


def test_another_rate_takes_effect_at_once(under_test: BrokerUnderTest) -> None:
    """An operator who finds a job too slow need not wait."""
    bury_many(under_test, 100)

    async def scenario(redrives: RedriveCalls) -> None:
        job_id = (await redrives.start(request(max_per_second=1))).job_id
        await asyncio.sleep(2.5)
        began_ms = under_test.clock.now_ms()
        await redrives.change(JobChange(job_id, JobAction.SET_RATE))
        await until_over(redrives, job_id)
        assert under_test.clock.now_ms() - began_ms < 100

    run(under_test, scenario)


@pytest.mark.parametrize("is_clean", [True, False])
def test_jobs_go_on_after_a_restart(under_test: BrokerUnderTest, is_clean: bool) -> None:
    """They continue by themselves; a paused one stays paused."""
    bury_many(under_test, 10)
    running, paused = start(under_test).job_id, start(under_test, again=True).job_id
    under_test.broker[Redrive].change(JobChange(paused, JobAction.PAUSE))
    under_test.broker[Redrive].step(running, 3)
    under_test.sync()
    if is_clean:
        under_test.close()
    else:
        under_test.crash()
    under_test.open()

    async def scenario(redrives: RedriveCalls) -> None:
        await until_over(redrives, running)
        assert (await redrives.get(RedriveJobQuery(running))).sent == 10
        assert (await redrives.get(RedriveJobQuery(paused))).sent == 0

    run(under_test, scenario)


def test_on_a_full_disk_a_job_says_why_it_waits_and_goes_on_later(
    under_test: BrokerUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    """Sends are refused for the same reason."""
    bury_many(under_test, 10)
    job_id = start(under_test).job_id
    under_test.broker.retention.is_disk_full = True

    async def scenario(redrives: RedriveCalls) -> None:
        await asyncio.sleep(60.5)
        job = await redrives.get(RedriveJobQuery(job_id))
        assert "sends are refused" in job.note
        assert (await redrives.all())[0].note == job.note
        assert under_test.broker.retention.sends_refused == 0
        under_test.broker.retention.is_disk_full = False
        await asyncio.sleep(1)
        job = await redrives.get(RedriveJobQuery(job_id))
        assert (job.state, job.sent, job.note) == (JobState.DONE, 10, "")

    run(under_test, scenario)
    assert caplog.text.count("a redrive failed") == caplog.text.count("a redrive continues") == 1


def test_a_disk_that_takes_nothing_is_tried_again(under_test: BrokerUnderTest) -> None:
    """Nothing of the step was stored, and the job does it again."""
    bury_many(under_test, 10)
    job_id = start(under_test).job_id
    append = under_test.store.append_packed
    failures = 3

    def failing(packed: Sequence[Packed]) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StoreUnavailable("write to", "commitlog", "no space left on device")
        append(packed)

    under_test.store.append_packed = failing  # type: ignore[method-assign]

    async def scenario(redrives: RedriveCalls) -> None:
        await asyncio.sleep(2.5)
        assert "no space left" in (await redrives.get(RedriveJobQuery(job_id))).note
        await asyncio.sleep(1)
        assert (await redrives.get(RedriveJobQuery(job_id))).sent == 10

    run(under_test, scenario)


def test_an_append_whose_sync_failed_ends_the_broker(under_test: BrokerUnderTest) -> None:
    """The disk may lack records that the broker has counted: only a recovery finds out."""
    bury_many(under_test, 1)
    start(under_test)

    def failing(packed: Sequence[Packed]) -> None:
        raise FlushFailed(f"cannot cut {len(packed[0])} records")

    append = under_test.store.append_packed
    under_test.store.append_packed = failing  # type: ignore[method-assign]

    async def scenario(_: RedriveCalls) -> None:
        await asyncio.sleep(60)

    with pytest.raises(ExceptionGroup) as raised:
        run(under_test, scenario)
    assert raised.group_contains(FlushFailed, match="cannot cut")
    under_test.store.append_packed = append  # type: ignore[method-assign]


def test_a_slow_disk_is_waited_for(
    under_test: BrokerUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sync has not failed: the records are in the log, and the job continues after them."""
    bury_many(under_test, 250)
    durable = GroupCommit.durable
    late = 3

    async def slow(commit: GroupCommit, log_end: int) -> None:
        nonlocal late
        late -= 1
        if late == 1:
            sentence = "the disk took longer than syncFlushTimeout=5000 ms"
            raise FlushFailed(sentence, is_final=False)
        await durable(commit, log_end)

    monkeypatch.setattr(GroupCommit, "durable", slow)

    async def scenario(redrives: RedriveCalls) -> None:
        job = await redrives.start(request())
        await asyncio.sleep(0.5)
        told = await redrives.get(RedriveJobQuery(job.job_id))
        assert (told.state, "took longer" in told.note) == (JobState.RUNNING, True)
        await until_over(redrives, job.job_id)
        told = await redrives.get(RedriveJobQuery(job.job_id))
        assert (told.sent, told.note) == (250, "")

    run(under_test, scenario)
    assert len(list(redriven_messages(under_test))) == 250


def test_without_anything_to_do_the_task_sleeps(under_test: BrokerUnderTest) -> None:
    """An hour without jobs costs nothing, two minutes at a low rate a few looks a second."""
    bury_many(under_test, 200)
    running = under_test.broker[Redrive].running
    looks = 0

    def counted() -> Any:
        nonlocal looks
        looks += 1
        return running()

    under_test.broker[Redrive].running = counted  # type: ignore[method-assign]

    async def scenario(redrives: RedriveCalls) -> None:
        await asyncio.sleep(3_600)
        assert looks == 1
        job = await redrives.start(request(max_per_second=1))
        await asyncio.sleep(120)
        assert looks < 4 * 120
        assert 116 < (await redrives.get(RedriveJobQuery(job.job_id))).sent <= 121

    run(under_test, scenario)


def test_others_have_many_turns_beside_a_job(under_test: BrokerUnderTest) -> None:
    """A send is some turns of the loop, and waits for a step or two at most."""
    bury_many(under_test, 2_000)

    async def scenario(redrives: RedriveCalls) -> None:
        async def whole_job() -> str:
            job = await redrives.start(request())
            while not under_test.broker[Redrive].get(job.job_id).is_over:
                await asyncio.sleep(0)
            return job.job_id

        job_id, turns = await turns_beside(whole_job())
        assert turns > 400
        _, turns = await turns_beside(redrives.preview(RedrivePreviewRequest(RedriveSpec(GROUP))))
        assert turns > 400
        query = OutcomesQuery(job_id, max_letters=1_000)
        page, turns = await turns_beside(redrives.outcomes(query))
        assert len(page.letters) == 1_000
        assert turns > 200

    run(under_test, scenario)
