"""Spans of OpenTelemetry: which there are, what they say, and how they belong together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode

from rmqlite.client import (
    ConsumeResult,
    Message,
    Producer,
    PullConsumer,
    PushConsumer,
    StoredMessage,
    reconsume_later,
)
from rmqlite.client.asyncio import AsyncProducer, AsyncPushConsumer
from rmqlite.client.tracing import Tracing
from rmqlite.extras import EXTRAS
from rmqlite.kernel.requests.topics import Queue
from rmqlite.kernel.words.errors import ExtraMissing, Refused, TopicUnknown
from tests.support.fake_broker import WAIT_S, FakeBroker, raises

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0xB7AD6B7169203331
QUEUE = Queue("orders", 0)
KINDS = pytest.mark.parametrize("kind", ["sync", "asyncio"])
OWN = {"traceparent": f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01", "tracestate": "vendor=1"}
"""The context of another program's span."""


def traceparent(of: SpanContext) -> str:
    return f"00-{of.trace_id:032x}-{of.span_id:016x}-{of.trace_flags:02x}"


class Spans:
    """All spans that have ended."""

    def __init__(self) -> None:
        self._ended = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._ended))
        self.tracing = Tracing(self.provider)

    def __call__(self, name: str = "") -> list[ReadableSpan]:
        return [each for each in self._ended.get_finished_spans() if name in ("", each.name)]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self(name)
        return span

    def current(self) -> AbstractContextManager[Any]:
        return self.provider.get_tracer("test").start_as_current_span("request")


@pytest.fixture
def spans() -> Iterator[Spans]:
    found = Spans()
    yield found
    found.provider.shutdown()


def sent(broker: FakeBroker) -> list[Message]:
    return [message for request in broker.asked["Send"] for message in request.messages]


def consumed(
    broker: FakeBroker,
    tracing: Tracing,
    listener: Callable[[StoredMessage], ConsumeResult | None],
    kind: str,
) -> None:
    """Consume the queue to its end, by a listener of either kind."""

    def is_done() -> bool:
        return broker.committed.get(QUEUE) == len(broker.queues[QUEUE])

    if kind == "sync":
        with PushConsumer(
            broker.endpoint, "g", listener, tracing=tracing, commit_interval_ms=10
        ) as consumer:
            consumer.subscribe("orders")
            consumer.start()
            broker.until(is_done)
        return

    async def async_listener(message: StoredMessage) -> ConsumeResult | None:
        await asyncio.sleep(0)
        return listener(message)

    async def program() -> None:
        async with AsyncPushConsumer(
            broker.endpoint, "g", async_listener, tracing=tracing, commit_interval_ms=10
        ) as consumer:
            consumer.subscribe("orders")
            await consumer.start()
            await asyncio.to_thread(broker.until, is_done)

    asyncio.run(program())


def test_a_send_is_a_span_whose_context_the_message_has(broker: FakeBroker, spans: Spans) -> None:
    """Under the current span, with what the conventions name, and with the baggage."""
    token = context.attach(baggage.set_baggage("tenant", "blue"))
    try:
        with Producer(broker.endpoint, "p", tracing=spans.tracing) as producer, spans.current():
            message = Message("orders", b"body", tags="T", keys="k1 k2", properties={"a": "b"})
            result = producer.send(message)
    finally:
        context.detach(token)
    span, request = spans.one("send orders"), spans.one("request")
    assert span.kind is SpanKind.PRODUCER
    assert span.parent == request.context
    assert dict(span.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": result.message_id,
        "messaging.message.body.size": 4,
        "messaging.rocketmq.message.tag": "T",
        "messaging.rocketmq.message.keys": ("k1", "k2"),
        "messaging.rocketmq.message.type": "normal",
    }
    (message,) = sent(broker)
    assert message.properties == {
        "a": "b",
        "baggage": "tenant=blue",
        "traceparent": traceparent(span.context),
    }


def test_the_span_names_the_broker() -> None:
    """Host and port, as they were given."""
    spans = Spans()
    for endpoint, host in (("tls://[::1]:8081", "::1"), ("broker.example:8081", "broker.example")):
        of_client = spans.tracing.spans(endpoint)
        with of_client.sending((Message("t", b"x"),)):
            pass
        about = spans("send t")[-1].attributes or {}
        assert (about["server.address"], about["server.port"]) == (host, 8081)


