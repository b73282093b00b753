"""A stored message as one line, as a page, and as a JSON document."""

from __future__ import annotations

import json
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import TYPE_CHECKING, Any, Final, Literal

from rmqlite.cli.output.documents import Document
from rmqlite.cli.output.terminal import body_text, printable
from rmqlite.kernel.records.completion import is_completing
from rmqlite.kernel.words.message import REAL_TOPIC, StoredMessage, encode_properties
from rmqlite.kernel.words.property_string import PropertyString
from rmqlite.views.levels import level_name
from rmqlite.views.messages import inflated_view, message_facts, readable_message, where_text
from rmqlite.views.numbers import time_text

if TYPE_CHECKING:
    from rmqlite.store_tools.reader import ScheduledWait

_BODY: Final[dict[str, Any]] = {"body_encoding": Literal["utf-8", "hex"], "body": str}
MESSAGE: Final = Document(
    "Message", "A message; body is text or hex.", StoredMessage, message_id=str, **_BODY
)
RECORD: Final = Document(
    "Record",
    "A record of the log; the last three only of a scheduled one.",
    StoredMessage,
    message_id=str,
    offset_message_id=str,
    **_BODY,
    optional={"level": int, "deliver_at_ms": int, "is_pending": bool},
)
"""What json_of() writes."""
BODY_CHARS_SHOWN: Final = 100


def about_of(message: StoredMessage, waiting: ScheduledWait | None = None) -> list[str]:
    """Time, place and id, and whatever else the message has."""
    about = [
        time_text(message.store_timestamp_ms),
        where_text(message),
        message.message_id,
    ]
    if waiting is not None:
        about.append(f"due={time_text(waiting.deliver_at_ms)} {waiting.state}")
        about.append(f"to={message.properties.get(REAL_TOPIC, '?')}")
    about += [f"tags={message.tags}"] * bool(message.tags)
    about += [f"keys={','.join(message.keys)}"] * bool(message.keys)
    return about + [f"reconsumed={message.reconsume_times}"] * bool(message.reconsume_times)


def line_of(message: StoredMessage, waiting: ScheduledWait | None) -> str:
    """Time, place, id, and the beginning of the body, all escaped."""
    about = about_of(message, waiting)
    shown, _ = readable_message(message)
    encoding, text = body_text(shown.body)
    cut = text[:BODY_CHARS_SHOWN]
    more = f" … ({len(shown.body):,} bytes)" if len(cut) < len(text) else ""
    hint = "hex " if encoding == "hex" else ""
    return printable("  ".join([*about, hint + cut + more])) + "\n"


def page_of(message: StoredMessage, waiting: ScheduledWait | None, state: str = "") -> str:
    """Every field on its own line, every property, and the whole body, inflated."""
    if waiting is not None:
        state = waiting.state
    fields = [("state", state)] if state else []
    if waiting is not None:
        due = f"{time_text(waiting.deliver_at_ms)}, {level_name(waiting.level)}"
        fields.append(("due", due))
    fields += message_facts(message)
    if message.prepared_transaction_offset:
        fields.append(_pointer(message))
    properties = [(f"  {name}", value) for name, value in sorted(message.properties.items())]
    body = inflated_view(message)
    lines = [*aligned(fields), "", "properties", *aligned(properties), ""]
    lines += [body.heading(), *body.lines]
    return "\n".join(lines) + "\n"


def _pointer(message: StoredMessage) -> tuple[str, str]:
    """What the prepared transaction offset of a record means."""
    properties = PropertyString(encode_properties(message.properties))
    at = message.prepared_transaction_offset
    if is_completing(message.topic, message.sys_flag, properties):
        return "completes", f"the record that ends at {at}"
    return "commits", f"the half message at {at}"


def aligned(fields: Sequence[tuple[str, str]]) -> list[str]:
    """A line for each name and value, printable, with the values aligned."""
    names = [printable(name) for name, _ in fields]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {printable(value)}"
        for name, (_, value) in zip(names, fields, strict=True)
    ]


def message_tree(message: StoredMessage) -> dict[str, Any]:
    """A message for JSON."""
    encoding, body = body_text(message.body)
    return MESSAGE.tree(message, message_id=message.message_id, body_encoding=encoding, body=body)


def json_of(message: StoredMessage, waiting: ScheduledWait | None) -> str:
    """One document, ASCII, on one line: message_tree()'s fields, and those of a schedule.

    Built by hand in 3 µs; json.dumps() with the tree that it needs takes 25.
    """
    encoding, text = body_text(message.body)
    properties = ", ".join([f"{quoted(k)}: {quoted(v)}" for k, v in message.properties.items()])
    schedule = ""
    if waiting is not None:
        schedule = (
            f', "level": {waiting.level}, "deliver_at_ms": {waiting.deliver_at_ms}'
            f', "is_pending": {json.dumps(waiting.is_pending)}'
        )
    return (
        f'{{"topic": {quoted(message.topic)}, "queue_id": {message.queue_id}'
        f', "queue_offset": {message.queue_offset}'
        f', "physical_offset": {message.physical_offset}, "store_size": {message.store_size}'
        f', "message_id": {quoted(message.message_id)}'
        f', "offset_message_id": "{message.offset_message_id}"'
        f', "store_timestamp_ms": {message.store_timestamp_ms}'
        f', "store_host": "{message.store_host}"'
        f', "born_timestamp_ms": {message.born_timestamp_ms}, "born_host": "{message.born_host}"'
        f', "reconsume_times": {message.reconsume_times}'
        f', "flag": {message.flag}, "sys_flag": {message.sys_flag}'
        f', "prepared_transaction_offset": {message.prepared_transaction_offset}{schedule}'
        f', "properties": {{{properties}}}'
        f', "body_encoding": "{encoding}", "body": {quoted(text)}}}\n'
    )
