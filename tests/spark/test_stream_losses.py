"""What retention takes while a batch is being read: only that is lost, and only if allowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from rmqlite.kernel.requests.topics import Queue, QueueRange
from rmqlite.kernel.words.errors import OffsetGone
from rmqlite.spark.arrow.partitions import QueueStretch
from rmqlite.spark.options import parse_options
from rmqlite.spark.partitions import queue_chunks


class FakeReader:
    """A queue with a chunk for each queue offset, of which retention takes some on the way."""

    def __init__(self, low: int, low_after: int, taken_at: int) -> None:
        """From the chunk of taken_at on the queue begins at low_after."""
        self._low, self._low_after, self._taken_at = low, low_after, taken_at

    def queue(self, topic: str, queue_id: int, begin: int, end: int) -> Iterator[bytes]:
        for offset in range(begin, end):
            if offset == self._taken_at:
                self._low = self._low_after
            if offset < self._low:
                raise OffsetGone(f"queue {queue_id} of topic {topic!r}", offset, self._low)
            yield b"%d" % offset

    def snapshot(self, topics: Sequence[str]) -> Any:
        (topic,) = topics
        return SimpleNamespace(queues=(QueueRange(Queue(topic, 3), self._low, 20),))


def read(reader: Any, **options: str) -> list[int]:
    parsed = parse_options({"endpoint": "127.0.0.1:1", **options})
    return [int(chunk) for chunk in queue_chunks(reader, QueueStretch("orders", 3, 4, 12), parsed)]


@pytest.mark.parametrize(
    ("reader", "rows"),
    [
        (FakeReader(4, 0, 99), [*range(4, 12)]),
        (FakeReader(7, 0, 99), [*range(7, 12)]),
        (FakeReader(4, 9, 6), [4, 5, 9, 10, 11]),
        (FakeReader(4, 20, 6), [4, 5]),
    ],
)
def test_what_is_kept_is_read_if_loss_is_allowed(reader: FakeReader, rows: list[int]) -> None:
    """Nothing twice, and nothing that is still there left out."""
    assert read(reader, failOnDataLoss="false") == rows


def test_what_is_taken_meanwhile_is_an_error() -> None:
    """As what was taken before; the task fails, and its next attempt too."""
    with pytest.raises(OffsetGone, match="offset 6 is gone, the first one kept is 9"):
        read(FakeReader(4, 9, 6))
