"""rmqlite message: find messages in a running broker, and show one.

A message is asked for where it was sent to, and shown in every place that it was in: a
table tells its life from the top down, two lines for each of its records.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.options import DEFAULT_ENDPOINT, AsJson, Endpoint
from rmqlite.cli.store.message_text import inflated, json_of
from rmqlite.cli.terminal import body_text, note, print_json, printable, time_text
from rmqlite.clock import local_ms
from rmqlite.message import StoredMessage
from rmqlite.requests import FoundMessage, FoundMessages, MessageQuery, MessageState

if TYPE_CHECKING:
    from rmqlite.store.reader import Waiting

app = typer.Typer(no_args_is_help=True, help="Find messages, and show one.")

NOT_FOUND: Final = 1
_TIME_RULE: Final = "is not a local time such as '2026-11-20 10:00', nor milliseconds since 1970"
_MS_DIGITS_MAX: Final = 15
_HEX_CHARS: Final = 64
"""On a line of a body that is no text."""
_COLUMNS: Final = ("STORED", "STATE", "WHERE", "TAGS", "KEYS")


@app.command("get")
def get(
    offset_message_id: Annotated[
        str, typer.Argument(metavar="OFFSET_MESSAGE_ID", help="As send and query print it.")
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show one record: every field, every property, and the body."""
    from rmqlite.client import AdminClient

    with AdminClient(endpoint) as admin:
        found = admin.message_at(offset_message_id)
    if as_json:
        print_json(_tree(found))
    else:
        sys.stdout.write(_page(found))


