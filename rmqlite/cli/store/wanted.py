"""Which messages cat and export take: the options, and what they mean together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rmqlite.cli.options import moment_ms, refuse
from rmqlite.errors import InvalidValue

if TYPE_CHECKING:
    from rmqlite.store.reader import MessageFilter

Topic = Annotated[
    str, typer.Option("--topic", "-t", metavar="NAME", help="A topic, or a pattern such as 'a*'.")
]
Group = Annotated[
    str, typer.Option("--group", "-g", metavar="NAME", help="A group's retries and dead letters.")
]
QueueId = Annotated[int | None, typer.Option("--queue", "-q", metavar="ID", help="A queue id.")]
FromOffset = Annotated[
    int | None, typer.Option("--from-offset", metavar="N", help="From this queue offset on.")
]
ToOffset = Annotated[
    int | None, typer.Option("--to-offset", metavar="N", help="Before this queue offset.")
]
Key = Annotated[str, typer.Option("--key", "-k", metavar="KEY", help="One of the message's keys.")]
MessageId = Annotated[
    str,
    typer.Option(
        "--id", metavar="ID", help="A message id, scheduled copies too, or an offset message id."
    ),
]
Scheduled = Annotated[
    bool,
    typer.Option(
        "--scheduled",
        help="Delayed messages as they wait or waited; --topic is where they go, "
        "--queue their level - 1.",
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", metavar="N", help="End after so many messages.")
]
SkipDamaged = Annotated[
    bool, typer.Option("--skip-damaged", help="Go on behind what is broken, and count it.")
]


def message_filter(
    *,
    topic: str,
    group: str,
    queue_id: int | None,
    from_offset: int | None,
    to_offset: int | None,
    since: str,
    until: str,
    key: str,
    message_id: str,
    is_scheduled: bool,
) -> MessageFilter:
    """What the options ask for; one that cannot be ends the command."""
    from rmqlite.store.reader import MessageFilter

    try:
        return MessageFilter(
            topic=topic,
            group=group,
            queue_id=queue_id,
            from_offset=from_offset,
            to_offset=to_offset,
            since_ms=moment_ms("--since", since),
            until_ms=moment_ms("--until", until),
            key=key,
            message_id=message_id,
            is_scheduled=is_scheduled,
        )
    except InvalidValue as error:
        option, value = {
            "queue_id": ("--queue", queue_id),
            "from_offset": ("--from-offset", from_offset),
            "to_offset": ("--to-offset", to_offset),
            "until_ms": ("--until", until),
            "key": ("--key", key),
            "group": ("--group", group),
        }[error.field]
        rule = f"later than --since {since!r}" if option == "--until" else error.rule
        refuse(option, value, rule.replace("from_offset", "--from-offset"))


def check_limit(limit: int | None) -> None:
    if limit is not None and limit < 1:
        refuse("--limit", limit, "1 or more")
