"""A program that gevent has patched, as gunicorn -k gevent and celery -P gevent do."""

from __future__ import annotations

import subprocess
import sys

from tests.support.broker_processes import StartBroker

PROGRAM = """
import sys
from gevent import monkey; monkey.patch_all()
import gevent
from rmqlite.client import Message, Producer, PushConsumer

ticks, got = [], []

def tick():
    while True:
        gevent.sleep(0.01)
        ticks.append(1)

gevent.spawn(tick)
at = sys.argv[1]
with Producer(at, "shop") as producer, PushConsumer(at, "g", got.append) as consumer:
    sends = [gevent.spawn(producer.send, Message("t", b"x")) for _ in range(20)]
    gevent.joinall(sends, raise_error=True)
    consumer.subscribe("t")
    consumer.start()
    with gevent.Timeout(30):
        while len(got) < 20:
            gevent.sleep(0.01)
        before = len(ticks)
        while len(ticks) < before + 5:
            gevent.sleep(0.01)
"""


def test_a_started_consumer_does_not_hold_the_greenlets(start_broker: StartBroker) -> None:
    """gRPC has to be told of gevent; the client does it."""
    command = [sys.executable, "-c", PROGRAM, start_broker().endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
