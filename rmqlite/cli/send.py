"""rmqlite send: one message, the same one many times, or a file with one per line.

Messages go out in batches, each all or none, so that a big file is fast and is never held in
memory; after a failure the number of sent messages is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn

from rmqlite.cli import completion
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    After,
    AsJson,
    At,
    Endpoint,
    moment_ms,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, many, prints
from rmqlite.cli.output.progress import progress_bar
from rmqlite.cli.output.terminal import note, print_json_array, print_table
from rmqlite.kernel.words.clock import elapsed_s
from rmqlite.kernel.words.errors import InvalidValue, RmqliteError
from rmqlite.kernel.words.limits import INT32_MAX
from rmqlite.kernel.words.message import Message
from rmqlite.protocols.native.bytes.messages import SendResult
from rmqlite.views.numbers import time_text

if TYPE_CHECKING:
    from rmqlite.client import Producer

_SENT: Final = Document(
    "SentMessage", "Where a message was stored.", SendResult, offset_message_id=str
)
BATCH_MESSAGES_MAX: Final = 500
BATCH_BYTES_MAX: Final = 1024 * 1024
LISTED_MAX: Final = 20
"""Up to this many results are listed one by one; more are summed up."""

Topic = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC", help="The topic to send to.", autocompletion=completion.users_topics
    ),
]


@dataclass(frozen=True, slots=True)
class WaitOptions:
    """When the message is to be delivered; none: at once."""

    delay_level: Annotated[
        int, option("--delay-level", "The broker's delay level; 0 delivers at once.")
    ] = 0
    delay: Annotated[
        str | None,
        option("--delay", "The level that is exactly this long, such as 10m.", completion.delays),
    ] = None
    at: At = ""
    after: After = ""
    expires_after: Annotated[
        str | None, option("--expires-after", "No group gets the message so long after now.")
    ] = None


Property = Annotated[
    list[str] | None, option("--property -p KEY=VALUE", "A property; can be repeated.")
]
MaxReconsumeTimes = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        max=INT32_MAX,
        help="Retries before the message is dead, in every group.",
    ),
]


@dataclass(frozen=True, slots=True)
class UniqueId:
    """What the message is, of which the topic gets one only; empty: it is like all others."""

    unique_id: Annotated[
        str, option("--unique-id", "Store no second message with this id within dedupWindow.")
    ] = ""
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the place of the one with it that waits.")
    ] = False


LinesOf = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="One message per line; empty lines are skipped."),
]


@prints(lambda: many(_SENT))
@with_options
def send(
    *,
    topic: Topic,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="The body; - reads standard input.")
    ] = None,
    tags: Annotated[str, option("--tags", "The tag; consumers can choose by it.")] = "",
    keys: Annotated[str, option("--keys", "Keys to find the message, separated by blanks.")] = "",
    properties: Property = None,
    wait: WaitOptions,
    max_reconsume_times: MaxReconsumeTimes = None,
    unique: UniqueId,
    file: LinesOf = None,
    count: Annotated[int, option("--count", "Send the body this many times.", min=1)] = 1,
    producer_group: Annotated[
        str, option("--producer-group", "The producer group.")
    ] = "rmqlite-cli",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Send messages to TOPIC; the answer comes when the broker has them on disk."""
    if (body is None) == (file is None):
        raise typer.BadParameter("give either a BODY (or - for standard input) or --file")
    if file is not None and count != 1:
        raise typer.BadParameter("--count repeats a BODY; it cannot be used with --file")
    message = partial(
        Message,
        topic,
        tags=tags,
        keys=keys,
        properties=dict([_pair(text) for text in properties or ()]),
        delay_level=wait.delay_level,
        delay=wait.delay,
        deliver_at=moment_ms("--at", wait.at),
        deliver_after=wait.after or None,
        expires_after=wait.expires_after,
        max_reconsume_times=max_reconsume_times,
        unique_id=unique.unique_id,
        replace=unique.replace,
    )
    total = None if file else count
    with _lines(file) if file else nullcontext(repeat(_body(body or ""), count)) as bodies:
        first = next(bodies, None)
        if first is None:
            raise InvalidValue("file", file, "a file with a line that is not empty")
        # Refuse a bad option or an empty body here, without a broker.
        message(first)
        with _producer(endpoint, producer_group) as producer:
            results = _sent(producer, message, chain([first], bodies), total, not as_json)
            if as_json:
                print_json_array(
                    _SENT.tree(each._asdict(), offset_message_id=each.offset_message_id)
                    for each in results
                )
            else:
                _print_results(topic, results)


