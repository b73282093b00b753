"""rmqlite consume: read a topic as a member of a group, or look at it without leaving a trace.

Consuming is a push consumer whose listener prints; printed messages are committed.  Peeking pulls
by queue offset, commits nothing, becomes no member, and ends where the topic ended when it began.
"""

from __future__ import annotations

import enum
import heapq
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint, Sql, after_ms, option
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.message_text import MESSAGE, about_of, message_tree
from rmqlite.cli.output.terminal import body_text, note, print_json_line, printable
from rmqlite.kernel.requests.groups import Subscription
from rmqlite.kernel.requests.topics import Queue, QueueRange
from rmqlite.kernel.words.compression import is_compressed
from rmqlite.kernel.words.message import StoredMessage
from rmqlite.kernel.words.names import TOOLS_GROUP
from rmqlite.views.messages import readable_message

if TYPE_CHECKING:
    from rmqlite.client import ConsumeResult, PullConsumer

SIGNAL_LOOK_S: Final = 0.2
NEWEST_SHOWN: Final = 10
PULL_MESSAGES: Final = 32
BACKWARD_SPAN_MAX: Final = 800
"""How much of a queue is read at a time, backwards: what the broker compares in one pull."""
BODY_CHARS_SHOWN: Final = 2_000


class Start(enum.StrEnum):
    """Where to begin in a queue."""

    FIRST = "first"
    LAST = "last"


Count = Annotated[
    int | None,
    option("--count -n", "Stop after this many messages, of all queues together.", min=1),
]
From = Annotated[
    Start,
    option(
        "--from",
        "Where a new group begins in a queue; with --peek, print the first "
        f"messages, or the last {NEWEST_SHOWN} or --count of them.",
    ),
]


