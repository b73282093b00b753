"""rmqlite dlq list, show, reasons and peek: groups with dead letters, and what one letter has."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.dlq.export import message_at
from rmqlite.cli.filters import DeadLetterOptions, Group, checked_group
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    AsJson,
    Count,
    Cursor,
    Endpoint,
    option,
    with_options,
    wrong,
)
from rmqlite.cli.output.documents import Document, many, maybe, prints
from rmqlite.cli.output.message_text import MESSAGE, aligned, message_tree
from rmqlite.cli.output.progress import letters_listed
from rmqlite.cli.output.terminal import (
    fitted,
    note,
    numbers,
    print_json,
    print_lines,
    print_tall_table,
    printable,
    shortened,
)
from rmqlite.client import DeadLetter, DeadLetterFilter, DeadLetterGroup, DeadLettersQuery, Place
from rmqlite.features.failure_kinds import NO_REASON
from rmqlite.kernel.words.compression import is_compressed
from rmqlite.kernel.words.errors import InvalidValue, OffsetGone, QueueUnknown, TopicUnknown
from rmqlite.kernel.words.message import FAILURE_REASON, FAILURE_REASON_ATTEMPT, StoredMessage
from rmqlite.kernel.words.names import group_of, is_dlq
from rmqlite.views.messages import (
    body_view,
    filter_text,
    letters_text,
    origin_text,
    place_text,
    readable_message,
    reason_line,
    redriven_text,
)
from rmqlite.views.numbers import age_text, counted, second_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

LETTER: Final = Document(
    "DeadLetter",
    "A dead letter without its body; place and offset_message_id name it to other commands.",
    DeadLetter,
    place=str,
    offset_message_id=str,
)
_LETTERS: Final = Document(
    "DeadLetters",
    "cursor: for the next part of the list, or empty.",
    letters=many(LETTER),
    cursor=str,
)
_GROUP: Final = Document(
    "DeadLetterGroup", "A group's dead letters, and the open ones.", DeadLetterGroup, open=int
)
_GROUPS: Final = Document("DeadLetterGroups", "By group.", now_ms=int, groups=many(_GROUP))
ROWS_DEFAULT: Final = 20
_COLUMNS: Final = ("FIRST FAILED", "LAST FAILED", "ATTEMPTS", "TOPIC", "TAGS", "KEYS")
_CELL_WIDTH_MAX: Final = 30
"""The width of a cell whose length senders choose; peek shows all of it."""
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


@prints(lambda: _LETTERS)
@with_options
def show(
    *,
    group: Group,
    options: DeadLetterOptions,
    newest: Annotated[
        bool, option("--newest/--oldest", "Begin with those that died last.")
    ] = False,
    only_open: Annotated[
        bool, option("--open/--all", "Only those that are not redriven, or all.")
    ] = True,
    count: Count = ROWS_DEFAULT,
    cursor: Cursor = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List the dead letters of GROUP that match all options, each with id, place and reason.

    Exit code 1 if there is none.
    """
    group = checked_group(group)
    with connected(endpoint) as admin:
        broker = BrokerView(admin)
        wanted = options.filter(broker)
        query = DeadLettersQuery(group, wanted, newest, only_open, cursor)
        noun = "" if as_json else "dead letter"
        letters, more = letters_listed(admin.dead_letters.list_dead, query, count, noun)
    if as_json:
        print_json(_LETTERS.tree(letters=[letter_tree(each) for each in letters], cursor=more))
    elif letters:
        print_tall_table(_COLUMNS, [(_row(each), _lines(each)) for each in letters])
    if more:
        again = f"rmqlite dlq show {shlex.quote(group)} {options.words()}".rstrip()
        flags = [" --newest"] * newest + [" --all"] * (not only_open)
        flags += [f" --max {count}"] * (count != ROWS_DEFAULT)
        note(f"more: {again}{''.join(flags)} --cursor {shlex.quote(more)}")
    if not letters:
        note(_nothing(group, filter_text(wanted), only_open=only_open, is_first=not cursor))
        raise typer.Exit(NOT_ALL)


def letter_tree(letter: DeadLetter) -> dict[str, Any]:
    """A dead letter for JSON."""
    return LETTER.tree(letter, place=place_text(letter), offset_message_id=letter.offset_message_id)


def _row(letter: DeadLetter) -> tuple[str, ...]:
    first = second_text(letter.first_failure_ms)
    last = second_text(letter.last_failure_ms)
    day = first.partition(" ")[0]
    return (
        first,
        # On the same day show only the time, so that a terminal's line has room for keys.
        last.removeprefix(f"{day} "),
        f"{letter.delivery_attempts:,}",
        shortened(origin_text(letter), _CELL_WIDTH_MAX) or "-",
        shortened(printable(letter.tags), _CELL_WIDTH_MAX) or "-",
        shortened(printable(" ".join(letter.keys)), _CELL_WIDTH_MAX) or "-",
    )


