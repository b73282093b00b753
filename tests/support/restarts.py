"""The ways in which a broker stops and starts again, and a record put in by hand before."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from rmqlite.kernel.words.names import SCHEDULE_TOPIC
from tests.support.brokers import BrokerUnderTest
from tests.support.stores import new_record


def clean(broker: BrokerUnderTest) -> None:
    broker.restart()


def crash(broker: BrokerUnderTest) -> None:
    broker.crash()
    broker.open()


def crash_after_persist(broker: BrokerUnderTest) -> None:
    broker.persist()
    crash(broker)


def lose_the_queues(broker: BrokerUnderTest) -> None:
    """Only the log is left; the queues are made again from it."""
    broker.close()
    root = broker.config.store_path
    shutil.rmtree(root / "consumequeue", ignore_errors=True)
    for table in ("storeProgress.json", "storeProgress.json.bak", "delayOffset.json"):
        (root / "config" / table).unlink(missing_ok=True)
    (root / "config" / "delayOffset.json.bak").unlink(missing_ok=True)
    broker.open()


def crash_and_lose_the_queues(broker: BrokerUnderTest) -> None:
    crash(broker)
    lose_the_queues(broker)


WAYS = [clean, crash, crash_after_persist, lose_the_queues, crash_and_lose_the_queues]
Restart = Callable[[BrokerUnderTest], None]


def scheduled(broker: BrokerUnderTest, body: bytes, properties: dict[str, str]) -> None:
    """A record put into level 1 by hand, as a foreign or broken writer would."""
    new = new_record(body, SCHEDULE_TOPIC, 0, properties=properties)
    (at,) = broker.store.append([new])
    broker.broker.wait_queues.notice(1, at.queue_offset, at.store_timestamp_ms + 1_000)
