"""The options that choose messages for cat and export, and the filter that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from rmqlite.cli.options import Since, Until, moment_ms, refuse
from rmqlite.errors import InvalidValue

if TYPE_CHECKING:
    from rmqlite.store.reader import MessageFilter


@dataclass(frozen=True, slots=True)
class WantedOptions:
    """The options as they were typed."""

    topic: Annotated[
        str,
        typer.Option("--topic", "-t", metavar="NAME", help="A topic, or a pattern such as 'a*'."),
    ] = ""
    group: Annotated[
        str,
        typer.Option("--group", "-g", metavar="NAME", help="A group's retries and dead letters."),
    ] = ""
    queue_id: Annotated[
        int | None, typer.Option("--queue", "-q", metavar="ID", help="A queue id.")
    ] = None
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", metavar="N", help="From this queue offset on.")
    ] = None
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", help="Before this queue offset.")
    ] = None
    since: Since = ""
    until: Until = ""
    key: Annotated[
        str, typer.Option("--key", "-k", metavar="KEY", help="One of the message's keys.")
    ] = ""
    message_id: Annotated[
        str,
        typer.Option(
            "--id",
            metavar="ID",
            help="A message id, scheduled copies too, or an offset message id.",
        ),
    ] = ""
    scheduled: Annotated[
        bool,
        typer.Option(
            "--scheduled",
            help="The schedule's records of delayed messages and timers; --topic is their "
            "target, --queue their level - 1, 0 for timers.",
        ),
    ] = False
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", metavar="N", help="Stop after this many messages."),
    ] = None
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Continue behind damaged places, and count them.")
    ] = False

    def filter(self) -> MessageFilter:
        """The filter of the options; a wrong option ends the command."""
        from rmqlite.store.reader import MessageFilter

        try:
            wanted = MessageFilter(
                topic=self.topic,
                group=self.group,
                queue_id=self.queue_id,
                from_offset=self.from_offset,
                to_offset=self.to_offset,
                since_ms=moment_ms("--since", self.since),
                until_ms=moment_ms("--until", self.until),
                key=self.key,
                message_id=self.message_id,
                is_scheduled=self.scheduled,
            )
        except InvalidValue as error:
            option, value = {
                "queue_id": ("--queue", self.queue_id),
                "from_offset": ("--from-offset", self.from_offset),
                "to_offset": ("--to-offset", self.to_offset),
                "until_ms": ("--until", self.until),
                "key": ("--key", self.key),
                "group": ("--group", self.group),
            }[error.field]
            rule = f"later than --since {self.since!r}" if option == "--until" else error.rule
            refuse(option, value, rule.replace("from_offset", "--from-offset"))
        if self.limit is not None and self.limit < 1:
            refuse("--limit", self.limit, "1 or more")
        return wanted