def _lines(letter: DeadLetter) -> list[str]:
    lines = [f"{printable(letter.message_id)}  {place_text(letter)}"]
    redriven = redriven_text(letter)
    return [*lines, *[redriven] * bool(redriven), fitted(reason_line(letter.reason))]


def _nothing(group: str, filtered: str, *, only_open: bool, is_first: bool) -> str:
    if not is_first:
        return "no more dead letters"
    what = "open dead letter" if only_open else "dead letter"
    return f"no {what} of group {group}{' matches: ' if filtered else ''}{filtered}"


@prints(lambda: _GROUPS)
def list_groups(
    everything: Annotated[bool, option("--all -a", "Also groups without open ones.")] = False,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List the groups with dead letters, the most open ones first, and their reasons.

    Reasons are grouped by kind: # stands for each number and id; show --kind lists one kind.

    Open ones are not redriven or purged; purged ones are hidden but still in the log.
    """
    with connected(endpoint) as admin:
        found = admin.dead_letters.groups()
        now_ms = admin.broker_status().now_ms
    shown = [each for each in found if each.open or everything]
    shown.sort(key=lambda each: (-each.open, each.group))
    if as_json:
        print_json(_GROUPS.tree(now_ms=now_ms, groups=[_group_tree(each) for each in shown]))
        return
    if shown:
        _print_groups(shown, now_ms)
    else:
        note("no open dead letters" if found else "no dead letters")
    hidden = len(found) - len(shown)
    if hidden:
        note(f"groups without open letters: {hidden:,}; --all lists them")


@prints(lambda: _GROUP)
@with_options
def reasons(
    *, group: Group, endpoint: Endpoint = DEFAULT_ENDPOINT, as_json: AsJson = False
) -> None:
    """Show every kind of reason of GROUP's open dead letters, the most frequent first.

    # stands for each number and id; show --kind lists the dead letters of one kind.

    Exit code 1 if there is none.
    """
    group = checked_group(group)
    with connected(endpoint) as admin:
        found = admin.dead_letters.reasons(group)
    if as_json:
        print_json(_group_tree(found))
    else:
        print_lines(_reason_lines(found))
    if not found.reasons:
        note(f"no open dead letter of group {group} has a reason")
        raise typer.Exit(NOT_ALL)


def _print_groups(groups: Sequence[DeadLetterGroup], now_ms: int) -> None:
    columns = [
        ["GROUP", *[printable(each.group) for each in groups]],
        numbers("OPEN", [each.open for each in groups]),
        numbers("REDRIVEN", [each.redriven for each in groups]),
        numbers("PURGED", [each.purged for each in groups]),
    ]
    head, *rows = zip(*columns, strict=True)
    below = [_group_lines(each, now_ms) for each in groups]
    print_tall_table(head, list(zip(rows, below, strict=True)))


def _group_lines(group: DeadLetterGroup, now_ms: int) -> list[str]:
    lines = []
    if group.letters:
        ends = [
            f"{second_text(end_ms)} ({age_text(end_ms, now_ms)})"
            for end_ms in (group.oldest_ms, group.newest_ms)
        ]
        lines.append(f"from {ends[0]} to {ends[1]}")
    return lines + _reason_lines(group)


def _reason_lines(group: DeadLetterGroup) -> list[str]:
    """Each kind of reasons with its count and its share."""
    lines = []
    of = min(group.open, group.reasons_of)
    if group.reasons and of < group.open:
        lines.append(f"reasons of the newest {letters_text(group.reasons_of)}:")
    kinds = [(each.count, printable(each.reason) or NO_REASON) for each in group.reasons]
    if group.rest_letters:
        kinds.append((group.rest_letters, _rest_text(group)))
    counts = numbers("", [count for count, _ in kinds])[1:]
    for text, (count, kind) in zip(counts, kinds, strict=True):
        lines.append(fitted(f"{text}  {count / max(of, 1):4.0%}  {kind}"))
    return lines


def _rest_text(group: DeadLetterGroup) -> str:
    if not group.rest_kinds:
        return "that cannot be read"
    command = f"rmqlite dlq reasons {shlex.quote(group.group)}"
    return f"of {counted(group.rest_kinds, 'other kind')}: {command}"


def _group_tree(group: DeadLetterGroup) -> dict[str, Any]:
    return _GROUP.tree(group, open=group.open)


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
        print_tall_table(("PLACE", "LAST FAILED"), rows)
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
