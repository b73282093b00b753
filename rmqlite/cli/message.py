"""rmqlite message: find messages in a running broker, show one, and tell its history.

A query names the topic that the message was sent to; the table shows every place where the message
was, oldest first, two lines for each record.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import SHORT_CALL_MS_MAX, connected
from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint, Since, Until, moment_ms, option
from rmqlite.cli.output.documents import Document, many, prints
from rmqlite.cli.output.message_text import RECORD, json_of, page_of
from rmqlite.cli.output.terminal import note, print_json, print_two_line_table, printable, time_text
from rmqlite.cli.retry.history import history
from rmqlite.client import FoundMessage, FoundMessages, MessageQuery, MessageState
from rmqlite.kernel.records.wait_queues import wait_queue_of
from rmqlite.kernel.words.compression import readable_message
from rmqlite.views.counts import times_text
from rmqlite.views.messages import where_text

if TYPE_CHECKING:
    from rmqlite.store_tools.reader import ScheduledWait

app = typer.Typer(no_args_is_help=True, help="Find messages, show one, and tell its history.")
app.command("history")(history)

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
        print_two_line_table(_COLUMNS, rows)
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
