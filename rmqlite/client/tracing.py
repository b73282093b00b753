"""Tracing: whether a client makes spans of OpenTelemetry, and how (spans.py makes them).

    tracing = Tracing()
    producer = Producer(endpoint, "shop", tracing=tracing)
    consumer = PushConsumer(endpoint, "mailer", send_mail, tracing=tracing)

The context of a trace travels in a message's properties (traceparent, tracestate, baggage), which
the broker keeps.  Nothing here loads OpenTelemetry before somebody makes a Tracing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqlite.extras import check_extra

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from rmqlite.client.spans import Spans

EXTRA = "opentelemetry"


class Tracing:
    """Spans for what clients send, receive and process; several clients may share one.

    tracer_provider: None is the global one.  one_trace: the span of a listener is a child of the
    span that sent its message, also after a retry or a redrive; False begins a new trace for each
    listener, with a link.  Raises ExtraMissing without the packages of the extra opentelemetry.
    """

    def __init__(
        self, tracer_provider: TracerProvider | None = None, *, one_trace: bool = True
    ) -> None:
        check_extra(EXTRA)
        from opentelemetry import trace

        self._tracer = trace.get_tracer("rmqlite.client", tracer_provider=tracer_provider)
        self._one_trace = one_trace

    def spans(self, endpoint: str, group: str = "") -> Spans:
        """The spans of one client; group: of a consumer."""
        from rmqlite.client.spans import Spans

        return Spans(self._tracer, endpoint, group, one_trace=self._one_trace)
