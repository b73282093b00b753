"""A thread that sends delayed messages to a broker process while the test kills it."""

from __future__ import annotations

import os
import random
import threading
from datetime import timedelta

from rmqlite.client import (
    Message,
    Producer,
)
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.testing import BrokerProcess
from tests.support.eventually import eventually

SEED = int(os.environ.get("RMQLITE_SEED", "20261120"))
TOPIC = "orders"
SENT_MIN = 50
"""Between two kills."""


class Sending(threading.Thread):
    """Sends delayed messages until told to stop; knows which were acknowledged."""

    def __init__(
        self, endpoint: str, seed: int, *, with_timers: bool = False, pause_s: float = 0.002
    ) -> None:
        """with_timers: half of the delayed messages wait for an instant of their own."""
        super().__init__()
        self._with_timers = with_timers
        self._pause_s = pause_s
        self._endpoint = endpoint
        self._random = random.Random(seed)
        self._stopped = threading.Event()
        self.acknowledged: list[str] = []
        self.uncertain: list[str] = []

    def run(self) -> None:
        # No retries: a message whose answer is lost may be stored or not, but never twice.
        with Producer(self._endpoint, "senders", retries=0, send_timeout_ms=2_000) as producer:
            number = 0
            while not self._stopped.wait(self._pause_s):
                batch = [self._message(number + n) for n in range(self._random.randint(1, 8))]
                number += len(batch)
                names = [message.keys[0] for message in batch]
                try:
                    producer.send_batch(batch)
                    self.acknowledged += names
                except Unavailable:
                    self.uncertain += names

    def stop(self) -> None:
        self._stopped.set()
        self.join()

    def _message(self, number: int) -> Message:
        level = self._random.choice((0, 1, 1, 2))
        body = self._random.randbytes(self._random.randint(1, 3_000))
        if level and self._with_timers and self._random.random() < 0.5:
            wait = timedelta(milliseconds=self._random.randint(1, 3_000))
            return Message(TOPIC, body, keys=f"m{number}", deliver_after=wait)
        return Message(TOPIC, body, keys=f"m{number}", delay_level=level)


def kill_and_restart(broker: BrokerProcess, sending: Sending, chance: random.Random) -> None:
    """At a random moment, when enough was sent since the last time."""
    before = len(sending.acknowledged)
    eventually(lambda: len(sending.acknowledged) > before + SENT_MIN, "messages are sent")
    threading.Event().wait(chance.uniform(0.3, 1.6))
    broker.kill()
    broker.start()
