"""rmqlite dlq peek: one dead letter, where it came from, why it died, and its body."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rmqlite.cli.broker_view import connected
from rmqlite.cli.dlq.listing import LETTER, letter_tree
from rmqlite.cli.dlq.records import message_at
from rmqlite.cli.filters import checked_group
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    AsJson,
    Endpoint,
    option,
    wrong,
)
from rmqlite.cli.output.documents import Document, maybe, prints
from rmqlite.cli.output.message_text import MESSAGE, aligned, message_tree
from rmqlite.cli.output.progress import letters_listed
from rmqlite.cli.output.terminal import (
    note,
    print_json,
    print_two_line_table,
    printable,
)
from rmqlite.client import DeadLetter, DeadLetterFilter, DeadLettersQuery, Place
from rmqlite.kernel.words.compression import is_compressed, readable_message
from rmqlite.kernel.words.errors import InvalidValue, OffsetGone, QueueUnknown, TopicUnknown
from rmqlite.kernel.words.message import FAILURE_REASON, FAILURE_REASON_ATTEMPT, StoredMessage
from rmqlite.kernel.words.names import group_of, is_dlq
from rmqlite.views.failed_messages import origin_text, place_text, redriven_text
from rmqlite.views.messages import body_view
from rmqlite.views.times import age_text, second_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

_PEEKED: Final = Document(
    "PeekedLetter",
    "A dead letter, null if it was purged, and its message.",
    letter=maybe(LETTER),
    message=MESSAGE,
)
_ANOTHER_MAX: Final = 20
_BODY_LINES_MAX: Final = 60
_BODY_CHARS_MAX: Final = 4_000
"""The part of a body that is shown without --full: some screens."""


@prints(lambda: _PEEKED)
def peek(
    name: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A message id, an offset message id, or GROUP:QUEUE:OFFSET."
        ),
    ],
    group: Annotated[str, option("--group -g NAME", "Only of this consumer group.")] = "",
    raw: Annotated[bool, option("--raw", "Only the body's bytes, to a file or a pipe.")] = False,
    as_hex: Annotated[bool, option("--hex", "The body as a hex dump.")] = False,
    full: Annotated[bool, option("--full", "All of a long body.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show a dead letter and its body, as text, as indented JSON, or as a hex dump.

    Nothing is consumed.  Exit code 1 if there is none, or more than one.
    """
    if raw and sys.stdout.isatty():
        wrong("--raw is for a file or a pipe: a terminal would interpret the bytes")
    if raw + as_hex + as_json > 1:
        raise typer.BadParameter("give one of --raw, --hex and --json")
    wanted_group = checked_group(group) if group else ""
    with connected(endpoint) as admin:
        now_ms = admin.broker_status().now_ms
        letter, message = _found(admin, endpoint, name, wanted_group)
    message, why = readable_message(message)
    if (raw or as_json) and is_compressed(message):
        note(f"the body is {why}")
    if raw:
        sys.stdout.buffer.write(message.body)
        sys.stdout.buffer.flush()
    elif as_json:
        tree = None if letter is None else letter_tree(letter)
        print_json(_PEEKED.tree(letter=tree, message=message_tree(message)))
    else:
        lines = _page(letter, message, now_ms, why, as_hex=as_hex, full=full)
        sys.stdout.write("".join([f"{line}\n" for line in lines]))


def _found(
    admin: AdminClient, endpoint: str, name: str, group: str
) -> tuple[DeadLetter | None, StoredMessage]:
    """The letter (None if it was purged) and its record; without one the command ends."""
    place = Place.read(name)
    died_in = group_of(place.topic) if place and is_dlq(place.topic) else None
    if place is None or died_in is None:
        letter = _letter(_letters(admin, name, group), name)
        return letter, admin.message_at(letter.offset_message_id).message
    from rmqlite.client.raw import RawReader

    why = ""
    with RawReader(endpoint) as reader:
        try:
            message = message_at(reader, died_in, *place[1:])
        except (TopicUnknown, QueueUnknown, OffsetGone, InvalidValue) as error:
            message, why = None, f": {error}"
    if message is None:
        note(f"no dead letter at {name}{why}")
        raise typer.Exit(NOT_ALL)
    named = _letters(admin, message.offset_message_id, died_in)
    at = (message.queue_id, message.queue_offset)
    here = [each for each in named if (each.queue_id, each.queue_offset) == at]
    return (here[0] if here else None), message


