"""A store full of dead letters, made quickly and without a broker process.

What the n-th letter is, is a function of n, so a test knows what to find: letter n is the
n-th of %DLQ%group.  The folder can be given to a real broker afterwards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from rmqlite.features.every import features
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.messages import SendBackRequest
from rmqlite.kernel.store.disk.files import SystemFiles
from rmqlite.kernel.store.message_store import MessageStore
from rmqlite.kernel.words.message import Message
from tests.support.brokers import Heard
from tests.support.clock import START_MS, FakeClock
from tests.support.sends import sending
from tests.support.steps import done

GROUP: Final = "shop"
TOPICS: Final = ("orders", "payments", "parcels")
TAGS: Final = ("new", "changed", "cancelled", "")
REASONS: Final = (
    "ConnectionError: payment service does not answer",
    "ValueError: no such article",
    "TimeoutError: gave up after 30 s",
    "KeyError: 'address'\n  in line 3 of the order",
    "",
)
_CALL_MESSAGES: Final = 500


def topic_of(number: int) -> str:
    """Where letter number was sent first."""
    return TOPICS[number % len(TOPICS)]


def tag_of(number: int) -> str:
    return TAGS[number % len(TAGS)]


def reason_of(number: int) -> str:
    """Of ten letters five die for the first reason, two for the second, one for each other."""
    return REASONS[(0, 1, 0, 2, 0, 3, 0, 1, 0, 4)[number // 3 % 10]]


def body_of(number: int) -> bytes:
    return b'{"order": %d, "lines": [{"article": "chair", "amount": 4}]}' % number


def key_of(number: int) -> str:
    return f"order-{number}"


def message_id_of(number: int) -> str:
    return f"letter-{number}"


def dead_letter_store(
    path: Path,
    count: int,
    *,
    group: str = GROUP,
    body_of: Callable[[int], bytes] = body_of,
    reason_of: Callable[[int], str] = reason_of,
    begins_ms: int = START_MS,
    every_ms: int = 10,
    **settings: Any,
) -> None:
    """Make a store at path, cleanly closed, in which count messages have died, first to last.

    Letter n died, at its first failure, begins_ms + n * every_ms after 1970.  100,000 take
    seven seconds.
    settings: of the broker that makes it, by the names of BrokerConfig; the store can be
    there already, and gets more letters then, whose numbers begin at 0 again.
    """
    clock = FakeClock(begins_ms)
    config = BrokerConfig(store_path=path, disk_warning_ratio=100, **settings)
    store = MessageStore(config, SystemFiles(), clock)
    broker = Broker(config, store, clock, Heard(), [each.make for each in features()])
    for start in range(0, count, _CALL_MESSAGES):
        numbers = range(start, min(start + _CALL_MESSAGES, count))
        messages = tuple(
            [
                Message(
                    topic_of(n), body_of(n), tag_of(n), (key_of(n),), message_id=message_id_of(n)
                )
                for n in numbers
            ]
        )
        sent = done(sending(broker, messages))
        for n, result in zip(numbers, sent, strict=True):
            broker.send_back(
                SendBackRequest(group, result.physical_offset, delay_level=-1, reason=reason_of(n))
            )
            clock.forward(every_ms)
    job = store.begin_sync()
    job.run()
    store.synced(job)
    store.close(broker.tables())