def test_every_way_to_send_has_a_span(broker: FakeBroker, spans: Spans) -> None:
    """One by one, to a queue, in a batch, in the background, on an event loop."""

    async def program() -> None:
        async with AsyncProducer(broker.endpoint, "p", tracing=spans.tracing) as producer:
            await producer.send(Message("e", b"x"))
            await producer.send(Message("f", b"x", delay="10s"))
            await producer.send(Message("g", b"x"), 0)
            await producer.send_batch([Message("h", b"x")])

    with Producer(broker.endpoint, "p", tracing=spans.tracing) as producer:
        producer.send(Message("a", b"x"), 0)
        producer.send_batch([Message("b", b"x"), Message("b", b"y")])
        producer.send_batch([Message("c", b"x"), Message("cc", b"y")])
        producer.send_async(Message("d", b"x")).result(WAIT_S)
        assert producer.send_batch([]) == []
    with spans.current():
        asyncio.run(program())
    names = [span.name for span in spans()]
    every = ["send a", "send b", "send", "send d", "send"]
    assert names == [*every, "send e", "send f", "send g", "send h", "request"]
    counts = [(span.attributes or {}).get("messaging.batch.message_count") for span in spans()]
    assert counts == [None, 2, 2, None, 0, None, None, None, None, None]
    assert all("traceparent" in each.properties for each in sent(broker))
    request = spans.one("request").context
    assert [span.parent == request for span in spans()] == [False] * 5 + [True] * 4 + [False]


def test_a_message_with_a_context_keeps_it(broker: FakeBroker, spans: Spans) -> None:
    """It was made elsewhere, perhaps long ago: the span of the send has a link."""
    with Producer(broker.endpoint, "p", tracing=spans.tracing) as producer:
        producer.send(Message("orders", b"x", properties=OWN))
    assert sent(broker)[0].properties == OWN
    span = spans.one("send orders")
    assert span.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in span.links] == [SPAN_ID]


def test_a_failed_send_says_so(broker: FakeBroker, spans: Spans) -> None:
    """By the code of the error, which is one of few."""
    broker.answers["Send"] = raises(TopicUnknown("orders"))
    with Producer(broker.endpoint, "p", tracing=spans.tracing) as producer:
        with pytest.raises(TopicUnknown):
            producer.send(Message("orders", b"x"))
        with pytest.raises(TopicUnknown):
            producer.send_async(Message("orders", b"x")).result(WAIT_S)
    with pytest.raises(Refused):
        producer.send_async(Message("orders", b"x"))
    found = [(span.attributes or {})["error.type"] for span in spans("send orders")]
    assert found == ["topic-unknown", "topic-unknown", "refused"]
    assert {span.status.status_code for span in spans()} == {StatusCode.ERROR}


@KINDS
def test_a_listener_runs_in_a_span_of_the_messages_trace(
    broker: FakeBroker, spans: Spans, kind: str
) -> None:
    """A child of the span that sent it, with a link; what the listener sends goes on from there."""
    seen: list[Any] = []

    def listener(_: StoredMessage) -> None:
        here = trace.get_current_span().get_span_context()
        seen.append((here.span_id, baggage.get_baggage("tenant"), here.trace_state.get("vendor")))

    message = Message("orders", b"body", properties=OWN | {"baggage": "tenant=blue"})
    stored = broker.add(message, reconsume_times=3)
    consumed(broker, spans.tracing, listener, kind)
    span = spans.one("process orders")
    assert seen == [(span.context.span_id, "blue", "1")]
    assert span.kind is SpanKind.CONSUMER
    assert span.context.trace_id == TRACE_ID
    assert span.parent
    assert [span.parent.span_id, *[link.context.span_id for link in span.links]] == [SPAN_ID] * 2
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.message.id": stored.message_id,
        "messaging.message.body.size": 4,
        "rmqlite.reconsume_times": 3,
    }


@KINDS
def test_a_new_trace_for_each_listener(broker: FakeBroker, spans: Spans, kind: str) -> None:
    """For messages that wait for days: then only the link leads to the sender."""
    broker.add(Message("orders", b"x", properties=OWN))
    consumed(broker, Tracing(spans.provider, one_trace=False), lambda _: None, kind)
    span = spans.one("process orders")
    assert span.parent is None
    assert span.context.trace_id != TRACE_ID
    assert [link.context.trace_id for link in span.links] == [TRACE_ID]


