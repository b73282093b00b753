"""What requests and answers say about themselves."""

from __future__ import annotations

import pytest

from rmqlite.features.operating.requests import QueueProgress
from rmqlite.kernel.requests.groups import Subscription
from rmqlite.kernel.requests.messages import SendBackResult
from rmqlite.kernel.requests.topics import Queue


@pytest.mark.parametrize(
    ("committed_offset", "lag"), [(None, 90), (0, 90), (10, 90), (60, 40), (100, 0), (120, 0)]
)
def test_lag_counts_what_is_there_and_not_done(committed_offset: int | None, lag: int) -> None:
    """What retention deleted cannot be read any more; a position past the end is no lag."""
    progress = QueueProgress(Queue("orders", 0), 10, 100, committed_offset, "")
    assert progress.lag == lag


def test_a_dead_letter_is_never_due() -> None:
    """deliver_at_ms 0 is how the wire says it."""
    assert SendBackResult("%DLQ%g", 17, 0, 0).is_dead
    assert not SendBackResult("%RETRY%g", 1, 3, 1_700_000_000_000).is_dead


@pytest.mark.parametrize(
    ("subscription", "text"),
    [
        (Subscription("orders"), "orders *"),
        (Subscription("orders", "A || B"), "orders A || B"),
        (Subscription("orders", sql="n > 1"), "orders sql: n > 1"),
        (Subscription("orders", "A", "n > 1"), "orders A sql: n > 1"),
    ],
)
def test_a_subscription_names_its_conditions(subscription: Subscription, text: str) -> None:
    """Lists of members show it: a filter that nobody sees looks like lost messages."""
    assert str(subscription) == text
