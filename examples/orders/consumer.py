"""Works on orders until SIGTERM or Ctrl-C: python -m orders.consumer HOST:PORT

The result of the listener decides about an order: success ends it, RECONSUME_LATER or an
exception brings it back later, the level DEAD_LETTER makes it a dead letter at once.  It prints
one line of JSON for every delivery.
"""

from __future__ import annotations

import json
import signal
import sys

from orders.order import GROUP, TOPIC
from rmqlite.client import (
    CONSUME_SUCCESS,
    DEAD_LETTER,
    RECONSUME_LATER,
    ConsumeResult,
    PushConsumer,
    StoredMessage,
    reconsume_later,
)


class OutOfStock(Exception):
    """An error of the shop: the broker stores its name and text as the reason."""


def work(message: StoredMessage) -> ConsumeResult:
    """The listener: the order's fate decides how this attempt ends."""
    attempt = message.reconsume_times + 1
    fate = message.properties["fate"]
    event = "done"
    try:
        if fate == "fails-once" and attempt == 1:
            event = "retry"
            return reconsume_later(reason="card reader offline")
        if fate == "fails-twice" and attempt <= 2:
            event = "retry"
            return RECONSUME_LATER
        if fate == "dead-at-once":
            event = "dead"
            return reconsume_later(delay_level=DEAD_LETTER, reason="no such customer")
        if fate == "always-fails":
            event = "failed"
            raise OutOfStock("shelf is empty")
        return CONSUME_SUCCESS
    finally:
        order = message.keys[0]
        line = json.dumps({"event": event, "order": order, "attempt": attempt})
        # One write per line, because several threads share this pipe.
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def main(endpoint: str) -> None:
    # Block the signals and wait for them below, so that no handler interrupts other code.
    stops = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    consumer = PushConsumer(endpoint, GROUP, consume_threads=4)
    consumer.subscribe(TOPIC, "*")
    consumer.listen(work)
    consumer.start()
    signal.sigwait(stops)
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1])