@KINDS
def test_a_failed_message_is_a_failed_span(broker: FakeBroker, spans: Spans, kind: str) -> None:
    """Returned or raised; with the reason."""
    broker.add(Message("orders", b"x"))
    consumed(broker, spans.tracing, lambda _: reconsume_later(reason="not yet"), kind)

    def broken(_: StoredMessage) -> None:
        raise LookupError("no such order")

    broker.add(Message("orders", b"y"))
    consumed(broker, spans.tracing, broken, kind)
    returned, *_, raised = spans("process orders")
    assert [dict(each.attributes or {})["error.type"] for each in (returned, raised)] == [
        "reconsume_later",
        "LookupError",
    ]
    assert [each.status.description for each in (returned, raised)] == ["not yet", "no such order"]
    assert returned.parent is None
    assert [event.name for event in raised.events] == ["exception"]
    assert broker.asked["SendBack"][-1].reason == "LookupError: no such order"


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@KINDS
@pytest.mark.parametrize(
    ("error", "text", "reason"),
    [
        (ValueError("unknown \ud83e"), "unknown ?", "ValueError: unknown ?"),
        (OSError("no caf\udce9.csv"), "no caf?.csv", "OSError: no caf?.csv"),
        (WordlessError(), "", "WordlessError"),
    ],
    ids=["emoji", "path", "wordless"],
)
def test_any_text_of_an_error_can_be_exported(
    broker: FakeBroker,
    spans: Spans,
    kind: str,
    error: Exception,
    text: str,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An exporter drops its whole batch, of all parts of the program, for one that it cannot."""
    caplog.set_level(logging.CRITICAL, "rmqlite")  # pytest-xdist cannot carry it, either

    def broken(_: StoredMessage) -> None:
        raise error

    broker.add(Message("orders", b"x"))
    consumed(broker, spans.tracing, broken, kind)
    span = spans("process orders")[0]
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, text)
    assert type(error).__name__ in str(dict(span.events[0].attributes or {})["exception.type"])
    span.to_json().encode()
    for each in (span.name, *map(str, (span.events[0].attributes or {}).values())):
        each.encode()
    assert broker.asked["SendBack"][0].reason == reason


def test_a_topic_that_nobody_can_encode_costs_no_other_span(
    broker: FakeBroker, spans: Spans
) -> None:
    """Its send is refused, and its span has a name."""
    with (
        Producer(broker.endpoint, "shop", tracing=spans.tracing) as producer,
        pytest.raises(Refused),
    ):
        producer.send(Message("or\ud83eders", b"x"))
    assert [each.name for each in spans()] == ["send or?ders"]


def test_a_pull_that_finds_messages_is_a_span(broker: FakeBroker, spans: Spans) -> None:
    """With a link to each message's context; the span of an empty pull would only be noise."""
    broker.add(Message("orders", b"a", properties=OWN))
    broker.add(Message("orders", b"b"))
    with PullConsumer(broker.endpoint, "g", tracing=spans.tracing) as consumer:
        consumer.pull("orders", 0)
        consumer.pull("orders", 0)
        consumer.pull_async("orders", 0, 1).result(WAIT_S)
        broker.answers["Pull"] = raises(TopicUnknown("orders"))
        with pytest.raises(TopicUnknown):
            consumer.pull("orders", 0)
    both, one, failed = spans("receive orders")
    assert both.kind is SpanKind.CLIENT
    assert [link.context.span_id for link in both.links] == [SPAN_ID]
    assert dict(both.attributes or {}) == {
        "messaging.system": "rocketmq",
        "messaging.consumer.group.name": "g",
        "messaging.operation.name": "receive",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "0",
        "messaging.batch.message_count": 2,
    }
    assert (one.attributes or {})["messaging.batch.message_count"] == 1
    assert (failed.attributes or {})["error.type"] == "topic-unknown"


def test_without_a_tracing_nothing_is_added(broker: FakeBroker, spans: Spans) -> None:
    """Also beside a current span: whoever wants a context in a message asks for it."""
    with Producer(broker.endpoint, "p") as producer, spans.current():
        producer.send(Message("orders", b"x"))
    assert sent(broker)[0].properties == {}
    seen: list[int] = []

    def listener(_: StoredMessage) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    with PushConsumer(broker.endpoint, "g", listener, commit_interval_ms=10) as consumer:
        consumer.subscribe("orders")
        consumer.start()
        broker.until(lambda: broker.committed.get(QUEUE) == 1)
    assert seen == [0]
    assert [span.name for span in spans()] == ["request"]


def test_without_the_package_a_tracing_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is sent."""
    monkeypatch.setitem(EXTRAS, "opentelemetry", {"no-such-package": ((1,), (2,))})
    with pytest.raises(ExtraMissing, match=r'pip install "rmqlite\[opentelemetry\]"'):
        Tracing()
