"""Producers that send the same unique ids to a broker that is killed: each comes once."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter

from rmqlite.client import (
    AdminClient,
    BulkMessage,
    BulkScheduler,
    Message,
    Producer,
    PullConsumer,
)
from rmqlite.client.asyncio import AsyncProducer
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import StartBroker
from tests.support.eventually import eventually

IDS = 240
SENDERS = 3
KILLS = 2
PATIENCE_MS = 60_000


class Sender(threading.Thread):
    """Sends every id once, some by replacing, and is answered by whatever broker comes."""

    def __init__(self, endpoint: str, name: str) -> None:
        super().__init__()
        self._endpoint, self._of = endpoint, name
        self.answered = 0

    def run(self) -> None:
        with Producer(
            self._endpoint, "senders", retries=100, send_timeout_ms=PATIENCE_MS
        ) as producer:
            for number in range(IDS):
                producer.send(message(number, self._of))
                self.answered += 1


class BulkSender(Sender):
    """Sends the same ids as the rows of a job."""

    def run(self) -> None:
        body = self._of.encode()
        rows = (BulkMessage("jobs", body, f"job-{number}", delay="1s") for number in range(IDS))
        with BulkScheduler(self._endpoint, batch_messages=20, in_flight=1) as scheduler:
            for _ in scheduler.schedule(rows):
                self.answered += 1


def message(number: int, name: str) -> Message:
    after = "2s" if number % 3 else None
    replace = number % 2 == 0
    unique_id = f"job-{number}"
    return Message("jobs", name.encode(), deliver_after=after, unique_id=unique_id, replace=replace)


def arrived(broker: BrokerProcess) -> Counter[str]:
    """How often each id is in the topic, when nothing waits any more."""
    found: Counter[str] = Counter()
    with AdminClient(broker.endpoint) as admin, PullConsumer(broker.endpoint, "readers") as pull:
        eventually(
            lambda: not sum(level.pending for level in admin.broker_status().levels),
            "everything due is delivered",
        )
        for each in admin.ranges("jobs"):
            offset = each.min_offset
            while offset < each.max_offset:
                result = pull.pull("jobs", each.queue.queue_id, offset, max_messages=500)
                # The id of a row is its message id.
                ids = [one.properties.get("UNIQUE_ID", one.message_id) for one in result.messages]
                found.update(ids)
                offset = result.next_offset
    return found


def test_of_many_senders_and_a_killed_broker_each_id_comes_once(start_broker: StartBroker) -> None:
    """A send whose answer is lost is sent again; so is one that another sender has made before.

    The rows of a bulk job have the same ids, and its calls are repeated after a SIGKILL, too.
    """
    broker = start_broker()
    senders = [Sender(broker.endpoint, f"sender-{number}") for number in range(SENDERS)]
    senders.append(BulkSender(broker.endpoint, "bulk"))
    for each in senders:
        each.start()
    for kill in range(1, KILLS + 1):
        enough = kill * IDS // (KILLS + 1)
        eventually(lambda: min(each.answered for each in senders) >= enough, "enough is sent")  # noqa: B023
        broker.kill()
        broker.start()
    for each in senders:
        each.join()
    assert [each.answered for each in senders] == [IDS] * len(senders)
    broker.kill()
    broker.start()
    assert arrived(broker) == Counter([f"job-{number}" for number in range(IDS)])


def test_an_event_loop_and_batches_hear_of_duplicates(start_broker: StartBroker) -> None:
    """By the real clients: the result is the first message's."""
    broker = start_broker()

    async def both() -> None:
        async with AsyncProducer(broker.endpoint, "senders") as producer:
            first = await producer.send(message(1, "a"))
            second = await producer.send(message(1, "b"))
            assert second == first._replace(is_duplicate=True)
            plain, again = await producer.send_batch([Message("jobs", b"x"), message(1, "c")])
            assert (plain.is_duplicate, again) == (False, second)
            assert (await producer.send(message(2, "a"))).message_id
            replacing = await producer.send(message(2, "b"))
            assert not replacing.is_duplicate

    asyncio.run(both())
