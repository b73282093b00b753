"""Resyncs, one after the other: committed offsets do not go back further than a second.

    python -m tests.conformance.standby.resyncs --rounds 100

In each round the standby is killed, every fourth time its disk is new; then it takes over: after a
switch it has every committed offset, after a kill of the master those of a second before.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Final

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.client.producer import Producer
from rmqlite.features.standby.leading import BEAT_S
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.clock import pause_s
from rmqlite.kernel.words.message import Message
from tests.support.eventually import eventually
from tests.support.fail_over import promoted
from tests.support.standbys import Pair, is_master, wait_for_copy

TOPIC: Final = "orders"
MESSAGES: Final = 20
QUEUE: Final = Queue(TOPIC, 0)


def committed(endpoint: str) -> int:
    with PullConsumer(endpoint, "readers") as consumer:
        return consumer.committed(QUEUE) or 0


def consume(endpoint: str, count: int) -> int:
    """Pull and commit so many messages, from the committed offset on; where that is then."""
    with PullConsumer(endpoint, "readers") as consumer:
        at = consumer.committed(QUEUE) or 0
        pulled = consumer.pull(TOPIC, 0, at, max_messages=count)
        assert [each.queue_offset for each in pulled.messages] == [*range(at, at + count)]
        consumer.commit(QUEUE, at + count)
        return at + count


def run(folder: Path, rounds: int, seed: int = 1) -> None:
    """Raises AssertionError for an offset that is lost."""
    chance = Random(seed)
    with Pair(folder) as pair:
        with AdminClient(pair.first.endpoint) as admin:
            admin.create_topic(TOPIC, queues=1)
        master, standby = pair.first, pair.second
        for number in range(rounds):
            with Producer(master.endpoint, "shop") as producer:
                producer.send_batch([Message(TOPIC, b"%d" % number)] * MESSAGES)
            standby.kill()
            if number % 4 == 1:
                shutil.rmtree(standby.store)
            standby.start()
            wait_for_copy(master)
            old = consume(master.endpoint, chance.randint(1, MESSAGES // 2))
            is_switch = number % 2 == 0
            if not is_switch:
                pause_s(BEAT_S * 2)
            new = consume(master.endpoint, chance.randint(1, MESSAGES // 2))
            if is_switch:
                with AdminClient(master.endpoint) as admin:
                    admin.switch()
                eventually(lambda it=standby: is_master(it.endpoint), "it is the master")  # type: ignore[misc]
            else:
                master.kill()
                promoted(standby.endpoint)
                master.start()
            master, standby = standby, master
            found = committed(master.endpoint)
            assert (new if is_switch else old) <= found <= new, (number, old, new, found)
            wait_for_copy(master)
            print(f"round={number} switch={is_switch} committed={old},{new} found={found}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rmqlite-resyncs-") as folder:
        run(Path(folder), options.rounds)


if __name__ == "__main__":
    main()
