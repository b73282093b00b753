"""rmqlite message history: what happened to one message, and what comes next."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from rmqlite.cli.broker_view import connected
from rmqlite.cli.options import DEFAULT_ENDPOINT, NOT_ALL, AsJson, Endpoint
from rmqlite.cli.output.documents import Document, many, prints
from rmqlite.cli.output.terminal import STYLES, note, out, print_json, printable
from rmqlite.client import EventKind, History, HistoryEvent
from rmqlite.kernel.words.errors import GroupUnknown
from rmqlite.views.history import ShownEvent, Surroundings, heading, outcome, place_text, shown
from rmqlite.views.times import span_text, time_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

_TIME_WIDTH: Final = 12
_SINCE_WIDTH: Final = 8
_INDENT: Final = " " * (_TIME_WIDTH + _SINCE_WIDTH + 4)
_RECORD_INDENT: Final = " " * (_TIME_WIDTH + 2)
_TEXT_WIDTH_MIN: Final = 36
"""An offset message id has 32 characters, and is never wrapped."""
_TEXT_WIDTH_MAX: Final = 100

_EVENT: Final = Document("Event", "One record of a message's history.", HistoryEvent, kind=str)
_HISTORY: Final = Document(
    "History",
    "The history of a message, oldest event first; is_cut: older ones may be left out.",
    message_id=str,
    now_ms=int,
    hops=many(_EVENT),
    is_cut=bool,
)


@prints(lambda: _HISTORY)
def history(
    message_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The message id, or the offset message id of any of its records."
        ),
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show the history of a message, event by event, and what happens to it next.

    Exit code 1 if there is no such message.
    """
    with connected(endpoint) as admin:
        found = admin.dead_letters.history(message_id)
        around = _surroundings(admin, found) if found.events else Surroundings(0)
    if as_json:
        events = [_event_tree(each) for each in found.events]
        about = {"message_id": found.message_id, "now_ms": around.now_ms}
        print_json(_HISTORY.tree(**about, hops=events, is_cut=found.is_cut))
    elif found.events:
        _print(found, around)
    if not found.events:
        note(f"no message with the id {message_id}")
        raise typer.Exit(NOT_ALL)


def _surroundings(admin: AdminClient, history: History) -> Surroundings:
    """The broker's clock, and the status of the groups in the history."""
    groups = {}
    for name in {each.group for each in history.events if each.group}:
        with suppress(GroupUnknown):
            groups[name] = admin.group(name)
    return Surroundings(admin.broker_status().now_ms, groups)


def _event_tree(event: HistoryEvent) -> dict[str, Any]:
    return _EVENT.tree(event, kind=EventKind(event.kind).name.lower())


def _print(history: History, around: Surroundings) -> None:
    """The head, a paragraph for each event, and what comes next."""
    console, columns = out(), shutil.get_terminal_size().columns
    head = f"{history.message_id}  {heading(history)}"
    console.print(Text(printable(head), style="bold"))
    if history.is_cut:
        console.print(Text("older events are left out", style="dim"))
    day = ""
    for each in shown(history):
        text = time_text(each.event.at_ms)
        if text[:10] != day:
            day = text[:10]
            console.print(Text(day, style="bold"))
        since = "" if each.since_ms is None else f"+{span_text(each.since_ms)}"
        times = f"{text[11:]:>{_TIME_WIDTH}}  {since:>{_SINCE_WIDTH}}  "
        _print_event(console, columns, times, each)
    console.print()
    for line in outcome(history, around):
        for part in _wrapped(line, columns):
            console.print(Text(part, style="bold"))


def _print_event(console: Console, columns: int, times: str, event: ShownEvent) -> None:
    width = min(_TEXT_WIDTH_MAX, max(_TEXT_WIDTH_MIN, columns - len(_INDENT)))
    for sentence in event.sentences:
        for line in _wrapped(sentence, width):
            console.print(Text(times) + Text(line, style=STYLES[event.tone]))
            times = _INDENT
    for record in _record(event.event, columns - len(_RECORD_INDENT)):
        console.print(Text(_RECORD_INDENT + record, style="dim"))


def _record(event: HistoryEvent, width: int) -> Iterator[str]:
    """The place of the event's record, on one line if there is room."""
    place = printable(place_text(event))
    if len(place) + 2 + len(event.offset_message_id) <= width:
        yield f"{place}  {event.offset_message_id}"
        return
    yield place
    yield event.offset_message_id


def _wrapped(text: str, width: int) -> list[str]:
    """Escaped lines of at most `width` columns, continued lines indented."""
    first, *more = [
        line.plain.rstrip()
        for part in text.split("\n")
        for line in Text(printable(part)).wrap(out(), width - 2)
    ]
    return [first, *[f"  {each}" for each in more]]
