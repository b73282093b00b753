"""How listener threads are shared out, and when pulling goes on."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from rmqlite.client.consuming.backlog import Backlog, CacheLimits, ProcessQueue
from rmqlite.kernel.requests.topics import Queue
from tests.client.conftest import stored
from tests.support.fake_broker import WAIT_S


def add_queue(
    backlog: Backlog, name: str, messages: int = 0, on_room: Any = None, messages_max: int = 1_000
) -> ProcessQueue:
    limits = CacheLimits(messages_max, 1_000_000)
    queue = ProcessQueue(Queue(name, 0), 0, None, limits, on_room or (lambda: None))
    backlog.add(queue)
    if messages:
        backlog.put(queue, [stored(n) for n in range(messages)], messages)
    return queue


def take(backlog: Backlog) -> str:
    taken = backlog.take()
    assert taken is not None
    return taken[0].queue.topic


def test_queues_take_turns() -> None:
    """A thousand messages of one do not come before the first of another."""
    backlog = Backlog(threads=100)
    add_queue(backlog, "a", 5)
    add_queue(backlog, "b", 2)
    assert [take(backlog) for _ in range(7)] == ["a", "b", "a", "b", "a", "a", "a"]


def test_one_queue_leaves_a_thread_for_each_other() -> None:
    """Its messages may all hang; the others go on."""
    backlog = Backlog(threads=4)
    add_queue(backlog, "hanging", 9)
    late = add_queue(backlog, "late")
    assert [take(backlog) for _ in range(3)] == ["hanging"] * 3
    with ThreadPoolExecutor(1) as pool:
        fourth = pool.submit(take, backlog)
        backlog.put(late, [stored(0)], 1)
        assert fourth.result(WAIT_S) == "late"


def test_a_queue_that_comes_first_leaves_threads_for_those_that_are_still_expected() -> None:
    """On a busy machine its messages came, and hung in every thread, before another was added."""
    backlog = Backlog(threads=4)
    backlog.expect(2)
    add_queue(backlog, "hanging", 9)
    assert [take(backlog) for _ in range(3)] == ["hanging"] * 3
    with ThreadPoolExecutor(1) as pool:
        fourth = pool.submit(take, backlog)
        add_queue(backlog, "late", 1)
        assert fourth.result(WAIT_S) == "late"


def test_one_queue_alone_may_have_every_thread() -> None:
    """Nobody else needs one."""
    backlog = Backlog(threads=4)
    add_queue(backlog, "only", 9)
    assert [take(backlog) for _ in range(4)] == ["only"] * 4


def test_with_many_queues_one_may_still_have_half_of_the_threads() -> None:
    """A busy queue among idle ones must not be starved to a single thread."""
    backlog = Backlog(threads=4)
    add_queue(backlog, "busy", 9)
    for number in range(30):
        add_queue(backlog, f"idle {number}")
    assert [take(backlog) for _ in range(2)] == ["busy"] * 2


def test_a_single_thread_serves_every_queue() -> None:
    """The share is never zero."""
    backlog = Backlog(threads=1)
    for name in ("a", "b"):
        add_queue(backlog, name, 1)
    for expected in ("a", "b"):
        taken = backlog.take()
        assert taken is not None
        assert taken[0].queue.topic == expected
        backlog.returned(*taken, is_finished=True)


def test_a_full_queue_is_pulled_again_as_soon_as_there_is_room() -> None:
    """Once, by the message that made the room, and not by polling."""
    backlog = Backlog(threads=4)
    told: list[str] = []
    queue = add_queue(backlog, "a", on_room=lambda: told.append("room"), messages_max=2)
    assert not backlog.put(queue, [stored(0), stored(1)], 2)
    for _ in range(2):
        taken = backlog.take()
        assert taken is not None
        backlog.returned(*taken, is_finished=True)
    assert told == ["room"]


def test_a_failed_message_takes_its_room_until_the_broker_has_it() -> None:
    """Send-backs that do not come through must not pile up."""
    backlog = Backlog(threads=4)
    told: list[str] = []
    queue = add_queue(backlog, "a", on_room=lambda: told.append("room"), messages_max=1)
    backlog.put(queue, [stored(0)], 1)
    taken = backlog.take()
    assert taken is not None
    backlog.returned(*taken, is_finished=False)
    assert (told, backlog.uncommitted()) == ([], {Queue("a", 0): 0})
    backlog.finish(*taken)
    assert (told, backlog.uncommitted()) == (["room"], {Queue("a", 0): 1})


def test_only_what_the_broker_does_not_know_is_committed() -> None:
    """An idle consumer commits nothing."""
    backlog = Backlog(threads=4)
    queue = add_queue(backlog, "a")
    assert backlog.uncommitted() == {Queue("a", 0): 0}
    backlog.committed({Queue("a", 0): 0})
    assert backlog.uncommitted() == {}
    backlog.put(queue, [], 7)
    assert backlog.uncommitted() == {Queue("a", 0): 7}


def test_a_lost_queue_gives_its_offset_once_and_its_messages_no_more() -> None:
    """From then on the offset is another consumer's."""
    backlog = Backlog(threads=4)
    queue = add_queue(backlog, "a", 3)
    first = backlog.take()
    assert first is not None
    assert backlog.lose([queue]) == {Queue("a", 0): 0}
    backlog.returned(*first, is_finished=True)
    assert backlog.uncommitted() == {}
    assert not backlog.put(queue, [stored(9)], 10)
    add_queue(backlog, "b", 1)
    assert take(backlog) == "b"


def test_stopping_wakes_idle_threads_and_waits_for_busy_ones() -> None:
    """close() ends when the last listener does."""
    backlog = Backlog(threads=4)
    add_queue(backlog, "a", 2)
    taken = backlog.take()
    assert taken is not None
    backlog.stop()
    assert backlog.take() is None
    assert not backlog.wait_quiet(0.0)
    assert backlog.wait_quiet(0.0, besides=1)
    finisher = threading.Thread(target=lambda: backlog.returned(*taken, is_finished=True))
    finisher.start()
    assert backlog.wait_quiet(WAIT_S)
    finisher.join()