@app.command("query")
def query(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where it was sent to.")],
    key: Annotated[
        str, typer.Option("--key", "-k", metavar="KEY", help="One of the message's keys.")
    ] = "",
    message_id: Annotated[
        str, typer.Option("--id", metavar="MESSAGE_ID", help="The message id; send prints it.")
    ] = "",
    since: Annotated[
        str,
        typer.Option(
            "--since", metavar="TIME", help="Stored then or later: '2026-11-20 10:00' or epoch ms."
        ),
    ] = "",
    until: Annotated[str, typer.Option("--until", metavar="TIME", help="Stored before then.")] = "",
    count: Annotated[
        int, typer.Option("--max", "-n", min=1, max=64, help="The newest so many, up to 64.")
    ] = 32,
    hops: Annotated[
        bool,
        typer.Option(
            "--hops/--no-hops", help="Also where it is scheduled, retried or dead; or only TOPIC."
        ),
    ] = True,
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Find the messages of TOPIC with a --key or an --id, wherever they are now.

    Exit code 1 when there is none.
    """
    from rmqlite.client import AdminClient

    if bool(key) == bool(message_id):
        raise typer.BadParameter("give --key or --id, one of them")
    asked = MessageQuery(
        topic,
        key or message_id,
        by_message_id=bool(message_id),
        begin_ms=_moment_ms("--since", since) or 0,
        end_ms=_moment_ms("--until", until),
        max_messages=count,
        hops=hops,
    )
    with AdminClient(endpoint) as admin:
        found = admin.find_messages(asked)
    if as_json:
        messages = [_tree(each) for each in found.messages]
        print_json({"messages": messages, "is_cut": found.is_cut})
    elif found.messages:
        _print_found(found.messages)
    _note_what_is_missing(found)


def _note_what_is_missing(found: FoundMessages) -> None:
    if not found.messages:
        note("no message found")
    if found.is_cut:
        note("older ones are left out: ask with --until, or more --max")
    if not found.messages:
        raise typer.Exit(NOT_FOUND)


def _moment_ms(option: str, text: str) -> int | None:
    if not text:
        return None
    if text.isascii() and text.isdigit() and len(text) <= _MS_DIGITS_MAX:
        return int(text)
    moment_ms = local_ms(text)
    if moment_ms is None:
        raise typer.BadParameter(f"{text!r} {_TIME_RULE}", param_hint=option)
    return moment_ms


def _print_found(messages: Sequence[FoundMessage]) -> None:
    """Columns for what is short; below each its offset message id, and when it is due."""
    rows = [_COLUMNS, *[_row(each) for each in messages]]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_COLUMNS))]
    for index, row in enumerate(rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        sys.stdout.write("  ".join(cells).rstrip() + "\n")
        if index:
            sys.stdout.write(f"  {_second_line(messages[index - 1])}\n")


def _row(found: FoundMessage) -> tuple[str, ...]:
    message = found.message
    return (
        time_text(message.store_timestamp_ms),
        _state(found),
        printable(_where(message)),
        printable(message.tags) or "-",
        printable(" ".join(message.keys)) or "-",
    )


def _state(found: FoundMessage) -> str:
    if found.state is MessageState.SCHEDULED:
        return "pending" if found.is_pending else "delivered"
    return found.state.name.lower()


def _where(message: StoredMessage) -> str:
    return f"{message.topic}/{message.queue_id}@{message.queue_offset}"


def _second_line(found: FoundMessage) -> str:
    about = []
    if found.state is MessageState.SCHEDULED:
        about.append(f"due {time_text(found.deliver_at_ms)}")
    if found.message.reconsume_times:
        about.append(f"failed {_times(found.message.reconsume_times)}")
    return "  ".join([found.message.offset_message_id, ", ".join(about)]).rstrip()


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _page(found: FoundMessage) -> str:
    """Fields, properties, and the body as its producer had it, line by line."""
    message = found.message
    fields = [
        ("state", _state(found)),
        ("where", _where(message)),
        ("message id", message.message_id),
        ("offset id", message.offset_message_id),
        ("stored", f"{time_text(message.store_timestamp_ms)} at {message.store_host}"),
        ("born", f"{time_text(message.born_timestamp_ms)} at {message.born_host}"),
        ("record", f"{message.store_size:,} bytes at physical offset {message.physical_offset}"),
        ("flags", f"flag {message.flag}, sys flag {message.sys_flag:#x}"),
    ]
    if found.state is MessageState.SCHEDULED:
        due = f"{time_text(found.deliver_at_ms)}, level {message.queue_id + 1}"
        fields.insert(1, ("due", due))
    if message.reconsume_times:
        fields.insert(1, ("failed", _times(message.reconsume_times)))
    if message.prepared_transaction_offset:
        fields.append(("completes", f"what ends at {message.prepared_transaction_offset}"))
    body = inflated(message).body
    encoding, text = body_text(body)
    if encoding == "hex":
        text = "\n".join(text[n : n + _HEX_CHARS] for n in range(0, len(text), _HEX_CHARS))
    kind = " in hex" if encoding == "hex" else ""
    kind += f", {len(message.body):,} compressed" if body is not message.body else ""
    return "\n".join(
        [
            *_aligned(fields),
            "",
            "properties",
            *_aligned([(f"  {name}", value) for name, value in sorted(message.properties.items())]),
            "",
            f"body, {len(body):,} bytes{kind}",
            *[printable(line) for line in text.split("\n")],
            "",
        ]
    )


def _aligned(fields: Sequence[tuple[str, str]]) -> list[str]:
    names = [printable(name) for name, _ in fields]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {printable(value)}"
        for name, (_, value) in zip(names, fields, strict=True)
    ]


def _tree(found: FoundMessage) -> dict[str, Any]:
    """What `store export` writes of a message, and its state."""
    tree: dict[str, Any] = json.loads(json_of(found.message, _waiting(found)))
    return {"state": found.state.name.lower(), **tree}


def _waiting(found: FoundMessage) -> Waiting | None:
    if found.state is not MessageState.SCHEDULED:
        return None
    from rmqlite.store.reader import Waiting

    return Waiting(found.message.queue_id + 1, found.deliver_at_ms, found.is_pending)
