"""A channel: publishes tasks as messages, leases messages as tasks, and settles each.

A queue is a topic, and the group of the same name takes turns at it.  What all are to hear (remote
control, its replies, events) is a topic of the exchange's, which each reader reads for itself from
the moment at which it binds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Empty
from typing import Any, ClassVar, Final

from kombu import serialization
from kombu.exceptions import ChannelError
from kombu.transport import virtual
from kombu.utils.json import dumps, loads
from kombu.utils.uuid import uuid

from rmqlite.celery.names import due_ms, key_of, tag_of, topic_of
from rmqlite.client import LeasedMessage, Message, PullResult, SimpleConsumer
from rmqlite.client.forks import CallFuture
from rmqlite.kernel.words.errors import (
    HandleInvalid,
    InvalidValue,
    Refused,
    RmqliteError,
    Unavailable,
)
from rmqlite.kernel.words.levels import wait_ms, whole_wait

POLL: Final = "10s"
MESSAGES_MAX: Final = 32
"""For one answer."""
PLAIN: Final = "utf-8"
REMOTE_CONTROL: Final = ".pidbox"
"""How the names of kombu's exchanges for it end."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Arrival:
    """The answer to a call of a queue's; then one of its messages.

    payload: of kombu's message.  leased: None for what all hear.
    """

    channel: Channel
    queue: str
    future: CallFuture[Any] | None = None
    payload: dict[str, Any] | None = None
    leased: LeasedMessage | None = None


