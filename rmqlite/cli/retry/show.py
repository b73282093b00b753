"""rmqlite retry show: the history of one message, from its first record to what comes next.

The time is at the left, the day only where it changes; the event is wrapped beside it, and below,
dim, is the record.  The last lines say what the message waits for now.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from rmqlite.cli.broker_view import CALL_MS_MAX
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.output.terminal import STYLES, note, out, print_json, printable
from rmqlite.errors import GroupUnknown
from rmqlite.requests.dead_letters import EventKind, History, HistoryEvent
from rmqlite.views.history import Event, Surroundings, events, heading, outcome, place_text
from rmqlite.views.times import span_text, time_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

NOT_FOUND: Final = 1
_TIME_WIDTH: Final = 12
_SINCE_WIDTH: Final = 8
_INDENT: Final = " " * (_TIME_WIDTH + _SINCE_WIDTH + 4)
_RECORD_INDENT: Final = " " * (_TIME_WIDTH + 2)
_TEXT_WIDTH_MIN: Final = 36
"""An offset message id has 32 characters, and is never wrapped."""
_TEXT_WIDTH_MAX: Final = 100


def show(
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
    from rmqlite.client import AdminClient

    if not message_id.strip():
        raise typer.BadParameter("a message id is empty")
    with AdminClient(endpoint, timeout_ms=CALL_MS_MAX) as admin:
        history = admin.letters.life(message_id)
        around = _surroundings(admin, history) if history.hops else Surroundings(0)
    if as_json:
        hops = [_tree(each) for each in history.hops]
        tree: dict[str, Any] = {"message_id": history.message_id, "now_ms": around.now_ms}
        print_json(tree | {"hops": hops, "is_cut": history.is_cut})
    elif history.hops:
        _print(history, around)
    if not history.hops:
        note(f"no message with the id {message_id}")
        raise typer.Exit(NOT_FOUND)


def _surroundings(admin: AdminClient, history: History) -> Surroundings:
    """The broker's clock, and the status of the groups in the history."""
    groups = {}
    for name in {each.group for each in history.hops if each.group}:
        try:
            groups[name] = admin.group(name)
        except GroupUnknown:
            continue
    return Surroundings(admin.broker_status().now_ms, groups)


def _tree(hop: HistoryEvent) -> dict[str, Any]:
    return dataclasses.asdict(hop) | {"kind": EventKind(hop.kind).name.lower()}


def _print(history: History, around: Surroundings) -> None:
    """The head, a paragraph for each event, and what comes next."""
    console, columns = out(), shutil.get_terminal_size().columns
    head = f"{history.message_id}  {heading(history)}"
    console.print(Text(printable(head), style="bold"))
    if history.is_cut:
        console.print(Text("older events are left out", style="dim"))
    day = ""
    for event in events(history):
        text = time_text(event.hop.at_ms)
        if text[:10] != day:
            day = text[:10]
            console.print(Text(day, style="bold"))
        since = "" if event.since_ms is None else f"+{span_text(event.since_ms)}"
        times = f"{text[11:]:>{_TIME_WIDTH}}  {since:>{_SINCE_WIDTH}}  "
        _print_event(console, columns, times, event)
    console.print()
    for line in outcome(history, around):
        for each in _wrapped(line, columns):
            console.print(Text(each, style="bold"))


def _print_event(console: Console, columns: int, times: str, event: Event) -> None:
    width = min(_TEXT_WIDTH_MAX, max(_TEXT_WIDTH_MIN, columns - len(_INDENT)))
    for sentence in event.sentences:
        for line in _wrapped(sentence, width):
            console.print(Text(times) + Text(line, style=STYLES[event.tone]))
            times = _INDENT
    for record in _record(event.hop, columns - len(_RECORD_INDENT)):
        console.print(Text(_RECORD_INDENT + record, style="dim"))


def _record(hop: HistoryEvent, width: int) -> Iterator[str]:
    """The place of the event's record, on one line if there is room."""
    place = printable(place_text(hop))
    if len(place) + 2 + len(hop.offset_message_id) <= width:
        yield f"{place}  {hop.offset_message_id}"
        return
    yield place
    yield hop.offset_message_id


def _wrapped(text: str, width: int) -> list[str]:
    """Escaped lines of at most `width` columns, continued lines indented."""
    first, *more = [
        line.plain.rstrip()
        for part in text.split("\n")
        for line in Text(printable(part)).wrap(out(), width - 2)
    ]
    return [first, *[f"  {each}" for each in more]]
