"""What ends without an error ends the broker: nobody would see that nothing is done any more."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from rmqlite.kernel.process.upkeep import THREADS, EndedSilently, Loops, Watch

ROOT: Final = Path(__file__).parents[2]


async def for_ever() -> None:
    await asyncio.Event().wait()


async def at_once() -> None:
    await asyncio.sleep(0)


def ended(group: BaseExceptionGroup[Any]) -> list[str]:
    return [str(each) for each in group.exceptions]


def test_a_loop_that_returns_ends_the_others() -> None:
    """A return by mistake is no error that a TaskGroup would see."""

    async def main() -> None:
        async with Loops() as loops:
            loops.create_task(for_ever(), name="a")
            loops.create_task(at_once(), name="b")

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert ended(caught.value) == ["the task 'b' has ended"]


def test_a_loop_that_is_cancelled_ends_the_others() -> None:
    """Nor is a cancel, which a library may cause that the loop calls."""

    async def main() -> None:
        async with Loops() as loops:
            loops.create_task(for_ever(), name="a")
            loops.create_task(for_ever(), name="b").cancel()
            await for_ever()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert ended(caught.value) == ["the task 'b' has ended"]


def test_an_error_is_told_alone() -> None:
    """The others are cancelled because of it."""

    async def failing() -> None:
        await asyncio.sleep(0)
        raise KeyError("a")

    async def main() -> None:
        async with Loops() as loops:
            loops.create_task(for_ever())
            loops.create_task(failing())
            await for_ever()

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert [repr(each) for each in caught.value.exceptions] == ["KeyError('a')"]


def test_an_error_beside_the_loops_is_told_alone() -> None:
    """It cancels all of them."""

    async def main() -> None:
        async with Loops() as loops:
            loops.create_task(for_ever())
            await asyncio.sleep(0)
            raise KeyError("a")

    with pytest.raises(ExceptionGroup) as caught:
        asyncio.run(main())
    assert [repr(each) for each in caught.value.exceptions] == ["KeyError('a')"]


def test_a_broker_that_drains_ends_its_loops() -> None:
    """In any order, and by a cancel."""

    async def main() -> None:
        async with Loops() as loops:
            one = loops.create_task(for_ever())
            loops.create_task(at_once())
            loops.drain()
            await asyncio.sleep(0)
            one.cancel()

    asyncio.run(main())


@pytest.mark.parametrize("name", [f"{each}_0" for each in THREADS])
def test_a_thread_that_is_gone_is_missed(name: str) -> None:
    """What it was given to do is never done, and whoever waits for it waits for ever."""
    watch, thread = Watch([]), threading.Thread(name=name)
    others = [threading.Thread(name="AnyIO worker thread"), threading.current_thread()]
    watch.look(others)
    watch.look([*others, thread])
    watch.look([thread])
    with pytest.raises(EndedSilently, match=f"the thread '{name}' has ended"):
        watch.look(others)


def test_each_task_and_thread_of_a_broker_is_missed(tmp_path: Path) -> None:
    """In a real process: it ends with an error, so that no probe finds it well."""
    command = [sys.executable, "-m", "tests.support.ending_parts", str(tmp_path)]
    parts = [("task", "leases"), ("thread", "sync")]
    for part in parts:
        command += part
    told = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, check=True, text=True, timeout=300
    )
    whole, *broken = json.loads(told.stdout)
    assert whole["code"] == 0, whole["log"]
    # gRPC's own have names of asyncio's; "gRPC port" watches them.
    named = [each for each in whole["tasks"] if not each.startswith("Task-")]
    assert named == whole["watched"]
    assert {"gRPC port", "web page", "upkeep", "watch"} < set(named)
    grpcs = ("MainThread", "Thread-")
    threads = [each for each in whole["threads"] if not each.startswith(grpcs)]
    assert threads == ["asyncio_0", "persist_0", "sync", "timers_0"]
    assert all(each.startswith(THREADS) for each in threads)
    assert [(each["kind"], each["name"]) for each in broken] == parts
    for each in broken:
        assert each["code"] == 1
        assert "EndedSilently" in each["log"][-1], each["log"]