@prints(lambda: MESSAGE, is_line=True)
def consume(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="What to read.", autocompletion=completion.topics),
    ],
    group: Annotated[
        str | None,
        option("--group -g", "The consumer group; --peek needs none.", completion.groups),
    ] = None,
    expression: Annotated[
        str, option("--expression -x", 'Only these tags: "*" or "TagA || TagB".')
    ] = "*",
    sql: Sql = None,
    count: Count = None,
    start: From = Start.FIRST,
    fail_with: Annotated[
        list[str] | None,
        option(
            "--fail-with REASON",
            "Fail every message with this reason; several take turns, one per delivery.",
        ),
    ] = None,
    retry_level: Annotated[
        int,
        option(
            "--retry-level",
            "With --fail-with: the retry's delay level; 0 lets the broker choose, "
            "-1 makes a dead letter at once.",
        ),
    ] = 0,
    retry_after: Annotated[
        str,
        option("--retry-after WAIT", "Instead of --retry-level: after exactly so long, as in 90s."),
    ] = "",
    peek: Annotated[
        bool, option("--peek", "Print the messages that are there now; commit nothing.")
    ] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Print the messages of TOPIC, until --count or Ctrl-C; --json prints one line each."""
    show = print_json_message if as_json else print_message
    wanted = Subscription(topic, expression, sql or "")
    if (retry_level or retry_after) and not fail_with:
        name = "--retry-level" if retry_level else "--retry-after"
        raise typer.BadParameter(f"{name} needs --fail-with: only a failure is tried again")
    if retry_level and retry_after:
        raise typer.BadParameter("give --retry-level or --retry-after, not both")
    retry_ms = after_ms(retry_after, "--retry-after") if retry_after else 0
    if peek:
        if fail_with:
            raise typer.BadParameter("--peek only looks: it cannot fail a message")
        _peek(endpoint, group or TOOLS_GROUP, wanted, start, count, show)
        return
    if not group:
        raise typer.BadParameter("--group is missing (or --peek, to look without a group)")
    _consume(endpoint, group, wanted, start, Session(count, fail_with, retry_level, retry_ms, show))


class Session:
    """The listener: shows each message, and ends after the last one."""

    def __init__(
        self,
        count: int | None,
        reasons: Sequence[str] | None,
        retry_level: int,
        retry_ms: int,
        show: Callable[[StoredMessage], None],
    ) -> None:
        self.ended = threading.Event()
        self.failure: OSError | None = None
        self.take_no_more: Callable[[], None] = lambda: None
        self._left = count
        self._reasons = reasons or ()
        self._retry_level = retry_level
        self._retry_ms = retry_ms
        self._show = show

    def __call__(self, message: StoredMessage) -> ConsumeResult:
        from rmqlite.client import CONSUME_SUCCESS, ConsumeResult, reconsume_later

        try:
            self._show(message)
        except OSError as error:
            # Nobody reads the output any more: send the message back, and end.
            self.failure = error
            self._end()
            return reconsume_later(reason=f"rmqlite consume could not print it: {error}")
        if self._left is not None:
            self._left -= 1
            if self._left == 0:
                self._end()
        if not self._reasons:
            return CONSUME_SUCCESS
        reason = self._reasons[message.reconsume_times % len(self._reasons)]
        return ConsumeResult(False, self._retry_level, reason, self._retry_ms)

    def _end(self) -> None:
        self.take_no_more()
        self.ended.set()


def _consume(
    endpoint: str, group: str, wanted: Subscription, start: Start, session: Session
) -> None:
    from rmqlite.client import ConsumeFrom, PushConsumer

    begin = ConsumeFrom.FIRST_OFFSET if start is Start.FIRST else ConsumeFrom.LAST_OFFSET
    consumer = PushConsumer(endpoint, group, session, consume_threads=1, consume_from=begin)
    consumer.subscribe(wanted.topic, wanted.expression, sql=wanted.sql or None)
    # The listener itself must stop the next message: close() would come too late.
    session.take_no_more = consumer.stop_listening
    with _interrupted_once():
        try:
            consumer.start()
            # Wait with a limit: a signal that another thread receives does not wake this one.
            while not session.ended.wait(SIGNAL_LOOK_S):
                pass
        finally:
            consumer.close()
    if session.failure:
        raise session.failure


@contextmanager
def _interrupted_once() -> Iterator[None]:
    """SIGTERM ends the command as orderly as Ctrl-C, and later signals are ignored.

    `timeout`, for example, sends its signal twice; the second must not break off the commit.
    """
    stops = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) != signal.SIG_IGN]

    def interrupt(*_: object) -> None:
        for number in stops:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in stops}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _peek(
    endpoint: str,
    group: str,
    wanted: Subscription,
    start: Start,
    count: int | None,
    show: Callable[[StoredMessage], None],
) -> None:
    from rmqlite.client import PullConsumer

    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        ranges = admin.ranges(wanted.topic)
    with PullConsumer(endpoint, group) as consumer:
        topic = _Peeked(consumer, wanted, ranges)
        if start is Start.LAST:
            count = count or NEWEST_SHOWN
            topic.begin_at_last(count)
        for message in islice(topic.messages(), count):
            plain, why = readable_message(message)
            if is_compressed(plain):
                note(printable(f"{message.message_id}: the body is {why}"))
            show(plain)


class _Peeked:
    """The messages of a topic that match, as its queues were when the peek began."""

    def __init__(
        self, consumer: PullConsumer, wanted: Subscription, ranges: Sequence[QueueRange]
    ) -> None:
        self._consumer = consumer
        self._wanted = wanted
        self._ranges = ranges

    def begin_at_last(self, count: int) -> None:
        """Leave out all messages but the last ones of all queues together."""
        backward = [self._backward(held) for held in self._ranges]
        newest = islice(heapq.merge(*backward, key=itemgetter(0), reverse=True), count)
        # Not held until they are shown: the places are small, and the bodies may not be.
        begin = {held.queue: held.max_offset for held in self._ranges}
        begin |= {queue: queue_offset for _, queue, queue_offset in newest}
        self._ranges = [replace(held, min_offset=begin[held.queue]) for held in self._ranges]

    def messages(self) -> Iterator[StoredMessage]:
        """All queues together, in the order in which the broker stored the messages."""
        queues = [self._forward(h.queue, h.min_offset, h.max_offset) for h in self._ranges]
        return heapq.merge(*queues, key=lambda message: message.store_timestamp_ms)

    def _backward(self, held: QueueRange) -> Iterator[tuple[int, Queue, int]]:
        """Store timestamp, queue and queue offset of each message, the newest first."""
        end, span = held.max_offset, 1
        while end > held.min_offset:
            begin = max(held.min_offset, end - span)
            places = [
                (message.store_timestamp_ms, held.queue, message.queue_offset)
                for message in self._forward(held.queue, begin, end)
            ]
            yield from reversed(places)
            # Few messages may match: read more at a time, the further back it is.
            end, span = begin, min(2 * span, BACKWARD_SPAN_MAX)

    def _forward(self, queue: Queue, begin: int, end: int) -> Iterator[StoredMessage]:
        """The messages of a queue from one offset up to another."""
        at = begin
        while at < end:
            pulled = self._consumer.pull(
                queue.topic,
                queue.queue_id,
                at,
                max_messages=min(PULL_MESSAGES, end - at),
                expression=self._wanted.expression,
                sql=self._wanted.sql or None,
                inflate=False,
            )
            for message in pulled.messages:
                if message.queue_offset >= end:
                    return
                yield message
            if pulled.next_offset <= at:
                return
            at = pulled.next_offset


def print_json_message(message: StoredMessage) -> None:
    """Print one line of JSON."""
    print_json_line(message_tree(message))


def print_message(message: StoredMessage) -> None:
    """Print two lines: place and properties, then the body, all escaped."""
    sys.stdout.write(printable("  ".join(about_of(message))) + "\n")
    sys.stdout.write(f"    {shown_body(message.body)}\n")
    sys.stdout.flush()


def shown_body(body: bytes) -> str:
    """A body for a terminal: escaped text or hex; a very long one is cut."""
    encoding, text = body_text(body)
    cut = printable(text[:BODY_CHARS_SHOWN])
    more = f" … ({len(body):,} bytes)" if len(text) > BODY_CHARS_SHOWN else ""
    return f"{'hex ' if encoding == 'hex' else ''}{cut}{more}"
