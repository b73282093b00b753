"""rmqlite message: find messages in a running broker, show one, and tell its history.

A query names the topic that the message was sent to; the table shows every place where the message
was, oldest first, two lines for each record.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.text import Text

from rmqlite.cli import completion
from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    AsJson,
    Endpoint,
    Since,
    Until,
    moment_ms,
    option,
)
from rmqlite.cli.output.documents import Document, many, prints
from rmqlite.cli.output.message_text import RECORD, json_of, page_of
from rmqlite.cli.output.terminal import STYLES, note, out, print_json, print_tall_table, printable
from rmqlite.client import (
    EventKind,
    FoundMessage,
    FoundMessages,
    History,
    HistoryEvent,
    MessageQuery,
    MessageState,
)
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.words.errors import GroupUnknown
from rmqlite.views.history import ShownEvent, Surroundings, heading, outcome, place_text, shown
from rmqlite.views.messages import readable_message, where_text
from rmqlite.views.numbers import span_text, time_text, times_text

if TYPE_CHECKING:
    from rmqlite.client import AdminClient
    from rmqlite.store_tools.reader import ScheduledWait

app = typer.Typer(no_args_is_help=True, help="Find messages, show one, and tell its history.")
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


_FOUND: Final = Document(
    "FoundRecord",
    "A record, and its part in the history of its message.",
    RECORD,
    state=str,
)
_FOUND_ALL: Final = Document(
    "FoundRecords",
    "The records that were found; is_cut: older ones may be left out.",
    messages=many(_FOUND),
    is_cut=bool,
)
NOT_FOUND: Final = 1
_COLUMNS: Final = ("STORED", "STATE", "WHERE", "TAGS", "KEYS")


@app.command("history")
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


@app.command("get")
@prints(lambda: _FOUND)
def get(
    offset_message_id: Annotated[
        str, typer.Argument(metavar="OFFSET_MESSAGE_ID", help="The id as send and query print it.")
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show one record: every field, every property, and the body."""
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        found = admin.message_at(offset_message_id)
    if as_json:
        print_json(_tree(found))
    else:
        sys.stdout.write(page_of(found.message, _waiting(found), _state(found)))


@app.command("query")
@prints(lambda: _FOUND_ALL)
def query(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC",
            help="The topic that the message was sent to.",
            autocompletion=completion.topics,
        ),
    ],
    key: Annotated[str, option("--key -k KEY", "One of the message's keys.")] = "",
    message_id: Annotated[str, option("--id MESSAGE_ID", "The message id; send prints it.")] = "",
    since: Since = "",
    until: Until = "",
    count: Annotated[
        int, option("--max -n", "At most this many, the newest, up to 64.", min=1, max=64)
    ] = 32,
    with_history: Annotated[
        bool,
        option(
            "--history/--no-history",
            "Also its places in schedule, retries and dead letters, or only TOPIC.",
        ),
    ] = True,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Find the messages of TOPIC with a --key or an --id, wherever they are now.

    Exit code 1 if there is none.
    """
    if bool(key) == bool(message_id):
        raise typer.BadParameter("give --key or --id, one of them")
    asked = MessageQuery(
        topic,
        key or message_id,
        by_message_id=bool(message_id),
        begin_ms=moment_ms("--since", since) or 0,
        end_ms=moment_ms("--until", until),
        max_messages=count,
        history=with_history,
    )
    with connected(endpoint, SHORT_CALL_MS_MAX) as admin:
        found = admin.find_messages(asked)
    if as_json:
        messages = [_tree(each) for each in found.messages]
        print_json(_FOUND_ALL.tree(messages=messages, is_cut=found.is_cut))
    elif found.messages:
        rows = [(_row(each), _second_line(each)) for each in found.messages]
        print_tall_table(_COLUMNS, rows)
    _note_what_is_missing(found)


def _note_what_is_missing(found: FoundMessages) -> None:
    if not found.messages:
        note("no message found")
    if found.is_cut:
        note("older messages are left out: use --until, or a larger --max")
    if not found.messages:
        raise typer.Exit(NOT_FOUND)


def _row(found: FoundMessage) -> tuple[str, ...]:
    message = found.message
    return (
        time_text(message.store_timestamp_ms),
        _state(found),
        printable(where_text(message)),
        printable(message.tags) or "-",
        printable(" ".join(message.keys)) or "-",
    )


def _state(found: FoundMessage) -> str:
    if found.state is MessageState.SCHEDULED:
        return "pending" if found.is_pending else found.ended
    return found.state.name.lower()


def _second_line(found: FoundMessage) -> str:
    about = []
    if found.state is MessageState.SCHEDULED:
        about.append(f"due {time_text(found.deliver_at_ms)}")
    if found.message.reconsume_times:
        about.append(f"failed {times_text(found.message.reconsume_times)}")
    return "  ".join([found.message.offset_message_id, ", ".join(about)]).rstrip()


def _tree(found: FoundMessage) -> dict[str, Any]:
    """The fields that `store export --inflate` writes of a message, and its state."""
    message, _ = readable_message(found.message)
    tree: dict[str, Any] = json.loads(json_of(message, _waiting(found)))
    return _FOUND.tree(tree, state=found.state.name.lower())


def _waiting(found: FoundMessage) -> ScheduledWait | None:
    if found.state is not MessageState.SCHEDULED:
        return None
    from rmqlite.store_tools.reader import ScheduledWait

    level = wait_queue_of(found.message.topic, found.message.queue_id)
    return ScheduledWait(level, found.deliver_at_ms, found.is_pending, found.ended)
