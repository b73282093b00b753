"""A master and its standby, each a process of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.eventually import eventually

SMALL: Final = {
    **OF_ANY_DISK,
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": str(1 << 19),
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "mappedFileSizeConsumeQueue": "6000",
}
"""Log files of 1 MiB."""


class Pair:
    """`first` begins as the master, `second` as its standby; both wait for two copies."""

    def __init__(self, folder: Path, **settings: str) -> None:
        ports = [free_port(), free_port()]
        both = {**SMALL, "inSyncReplicas": "2", **settings}
        addresses = [f"127.0.0.1:{port}" for port in ports]
        self.first = BrokerProcess(
            folder / "first", {"brokerRole": "SYNC_MASTER", "grpcPort": str(ports[0]), **both}
        )
        self.second = BrokerProcess(
            folder / "second",
            {
                "brokerRole": "SLAVE",
                "grpcPort": str(ports[1]),
                "masterAddress": addresses[0],
                **both,
            },
        )
        self.endpoints = ",".join(addresses)

    def __enter__(self) -> Pair:
        with ExitStack() as started:
            started.enter_context(self.first)
            started.enter_context(self.second)
            started.pop_all()
        wait_for_copy(self.first)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.first, self.second):
            each.stop()


def replication(broker: BrokerProcess) -> ReplicationStatus:
    """What a broker says of the other copy."""
    with AdminClient(broker.endpoint) as admin:
        (status,) = admin.broker_status().replication
        return status


def wait_for_copy(master: BrokerProcess) -> None:
    """Return when the standby has all."""

    def has_all() -> bool:
        status = replication(master)
        return status.is_connected and not status.behind_bytes and not status.trouble

    eventually(has_all, "the standby has all")


def log_bytes(broker: BrokerProcess) -> dict[str, bytes]:
    """The files of a stopped broker's log, without their marks."""
    found = sorted((broker.store / "commitlog").iterdir())
    return {path.name: path.read_bytes()[: (1 << 20) - 512] for path in found}


def bodies_of(broker: BrokerProcess, topic: str) -> list[bytes]:
    """All bodies in a topic's queues."""
    with PullConsumer(broker.endpoint, "reader") as consumer:
        found = []
        for queue in consumer.queues(topic):
            at = 0
            while messages := (pulled := consumer.pull(queue.topic, queue.queue_id, at)).messages:
                found += [each.body for each in messages]
                at = pulled.next_offset
        return found
