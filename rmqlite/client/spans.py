"""The spans of one client, with the names of OpenTelemetry's conventions for messaging.

    send TOPIC      PRODUCER  its context goes into the messages, unless they have one already
    receive TOPIC   CLIENT    a pull that found messages, with a link to the context of each
    process TOPIC   CONSUMER  a call of a listener; child of the context in its message, and linked

A client without a Tracing never loads this module, nor OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from traceback import format_exception
from typing import Final

from opentelemetry import context, propagate, trace
from opentelemetry.trace import INVALID_SPAN, Link, Span, SpanKind, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import RmqliteError
from rmqlite.kernel.words.message import Message, StoredMessage
from rmqlite.kernel.words.visible import encodable, text_of_error
from rmqlite.protocols.native.bytes.messages import SendResult

Attributes = dict[str, AttributeValue]
NS_PER_MS: Final = 1_000_000


class Spans:
    """The spans of a client of this endpoint.  Usable from any thread."""

    def __init__(self, tracer: Tracer, endpoint: str, group: str, *, one_trace: bool) -> None:
        self._tracer = tracer
        self._one_trace = one_trace
        host, _, port = endpoint.rpartition("://")[2].rpartition(":")
        self._own: Attributes = {"messaging.system": "rocketmq"}
        if port.isdigit():
            self._own |= {"server.address": host.strip("[]"), "server.port": int(port)}
        if group:
            self._own["messaging.consumer.group.name"] = group

    def sending(self, messages: Sequence[Message]) -> Sending:
        """Begin a send; its messages are those to send."""
        links = [_link(each.properties) for each in messages]
        has_own = [link.context.is_valid for link in links]
        name, about = self._about("send", messages)
        span = self._tracer.start_span(
            name,
            kind=SpanKind.CLIENT if all(has_own) else SpanKind.PRODUCER,
            attributes=about,
            links=[link for link in links if link.context.is_valid],
        )
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        with_context = [
            message if own or not carrier else message.with_properties(carrier)
            for message, own in zip(messages, has_own, strict=True)
        ]
        return Sending(span, tuple(with_context))

    def received(
        self, queue: Queue, began_at_ms: int, found: Sequence[StoredMessage] | RmqliteError
    ) -> None:
        """A pull that began then has ended; one that found nothing has no span."""
        if not found:
            return
        messages = () if isinstance(found, RmqliteError) else found
        links = [_link(each.properties) for each in messages]
        about = self._operation("receive") | {
            "messaging.destination.name": queue.topic,
            "messaging.destination.partition.id": str(queue.queue_id),
            "messaging.batch.message_count": len(messages),
        }
        span = self._tracer.start_span(
            encodable(f"receive {queue.topic}"),
            kind=SpanKind.CLIENT,
            attributes=about,
            links=[link for link in links if link.context.is_valid],
            start_time=began_at_ms * NS_PER_MS,
        )
        if isinstance(found, RmqliteError):
            _failed(span, found)
        span.end()

    @contextmanager
    def processing(self, message: StoredMessage) -> Iterator[Callable[[str], None]]:
        """The span of a listener's call, current inside of it, with the message's baggage.

        What `with` gives takes the reason of a failure that the listener returns.
        """
        # Without the current span: else that would seem to be the message's.
        outside = trace.set_span_in_context(INVALID_SPAN)
        inside = propagate.extract(message.properties, outside)
        link = _link(message.properties)
        current = trace.get_current_span()
        if current.get_span_context().is_valid or not self._one_trace:
            inside = trace.set_span_in_context(current, inside)
        name, about = self._about("process", (message,))
        about |= {
            "messaging.destination.partition.id": str(message.queue_id),
            "rmqlite.reconsume_times": message.reconsume_times,
        }
        span = self._tracer.start_span(
            name,
            inside,
            SpanKind.CONSUMER,
            about,
            [link] if link.context.is_valid else [],
        )
        token = context.attach(trace.set_span_in_context(span, inside))
        try:
            yield partial(_returned, span)
        except BaseException as error:
            _failed(span, error)
            raise
        finally:
            context.detach(token)
            span.end()

    def _operation(self, name: str) -> Attributes:
        about = {"messaging.operation.name": name, "messaging.operation.type": name}
        return self._own | about

    def _about(
        self, operation: str, messages: Sequence[Message | StoredMessage]
    ) -> tuple[str, Attributes]:
        """The name and the attributes of a span that is about these messages."""
        about = self._operation(operation)
        topics = {each.topic for each in messages}
        topic = topics.pop() if len(topics) == 1 else ""
        if topic:
            about["messaging.destination.name"] = topic
        if len(messages) != 1:
            about["messaging.batch.message_count"] = len(messages)
        for each in messages if len(messages) == 1 else ():
            about["messaging.message.id"] = each.message_id
            about["messaging.message.body.size"] = len(each.body)
            about |= {"messaging.rocketmq.message.tag": each.tags} if each.tags else {}
            about |= {"messaging.rocketmq.message.keys": tuple(each.keys)} if each.keys else {}
        return encodable(f"{operation} {topic}".rstrip()), about


class Sending:
    """One send.  `with` ends it; until() does when a future is done."""

    __slots__ = ("_span", "messages")

    def __init__(self, span: Span, messages: tuple[Message, ...]) -> None:
        self._span = span
        self.messages = messages

    def stored(self, results: Sequence[SendResult]) -> None:
        """Where the messages are; of a single one the span says that, too."""
        if len(results) != 1:
            return
        due_ms = results[0].deliver_at_ms
        about: Attributes = {
            "messaging.destination.partition.id": str(results[0].queue_id),
            "messaging.rocketmq.message.type": "delay" if due_ms else "normal",
        }
        if due_ms:
            about["messaging.rocketmq.message.delivery_timestamp"] = due_ms
        self._span.set_attributes(about)

    def until(self, send: Callable[[Message], Future[SendResult]]) -> Future[SendResult]:
        """Send the only message; the span ends with the future."""
        try:
            future = send(self.messages[0])
        except BaseException as error:
            self._end(error)
            raise
        future.add_done_callback(self._done)
        return future

    def __enter__(self) -> Sending:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end(error)

    def _done(self, future: Future[SendResult]) -> None:
        error = future.exception()
        if error is None:
            self.stored((future.result(),))
        self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if error is not None:
            _failed(self._span, error)
        self._span.end()


def _link(properties: Mapping[str, str]) -> Link:
    """To the context in a message's properties; not valid without one."""
    found = propagate.extract(properties, context.Context())
    return Link(trace.get_current_span(found).get_span_context())


def _returned(span: Span, reason: str) -> None:
    span.set_attribute("error.type", "reconsume_later")
    span.set_status(StatusCode.ERROR, encodable(reason))


def _failed(span: Span, error: BaseException) -> None:
    """As record_exception() does, but with texts that an exporter can encode.

    A status that it cannot costs the whole batch, all spans of the program in it.
    """
    if not span.is_recording():
        return
    kind = error.code if isinstance(error, RmqliteError) else type(error).__qualname__
    text = text_of_error(error) or ""
    about: Attributes = {
        "exception.type": encodable(f"{type(error).__module__}.{type(error).__qualname__}"),
        "exception.message": text,
        "exception.stacktrace": encodable("".join(format_exception(error))),
    }
    span.add_event("exception", about)
    span.set_attribute("error.type", encodable(kind))
    span.set_status(StatusCode.ERROR, text)