def _producer(endpoint: str, group: str) -> Producer:
    from rmqlite.client import Producer

    # Batches are made here; the producer must not split them again.
    return Producer(
        endpoint,
        group,
        batch_messages_max=BATCH_MESSAGES_MAX,
        batch_bytes_max=4 * BATCH_BYTES_MAX,
    )


@contextmanager
def _lines(path: Path) -> Iterator[Iterator[bytes]]:
    """The lines of a file as bodies, without their ends."""
    try:
        opened = path.open("rb")
    except OSError as error:
        raise typer.BadParameter(f"cannot read {path}: {error.strerror}") from error
    with opened:
        stripped = (line.rstrip(b"\r\n") for line in opened)
        yield (line for line in stripped if line)


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals or not value:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--property")
    return key, value


def _body(text: str) -> bytes:
    # surrogateescape: bytes of the command line that are not UTF-8 are sent unchanged.
    return sys.stdin.buffer.read() if text == "-" else text.encode("utf-8", "surrogateescape")


def _sent(
    producer: Producer,
    message: Callable[[bytes], Message],
    bodies: Iterable[bytes],
    total: int | None,
    is_shown: bool,
) -> Iterator[SendResult]:
    """Send batch by batch and yield the results as they come."""
    sent = 0
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    is_hidden = not is_shown or (total or LISTED_MAX) < LISTED_MAX
    with progress_bar(*columns, is_hidden=is_hidden) as progress:
        task = progress.add_task("sent", total=total)
        try:
            for batch in batches(bodies):
                results = producer.send_batch([message(each) for each in batch])
                sent += len(batch)
                progress.update(task, completed=sent)
                yield from results
        except RmqliteError:
            if sent:
                note(f"{sent:,} messages were sent before this:")
            raise


def batches(bodies: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Groups within the limits of a batch; a larger body goes alone."""
    batch: list[bytes] = []
    batch_bytes = 0
    for body in bodies:
        if batch and (
            len(batch) == BATCH_MESSAGES_MAX or batch_bytes + len(body) > BATCH_BYTES_MAX
        ):
            yield batch
            batch, batch_bytes = [], 0
        batch.append(body)
        batch_bytes += len(body)
    if batch:
        yield batch


def _print_results(topic: str, results: Iterator[SendResult]) -> None:
    began_s = elapsed_s()
    listed = list(islice(results, LISTED_MAX + 1))
    duplicates = sum([each.is_duplicate for each in listed])
    if len(listed) <= LISTED_MAX:
        is_delayed = any([each.deliver_at_ms for each in listed])
        columns = ("MESSAGE ID", "QUEUE", "OFFSET") + (("DELIVERED AT",) if is_delayed else ())
        print_table(columns, [_row(each, is_delayed=is_delayed) for each in listed])
    else:
        more = [each.is_duplicate for each in results]
        sent, duplicates = len(listed) + len(more), duplicates + sum(more)
        took_s = max(elapsed_s() - began_s, 1e-3)
        sys.stdout.write(
            f"sent {sent:,} messages to {topic} in {took_s:.1f} s ({sent / took_s:,.0f}/s)\n"
        )
    if duplicates:
        note(f"{duplicates:,} not stored: the topic has a message with this unique id")


def _tree(result: SendResult) -> dict[str, Any]:
    return _SENT.tree(result._asdict(), offset_message_id=result.offset_message_id)


def _row(result: SendResult, *, is_delayed: bool) -> tuple[object, ...]:
    row = (result.message_id, result.queue_id, result.queue_offset)
    return (*row, time_text(result.deliver_at_ms)) if is_delayed else row
