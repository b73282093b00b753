"""How much CPU time a broker takes for a message that it appends, restores or gives to a pull.

    python -m tests.benchmarks.records --messages 20000

Broker and store are called in this process, without network and without syncs, so that
nothing but their own work is measured.  Every figure is the best of some rounds, because
other programs on the machine can only make a round slower.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rmqlite.kernel.requests.messages import PullRequest
from rmqlite.kernel.sends.calls import DraftCall, Stored
from rmqlite.kernel.words.message import Message
from tests.support.brokers import BrokerUnderTest
from tests.support.files import QuickFiles
from tests.support.sends import call_of
from tests.support.steps import done

TOPIC: Final = "orders"
PLAIN_BATCH: Final = 256
DELAYED_BATCH: Final = 32
PULL_MESSAGES: Final = 32
LEVEL: Final = 3
LEVEL_MS: Final = 10_000
BODY: Final = b"x" * 200


def batches(count: int, size: int, delay_level: int = 0) -> list[DraftCall]:
    """Calls that send so many messages with a key, a tag and a property of their own."""
    messages = [
        Message(
            TOPIC,
            BODY,
            tags="TagA",
            keys=(f"order-{number}",),
            properties={"color": "red"},
            delay_level=delay_level,
        )
        for number in range(count)
    ]
    return [call_of(messages[begin : begin + size], queue_id=0) for begin in range(0, count, size)]


def send(broker: BrokerUnderTest, calls: list[DraftCall]) -> None:
    for call in calls:
        (outcome,) = done(broker.broker.drafts.send([call]))
        assert isinstance(outcome, Stored)


def pull_all(broker: BrokerUnderTest, count: int) -> None:
    for offset in range(0, count, PULL_MESSAGES):
        assert len(broker.pull(TOPIC, 0, offset).messages) == PULL_MESSAGES


def pull_all_raw(broker: BrokerUnderTest, count: int) -> None:
    """What a client of RocketMQ's remoting protocol gets: it takes the records apart itself."""
    for offset in range(0, count, PULL_MESSAGES):
        pulled = done(
            broker.broker.pull(PullRequest("readers", TOPIC, 0, offset, max_messages=PULL_MESSAGES))
        )
        assert pulled.records.encoded


def figures(folder: Path, count: int) -> dict[str, float]:
    """One round: CPU microseconds for a message, by what was done with it."""
    broker = BrokerUnderTest(
        folder,
        files=QuickFiles(),
        mapped_file_size_commit_log=256 << 20,
        mapped_file_size_consume_queue=6_000_000,
        max_hash_slots=500_000,
        max_index_entries=2_000_000,
    )
    plain, delayed = batches(count, PLAIN_BATCH), batches(count, DELAYED_BATCH, LEVEL)
    taken: dict[str, float] = {}

    def measured(name: str, work: Callable[[], object]) -> None:
        began_s = time.process_time()
        work()
        taken[name] = (time.process_time() - began_s) / count * 1e6

    measured(f"append, batches of {PLAIN_BATCH}", lambda: send(broker, plain))
    broker.sync()
    measured(f"pull, {PULL_MESSAGES} messages a call", lambda: pull_all(broker, count))
    measured("pull of records as they lie in the log", lambda: pull_all_raw(broker, count))
    measured(f"delayed append, batches of {DELAYED_BATCH}", lambda: send(broker, delayed))
    broker.clock.forward(LEVEL_MS)
    measured("restore of what is due", broker.deliver)
    assert broker.broker.schedule.delivered == count
    broker.close()
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_480, help="in a round")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    count = options.messages // PLAIN_BATCH * PLAIN_BATCH
    best: dict[str, float] = {}
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            for name, cpu_us in figures(Path(folder), count).items():
                best[name] = min(cpu_us, best.get(name, cpu_us))
    for name, cpu_us in best.items():
        print(f"{name:34} {cpu_us:6.1f} us CPU for a message")


if __name__ == "__main__":
    main()
