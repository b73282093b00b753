"""A master is killed, its standby takes over, nothing is lost: python3 examples/standby.py

Two brokers run here, each with a store of its own.  The clients know both addresses, and go on by
themselves.  The exit code is 0 if every acknowledged message was consumed.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import environment

if TYPE_CHECKING:
    from rmqlite.client import PushConsumer
    from rmqlite.testing import BrokerProcess

TOPIC = "orders"
MESSAGES = 200
KILLED_AT = 100
SECONDS_MAX = 120.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def two_brokers(folder: Path) -> tuple[BrokerProcess, BrokerProcess]:
    """The master, and its standby; each names the other one."""
    from rmqlite.testing import BrokerProcess

    ports = [str(free_port()), str(free_port())]
    both = {"inSyncReplicas": "2", "diskSpaceWarningLevelRatio": "100"}
    master = both | {"brokerRole": "SYNC_MASTER", "grpcPort": ports[0]}
    standby = both | {"brokerRole": "SLAVE", "grpcPort": ports[1]}
    return (
        BrokerProcess(folder / "master", master | {"masterAddress": f"127.0.0.1:{ports[1]}"}),
        BrokerProcess(folder / "standby", standby | {"masterAddress": f"127.0.0.1:{ports[0]}"}),
    )


class Reader:
    """A consumer; got: the bodies of the messages that have come."""

    def __init__(self, endpoints: str) -> None:
        from rmqlite.client import PushConsumer, StoredMessage

        def listen(message: StoredMessage) -> None:
            self.got.add(message.body)

        self.got: set[bytes] = set()
        self.consumer: PushConsumer = PushConsumer(endpoints, "order-readers", listen)
        self.consumer.subscribe(TOPIC)


def wait_until_copied(endpoints: str) -> None:
    """Return when the standby has all."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoints) as admin:
        until = time.monotonic() + SECONDS_MAX
        while time.monotonic() < until:
            (status,) = admin.broker_status().replication or (None,)
            if status and status.is_connected and not status.behind_bytes and not status.trouble:
                return
            time.sleep(0.05)
    sys.exit(f"the standby has not got everything in {SECONDS_MAX} s: {status}")


def take_over(master: BrokerProcess, standby: BrokerProcess) -> None:
    """What happens on a bad day: the machine of the master is gone, with its disk."""
    from rmqlite.client import AdminClient

    master.kill()
    shutil.rmtree(master.store)
    print("the master is killed, and its disk is gone")
    with AdminClient(standby.endpoint) as admin:
        # As `rmqlite standby promote --force`: it need not wait until it misses the master.
        lacking = admin.promote(force=True)
    print(f"the standby is promoted; it lacks {lacking} bytes")


def main() -> int:
    from rmqlite.client import AdminClient, Message, Producer

    with tempfile.TemporaryDirectory() as text:
        master, standby = two_brokers(Path(text))
        with master, standby:
            endpoints = f"{master.endpoint},{standby.endpoint}"
            wait_until_copied(endpoints)
            with AdminClient(endpoints) as admin:
                admin.create_topic(TOPIC, queues=4)
            print(f"a master and its standby: {endpoints}")
            reader, longest_s, sent = Reader(endpoints), 0.0, set()
            with Producer(endpoints, "order-senders", retries=20) as producer, reader.consumer:
                reader.consumer.start()
                for number in range(MESSAGES):
                    if number == KILLED_AT:
                        bad_day = threading.Thread(target=take_over, args=(master, standby))
                        bad_day.start()
                    began_s = time.monotonic()
                    body = b"order %d" % number
                    # Half of them wait for a second: the standby has what is to be delivered, too.
                    producer.send(Message(TOPIC, body, delay_level=number % 2))
                    sent.add(body)
                    longest_s = max(longest_s, time.monotonic() - began_s)
                bad_day.join()
                until = time.monotonic() + SECONDS_MAX
                while reader.got != sent and time.monotonic() < until:
                    time.sleep(0.05)
            print(f"{len(sent)} acknowledged, {len(reader.got & sent)} consumed")
            print(f"the longest send took {longest_s:.1f} s: it waited for the new master")
            return int(reader.got != sent)


if __name__ == "__main__":
    if Path(sys.prefix) == environment.ROOT / ".venv":
        sys.exit(main())
    python = str(environment.ensure(""))
    os.execve(python, [python, __file__], dict(os.environ))
