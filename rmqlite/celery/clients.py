"""The clients of one connection of kombu's, made when they are needed."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from kombu.utils.url import parse_url

from rmqlite.celery.names import key_of, topic_of
from rmqlite.client import (
    AdminClient,
    Credentials,
    OffsetReset,
    PendingFilter,
    Producer,
    PullConsumer,
    ScheduleAction,
    SimpleConsumer,
)
from rmqlite.client.credentials import PEM_BYTES_MAX
from rmqlite.client.endpoint import TLS
from rmqlite.kernel.requests.topics import QueueRange
from rmqlite.kernel.words.errors import (
    GroupUnknown,
    InvalidValue,
    PermissionMissing,
    TopicUnknown,
)
from rmqlite.kernel.words.message import host_text
from rmqlite.kernel.words.names import TOOLS_GROUP, retry_topic
from rmqlite.protocols.shared.secret_files import read_text

PORT: Final = 8081
_FILES: Final = {"ca_certs": "ca", "certfile": "certificate", "keyfile": "private_key"}


class Clients:
    """What a transport asks of rmqlite.  Every method raises RmqliteError."""

    def __init__(self, client: Any, *, is_tls: bool) -> None:
        """client: kombu's Connection, of which this has all hosts, the account and the files."""
        is_tls = is_tls or bool(client.ssl)
        alone = {"hostname": client.hostname, "port": client.port}
        hosts = [parse_url(_with_scheme(each)) for each in client.alt] or [alone]
        prefix = TLS if is_tls else ""
        self.endpoint: Final = ",".join(
            prefix + host_text(each.get("hostname") or "localhost", each.get("port") or PORT)
            for each in hosts
        )
        files = client.ssl if isinstance(client.ssl, dict) else {}
        named = {ours: _pem(name, files[name]) for name, ours in _FILES.items() if name in files}
        account = {"access_key": client.userid or "", "secret": client.password or ""}
        self.credentials: Final = Credentials(**account, **named)
        self._consumers: dict[str, SimpleConsumer] = {}

    @cached_property
    def producer(self) -> Producer:
        return Producer(self.endpoint, "celery", credentials=self.credentials)

    @cached_property
    def puller(self) -> PullConsumer:
        """Of what all hear: each reads for itself, and no group keeps how far it is."""
        return PullConsumer(self.endpoint, TOOLS_GROUP, credentials=self.credentials)

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient(self.endpoint, credentials=self.credentials)

    def consumer(self, queue: str) -> SimpleConsumer:
        """Of one queue.  A group for each: workers need not consume from the same queues."""
        found = self._consumers.get(queue)
        if found is None:
            topic = topic_of(queue)
            found = SimpleConsumer(self.endpoint, topic, credentials=self.credentials)
            found.subscribe(topic)
            self._consumers[queue] = found
        return found

    def check(self) -> None:
        """Raises RmqliteError if the broker cannot be reached, or does not know the account."""
        with suppress(PermissionMissing):
            self.admin.broker_status()

    def ensure_topic(self, queue: str) -> None:
        """As a send would, by the broker's autoCreateTopicEnable."""
        self.admin.route(topic_of(queue), create=True)

    def queue_ranges(self, queue: str) -> tuple[QueueRange, ...]:
        """Empty if there is no such topic."""
        try:
            return self.admin.ranges(topic_of(queue))
        except TopicUnknown:
            return ()

    def size(self, queue: str) -> int:
        """Messages that no worker has got yet, without those that wait for their time."""
        topic = topic_of(queue)
        try:
            progress = self.admin.group(topic).progress
        except GroupUnknown:
            return sum(each.max_offset - each.min_offset for each in self.queue_ranges(queue))
        return sum(each.lag for each in progress if each.queue.topic == topic)

    def purge(self, queue: str) -> int:
        """Skip what is ready, cancel what waits, for a retry, too; returns how many."""
        topic, count = topic_of(queue), self.size(queue)
        if count:
            self.admin.reset_offsets(OffsetReset(topic, topic, force=True))
        waiting = [PendingFilter(topic=each) for each in (topic, retry_topic(topic))]
        return count + sum(map(self._cancel, waiting))

    def revoke(self, task_id: str) -> int:
        """Cancel what waits of a task; returns how many messages that were."""
        return self._cancel(PendingFilter(key=key_of(task_id)))

    def _cancel(self, which: PendingFilter) -> int:
        return self.admin.schedule.change_pending(ScheduleAction.CANCEL, which)

    def disconnect(self) -> None:
        """What workers have leased and not settled is visible again at once."""
        for consumer in self._consumers.values():
            consumer.close()
        for name in ("producer", "puller", "admin"):
            with suppress(KeyError):
                self.__dict__.pop(name).close()
        self._consumers = {}


def _with_scheme(host: str) -> str:
    return host if "://" in host else f"rmqlite://{host}"


def _pem(name: str, path: str) -> str:
    try:
        return read_text(Path(path), PEM_BYTES_MAX)[0]
    except ValueError as error:
        raise InvalidValue(name, path, str(error)) from None