class QoS(virtual.QoS):
    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        self.channel.settle(delivery_tag)
        self._done(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        self.channel.refuse(delivery_tag, again=requeue)
        self._done(delivery_tag)

    def _done(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self.channel.arrivals.put(None)


class Channel(virtual.Channel):
    QoS = QoS
    do_restore = False
    supports_fanout = True
    visibility_timeout: float = 30
    """How long a message is leased, in seconds; a worker that lives makes it longer."""
    from_transport_options: ClassVar[Any] = (
        *virtual.Channel.from_transport_options,
        "visibility_timeout",
    )

    def __init__(self, connection: Any, **named: Any) -> None:
        super().__init__(connection, **named)
        self._clients = connection.clients
        self.arrivals = connection.arrivals
        """Also of a connection that is lost: its tasks may still be acknowledged, to no avail."""
        self._invisible = whole_wait("visibility_timeout", f"{self.visibility_timeout}s")
        self._polls: dict[str, tuple[CallFuture[Any], int]] = {}
        """The call under way of each queue, and for how many messages."""
        self._readers: dict[str, int] = {}
        """Of each queue that hears what all hear: the next offset."""
        self.leases: dict[str, tuple[str, LeasedMessage]] = {}
        """Of each delivery tag: the queue, and what is leased."""
        self._settling = threading.Lock()
        """A settlement and a hold of one message would not know each other's lease."""
        self._failures: dict[str, tuple[str | BaseException, bool]] = {}

    # ---- publishing

    def encode_body(self, body: Any, _encoding: str | None = None) -> tuple[Any, str | None]:
        """Text stays readable in the broker's command line and page."""
        return (body, PLAIN) if isinstance(body, str) else super().encode_body(body, "base64")

    def basic_publish(
        self, message: dict[str, Any], exchange: str, routing_key: str, **_: Any
    ) -> None:
        """On disk when it returns.  Raises RmqliteError; ChannelError if no queue is bound here."""
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            self._put(routing_key, message)
            return
        queues = []
        if not self._is_heard_by_all(exchange):
            queues = [
                each
                for each in self._lookup(exchange, routing_key)
                if each and not self._is_reader(each, exchange)
            ]
        for each in queues:
            self._put(each, message)
        if queues:
            return
        if not self._may_be_heard(exchange):
            raise ChannelError(
                f"no queue is bound to exchange {exchange!r} with routing key {routing_key!r} here:"
                " declare the queue before the send"
            )
        self._revoke_by(exchange, message)
        said = Message(topic_of(exchange), dumps(message).encode())
        self._clients.producer.send(said, queue_id=0)

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        if priority := message["properties"].get("priority"):
            rule = "left out: messages of a queue are equal; give urgent tasks a queue of their own"
            raise InvalidValue("priority", priority, rule)
        headers = message.get("headers") or {}
        at_ms = due_ms(headers)
        self._clients.producer.send(
            Message(
                topic_of(queue),
                dumps(message).encode(),
                tags=tag_of(headers.get("task") or ""),
                keys=(key_of(headers["id"]),) if headers.get("id") else (),
                deliver_at=at_ms or None,
            )
        )

    def _revoke_by(self, exchange: str, message: dict[str, Any]) -> None:
        """A task that waits is cancelled; workers hear of it, too, because one may have it now."""
        if not exchange.endswith(REMOTE_CONTROL):
            return
        body = self.decode_body(message["body"], message["properties"]["body_encoding"])
        kind = message["content-type"]
        # By any serializer, because it is this program that wrote it.
        said = serialization.loads(body, kind, message["content-encoding"], accept={kind})
        if said.get("method") != "revoke":
            return
        ids = said["arguments"]["task_id"]
        for each in (ids,) if isinstance(ids, str) else ids:
            try:
                self._clients.revoke(each)
            except Refused as error:
                log.warning("task %s cannot be cancelled in the broker: %s", each, error)

    # ---- exchanges and queues

    def _exchange(self, exchange: str) -> dict[str, Any]:
        found: dict[str, Any] = self.state.exchanges.get(exchange, {})
        return found

    def _is_heard_by_all(self, exchange: str) -> bool:
        return self._exchange(exchange).get("type") == "fanout"

    def _may_be_heard(self, exchange: str) -> bool:
        """Events have a topic exchange, replies to remote control one that is not durable."""
        known = self._exchange(exchange)
        return known.get("type") in ("fanout", "topic") or not known.get("durable", True)

    def _is_reader(self, queue: str, exchange: str) -> bool:
        is_temporary = queue in self.connection.temporary
        return self._is_heard_by_all(exchange) or (is_temporary and self._may_be_heard(exchange))

    def queue_declare(self, queue: str | None = None, passive: bool = False, **named: Any) -> Any:
        """The count only if it is asked for, by passive: it costs a call."""
        if passive:
            return super().queue_declare(queue, passive=True, **named)
        queue = queue or f"amq.gen-{uuid()}"
        self._new_queue(queue, **named)
        return virtual.base.queue_declare_ok_t(queue, 0, 0)

    def _new_queue(self, queue: str, **named: Any) -> None:
        if named.get("auto_delete") or named.get("exclusive"):
            self.connection.temporary.add(queue)
        else:
            self._clients.ensure_topic(queue)

    def _queue_bind(self, exchange: str, _key: str, _pattern: str | None, queue: str) -> None:
        if self._is_reader(queue, exchange):
            self._clients.ensure_topic(exchange)
            self._readers[queue] = self._clients.queue_ranges(exchange)[0].max_offset

    def _exchange_of(self, queue: str) -> str:
        return next(str(each.exchange) for each in self.state.queue_bindings(queue))

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self._readers or bool(self._clients.queue_ranges(queue))

    def _size(self, queue: str) -> int:
        return 0 if queue in self._readers else self._clients.size(queue)

    def _purge(self, queue: str) -> int:
        return 0 if queue in self._readers else self._clients.purge(queue)

    def _delete(self, queue: str, *_: Any, **__: Any) -> None:
        """The topic stays: others may send to it, and its dead letters are there to be read."""
        self._readers.pop(queue, None)
        self.connection.temporary.discard(queue)

    # ---- receiving

    def ask(self) -> None:
        """Let each queue that is consumed have a call under way, within the prefetch limit.

        Each asks for one message at least, so that no queue waits for another: with n queues n - 1
        messages may wait here for the worker.
        """
        idle = [each for each in self._active_queues if each not in self._polls]
        room = self._room()
        for left, queue in zip(range(len(idle), 0, -1), idle, strict=True):
            if queue in self._readers:
                self._await(queue, self._hear(queue), 0)
            elif room is not None:
                asked = max(1, min(room // left, MESSAGES_MAX))
                room -= asked
                consumer = self._clients.consumer(queue)
                future = consumer.receive_async(asked, wait=POLL, invisible=self._invisible)
                self._await(queue, future, asked)

    def can_take(self, arrival: Arrival) -> bool:
        return arrival.leased is None or bool(self.qos.can_consume())

    def _room(self) -> int | None:
        """How many messages more may come; None: the worker has as many as it may have."""
        ready = sum(each.channel is self for each in self.connection.ready)
        if ready or not self.qos.can_consume():
            return None
        limit = self.qos.can_consume_max_estimate()
        coming = sum(asked for _, asked in self._polls.values())
        return MESSAGES_MAX if limit is None else max(0, int(limit) - coming)

    def _hear(self, queue: str) -> CallFuture[Any]:
        topic = topic_of(self._exchange_of(queue))
        at, wait = self._readers[queue], wait_ms("wait", POLL)
        heard: CallFuture[Any] = self._clients.puller.pull_async(topic, 0, at, wait_ms=wait)
        return heard

    def _await(self, queue: str, future: CallFuture[Any], asked: int) -> None:
        self._polls[queue] = future, asked
        arrival = Arrival(self, queue, future)
        future.add_done_callback(lambda _: self.arrivals.put(arrival))

    def taken(self, arrival: Arrival) -> Iterator[Arrival]:
        """The messages of an answer.  Raises RmqliteError if the call has failed."""
        queue, future = arrival.queue, arrival.future
        assert future is not None
        is_awaited = self._polls.get(queue, (None, 0))[0] is future
        if is_awaited:
            del self._polls[queue]
        try:
            answer = future.result()
        except Unavailable:
            if is_awaited:
                raise
            return  # it was given up
        yield from (
            self._heard(queue, answer) if queue in self._readers else self._got(queue, answer)
        )

    def _heard(self, queue: str, answer: PullResult) -> Iterator[Arrival]:
        """What all hear, and this queue is bound to."""
        self._readers[queue] = answer.next_offset
        exchange = self._exchange_of(queue)
        for message in answer.messages:
            payload = loads(message.body)
            if queue in self._lookup(
                exchange, payload["properties"]["delivery_info"]["routing_key"]
            ):
                payload["properties"]["delivery_tag"] = self._next_delivery_tag()
                yield Arrival(self, queue, payload=payload)

    def _got(self, queue: str, answer: list[LeasedMessage]) -> Iterator[Arrival]:
        for leased in answer:
            try:
                payload = loads(leased.body)
                properties = payload["properties"]
                properties["delivery_info"]["redelivered"] = leased.attempt > 1
                if (headers := payload.get("headers")) and headers.get("eta"):
                    # The broker has waited.  Of what has one a worker takes any number at once.
                    headers["eta"] = None
            except (ValueError, TypeError, LookupError):
                self._clients.consumer(queue).bury(leased, "not a message of Celery's")
                continue
            properties["delivery_tag"] = tag = self._next_delivery_tag()
            self.leases[tag] = queue, leased
            yield Arrival(self, queue, payload=payload, leased=leased)
        if self.leases:
            self.connection.keep_leases(self._invisible.total_seconds())

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        """One message, for basic_get().  Raises Empty, RmqliteError."""
        del timeout
        found = self._clients.consumer(queue).receive(1, wait=None, invisible=self._invisible)
        for arrival in self._got(queue, found):
            assert arrival.payload is not None
            return arrival.payload
        raise Empty

    # ---- settling

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Any, consumer_tag: str, **named: Any
    ) -> None:
        def acknowledged(message: Any) -> Any:
            self.settle(message.delivery_tag)
            return callback(message)

        taken = acknowledged if no_ack else callback
        super().basic_consume(queue, no_ack, taken, consumer_tag, **named)

    def basic_cancel(self, consumer_tag: str) -> None:
        if poll := self._polls.pop(self._tag_to_queue.get(consumer_tag, ""), None):
            poll[0].give_up()
        super().basic_cancel(consumer_tag)

    def note_failure(self, delivery_tag: str, error: BaseException, *, is_lost: bool) -> None:
        """Why the worker is going to refuse a message.  is_lost: the task has ended its process.

        Of one that was acknowledged early nobody will ask.
        """
        if delivery_tag in self.leases:
            self._failures[delivery_tag] = error, is_lost

    def settle(self, delivery_tag: str) -> None:
        """It is done.  Raises Unavailable; then it is still leased."""
        self._failures.pop(delivery_tag, None)
        self._end(delivery_tag, lambda consumer, leased: consumer.ack(leased))

    def refuse(self, delivery_tag: str, *, again: bool) -> None:
        """A dead letter; again: visible at once, or, after it has ended a process, failed."""
        error, is_lost = self._failures.pop(delivery_tag, ("rejected by the worker", False))

        def refused(consumer: SimpleConsumer, leased: LeasedMessage) -> None:
            if again and is_lost:
                consumer.fail(leased, error)
            elif again:
                consumer.give_back(leased)
            else:
                consumer.bury(leased, error)

        self._end(delivery_tag, refused)

    def put_back(self, arrival: Arrival) -> None:
        """Nobody consumes its queue any more."""
        if arrival.payload is not None:
            self.refuse(arrival.payload["properties"]["delivery_tag"], again=True)

    def _end(self, delivery_tag: str, how: Callable[[SimpleConsumer, LeasedMessage], None]) -> None:
        with self._settling:
            found = self.leases.get(delivery_tag)
            if found is None:
                return
            queue, leased = found
            try:
                how(self._clients.consumer(queue), leased)
            except HandleInvalid:
                log.warning("the lease of %s had ended: it comes again", leased.message_id)
            del self.leases[delivery_tag]

    def hold(self) -> None:
        """Make all leases longer."""
        with self._settling:
            self._each_queue(lambda consumer, some: consumer.hold(some, self._invisible))

    def return_leases(self) -> None:
        """What is not settled is visible again at once."""
        with self._settling:
            self._each_queue(lambda consumer, some: consumer.give_back(some))
            self.leases = {}

    def _each_queue(self, how: Callable[[SimpleConsumer, list[LeasedMessage]], None]) -> None:
        by_queue: dict[str, list[LeasedMessage]] = {}
        for queue, leased in self.leases.values():
            by_queue.setdefault(queue, []).append(leased)
        for queue, some in by_queue.items():
            try:
                how(self._clients.consumer(queue), some)
            except RmqliteError as error:
                # Those whose lease has ended come again, and the others have been done.
                log.warning("leases of queue %s: %s", queue, error)

    def give_up(self) -> None:
        """End the calls that wait; the next ask() begins them anew."""
        polls, self._polls = self._polls, {}
        for future, _ in polls.values():
            future.give_up()
