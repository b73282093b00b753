"""A master and its standby, each a process of its own."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rmqlite.client.admin_client import AdminClient
from rmqlite.client.consuming.pull_consumer import PullConsumer
from rmqlite.client.credentials import Credentials
from rmqlite.kernel.requests.broker import ReplicationStatus
from rmqlite.kernel.words.errors import Unavailable
from rmqlite.testing import BrokerProcess
from tests.support.broker_processes import OF_ANY_DISK, free_port
from tests.support.eventually import eventually
from tests.support.relay import Relay

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

    def __init__(
        self,
        folder: Path,
        authorities: tuple[str, str] = ("", ""),
        /,
        *,
        credentials: Credentials | None = None,
        more_name_servers: str = "",
        has_relay: bool = False,
        ahead_ms: int = 0,
        **settings: str,
    ) -> None:
        """authorities: of each broker.  credentials: of an administrator, if there are accounts;
        with a CA if both brokers take TLS only.

        more_name_servers: beside those of both, each with a ";" before it.  has_relay: the standby
        reaches the master through one.  ahead_ms: of the second broker's machine, whose clock is
        wrong.
        """
        self._credentials = credentials
        addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
        names = [str(free_port()) for _ in range(2)]
        self.name_servers = ";".join([f"127.0.0.1:{port}" for port in names])
        both = {**SMALL, "inSyncReplicas": "2", "brokersAllowed": "127.0.0.1"}
        both |= {"namesrvAddr": self.name_servers + more_name_servers} | settings
        waits = both["inSyncReplicas"] == "2"
        self.relay = Relay(addresses[0]) if has_relay else None
        others = (addresses[1], self.relay.address if self.relay else addresses[0])
        roles = ("SYNC_MASTER" if waits else "ASYNC_MASTER", "SLAVE")
        self._settings = {
            folder / name: {
                **both,
                "brokerRole": role,
                "grpcPort": own.rpartition(":")[2],
                "masterAddress": f"tls://{other}" if credentials and credentials.ca else other,
                "authority": authority,
                "listenPort": str(free_port()),
                "nameServerPort": name_port,
            }
            for name, role, own, other, authority, name_port in zip(
                ("first", "second"),
                roles,
                addresses,
                others,
                authorities,
                names,
                strict=True,
            )
        }
        self.first, self.second = [
            BrokerProcess(path, conf) for path, conf in self._settings.items()
        ]
        self.second._ahead_ms = ahead_ms
        self.endpoints = ",".join(addresses)

    def settings(self, broker: BrokerProcess) -> dict[str, str]:
        """The keys of its broker.conf that are not chosen by it."""
        return self._settings[broker.folder]

    def __enter__(self) -> Pair:
        with ExitStack() as started:
            if self.relay:
                started.enter_context(self.relay)
            started.enter_context(self.first)
            started.enter_context(self.second)
            started.pop_all()
        wait_for_copy(self.first, self._credentials)
        return self

    def __exit__(self, *_: object) -> None:
        for each in (self.first, self.second):
            each.stop()
        if self.relay:
            self.relay.__exit__()


def replication(broker: BrokerProcess, credentials: Credentials | None = None) -> ReplicationStatus:
    """What a broker says of the other copy."""
    is_tls = credentials is not None and credentials.ca
    endpoint = f"tls://{broker.endpoint}" if is_tls else broker.endpoint
    with AdminClient(endpoint, credentials=credentials) as admin:
        (status,) = admin.broker_status().replication
        return status


def wait_for_copy(master: BrokerProcess, credentials: Credentials | None = None) -> None:
    """Return when the standby has all."""

    def has_all() -> bool:
        try:
            status = replication(master, credentials)
        except (Unavailable, ValueError):
            # A master that does not wait has no copies before the first standby has come.
            return False
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


def is_master(endpoint: str) -> bool:
    """Does the broker there say that it is the master?"""
    try:
        with AdminClient(endpoint) as admin:
            return admin.broker_status().replication[0].role != "SLAVE"
    except Unavailable:
        return False