def _letters(admin: AdminClient, name: str, group: str) -> list[DeadLetter]:
    query = DeadLettersQuery(group, DeadLetterFilter(ids=(name,)))
    return letters_listed(admin.dead_letters.list_dead, query, _ANOTHER_MAX + 1)[0]


def _letter(letters: Sequence[DeadLetter], name: str) -> DeadLetter:
    """The only letter; none or several end the command."""
    if not letters:
        note(f"no dead letter {name}; one that was purged has only its GROUP:QUEUE:OFFSET")
        raise typer.Exit(NOT_ALL)
    if len(letters) > 1:
        note(f"more than one dead letter {name}: name one by its place")
        rows = [
            ((place_text(each), second_text(each.last_failure_ms)), printable(each.reason[:200]))
            for each in letters[:_ANOTHER_MAX]
        ]
        print_two_line_table(("PLACE", "LAST FAILED"), rows)
        raise typer.Exit(NOT_ALL)
    return letters[0]


def _page(
    letter: DeadLetter | None,
    message: StoredMessage,
    now_ms: int,
    about_body: str,
    *,
    as_hex: bool,
    full: bool,
) -> Iterator[str]:
    if letter is None:
        place = f"{message.topic}:{message.queue_id}:{message.queue_offset}"
        yield printable(f"purged dead letter {place}")
        reason = message.properties.get(FAILURE_REASON, "")
        fields = [("message id", message.message_id), ("offset id", message.offset_message_id)]
    else:
        yield printable(f"dead letter {place_text(letter)}")
        reason = letter.reason
        fields = _fields(letter, now_ms)
    yield from aligned(fields)
    yield ""
    earlier = message.properties.get(FAILURE_REASON_ATTEMPT)
    yield printable(f"reason, of attempt {earlier}: no later one gave any") if earlier else "reason"
    yield from [f"  {printable(line)}" for line in reason.splitlines() or ["none given"]]
    yield ""
    yield "properties"
    shown_above = {FAILURE_REASON}
    pairs = sorted(message.properties.items())
    yield from aligned([(f"  {name}", value) for name, value in pairs if name not in shown_above])
    yield ""
    body = body_view(
        message.body,
        "hex" if as_hex else "",
        chars_max=None if full else _BODY_CHARS_MAX,
        lines_max=None if full else _BODY_LINES_MAX,
        note=about_body,
    )
    yield body.heading("the beginning; --full shows all")
    yield from body.lines


def _fields(letter: DeadLetter, now_ms: int) -> list[tuple[str, str]]:
    at = origin_text(letter) or "-"
    if letter.origin_queue_id >= 0 and letter.origin_queue_offset >= 0:
        # Letters of RocketMQ do not contain their original offset.
        at += f"/{letter.origin_queue_id}@{letter.origin_queue_offset}"
    return [
        ("state", redriven_text(letter) or "open"),
        ("came from", at),
        ("group", letter.group),
        ("message id", letter.message_id),
        ("offset id", letter.offset_message_id),
        *[("first id", letter.origin_message_id)] * bool(letter.origin_message_id),
        *[("claimed id", letter.claimed_message_id)] * bool(letter.claimed_message_id),
        ("tags", letter.tags or "-"),
        ("keys", " ".join(letter.keys) or "-"),
        ("sent", _when(letter.born_timestamp_ms, now_ms)),
        ("attempts", f"{letter.delivery_attempts:,}"),
        ("first failed", _when(letter.first_failure_ms, now_ms)),
        ("last failed", _when(letter.last_failure_ms, now_ms)),
    ]


def _when(timestamp_ms: int, now_ms: int) -> str:
    return f"{second_text(timestamp_ms)}, {age_text(timestamp_ms, now_ms)}"
