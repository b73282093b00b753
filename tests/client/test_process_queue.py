"""What may be committed, and when a queue is full."""

from __future__ import annotations

import random
from collections.abc import Iterable

from rmqlite.client.consuming.backlog import CacheLimits, ProcessQueue
from rmqlite.kernel.requests.topics import Queue
from tests.client.conftest import stored


def made(
    offsets: Iterable[int] = (), *, messages_max: int = 1_000, size_bytes_max: int = 1_000_000
) -> ProcessQueue:
    limits = CacheLimits(messages_max, size_bytes_max)
    queue = ProcessQueue(Queue("t", 0), 0, None, limits, lambda: None)
    messages = [stored(offset) for offset in offsets]
    if messages:
        queue.put(messages, messages[-1].queue_offset + 1)
    return queue


def test_the_lowest_unfinished_offset_is_what_may_be_committed() -> None:
    """In whatever order messages finish, a restart repeats but never skips one."""
    queue = made(range(5))
    started = [queue.start() for _ in range(5)]
    seen = []
    for index in (1, 0, 4, 3, 2):
        queue.finish(started[index])
        seen.append(queue.commit_offset)
    assert seen == [0, 2, 2, 2, 5]


def test_one_slow_message_holds_up_no_other() -> None:
    """Only what is unfinished fills a queue; but its commit waits, so a crash repeats the rest."""
    queue = made([0], messages_max=10)
    slow = queue.start()
    for first in range(1, 10_000, 9):
        queue.put([stored(each) for each in range(first, first + 9)], first + 9)
        assert queue.is_full
        for _ in range(9):
            queue.finish(queue.start())
        assert (queue.is_full, queue.commit_offset) == (False, 0), f"behind {first}"
    queue.finish(slow)
    assert queue.commit_offset == 10_000


def test_random_orders_never_commit_past_an_unfinished_message() -> None:
    """Also with holes in the offsets, as a tag filter leaves them."""
    for seed in range(50):
        order = random.Random(seed)
        offsets = sorted(order.sample(range(1_000), 60))
        queue = made(offsets)
        started = [queue.start() for _ in offsets]
        order.shuffle(started)
        left = set(offsets)
        for message in started:
            queue.finish(message)
            left.remove(message.queue_offset)
            assert queue.commit_offset == min(left, default=offsets[-1] + 1), f"seed {seed}"


def test_a_pull_without_messages_for_us_still_moves_the_commit() -> None:
    """Else a group that filters would read the same again after a restart."""
    queue = made()
    queue.put([], 800)
    assert queue.commit_offset == 800


def test_messages_that_were_not_started_hold_the_commit_back() -> None:
    """Pulled is not consumed."""
    queue = made(range(3))
    queue.finish(queue.start())
    assert queue.commit_offset == 1


def test_a_queue_is_full_by_number_or_by_size() -> None:
    """Whichever is first; a finished message makes room."""
    by_number = made(range(3), messages_max=3)
    assert by_number.is_full
    by_number.finish(by_number.start())
    assert not by_number.is_full
    assert made(range(3), size_bytes_max=300).is_full
    assert not made(range(3), size_bytes_max=301).is_full


def test_a_message_that_is_under_way_is_not_taken_twice() -> None:
    """A queue whose offset moved back gives it again."""
    queue = made(range(3))
    queue.start()
    queue.put([stored(n) for n in (1, 2, 3)], 4)
    assert [m.queue_offset for m in queue.ready] == [1, 2, 3]


def test_an_offset_that_moved_back_is_committed_as_such() -> None:
    """The queue is read again from there; a higher commit would skip it after a restart."""
    queue = made(range(10, 13))
    queue.put([], 5)
    assert queue.commit_offset == 5


def test_a_lost_queue_keeps_what_is_unfinished_uncommitted() -> None:
    """Its new reader gets it."""
    queue = made(range(4))
    first, second = queue.start(), queue.start()
    queue.finish(first)
    queue.lose()
    assert not queue.ready
    assert queue.commit_offset == second.queue_offset
    queue.abandon()
    assert (queue.commit_offset, queue.started) == (1, 0)
