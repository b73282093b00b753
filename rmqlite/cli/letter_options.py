"""The options that choose failed messages, and the filter that they make.

Also the options that say where letters are sent, and how fast.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import BrokerView
from rmqlite.cli.options import MOMENT_RULE, moment_ms, refuse
from rmqlite.cli.output.terminal import printable, time_text
from rmqlite.errors import InvalidName, InvalidValue
from rmqlite.levels import parse_delay
from rmqlite.names import DLQ_PREFIX, check_group
from rmqlite.requests.dead_letters import DeadLetterFilter, failure_kind

Group = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="The consumer group whose messages died.",
        autocompletion=completion.dead_letter_groups,
    ),
]
ToTopic = Annotated[
    str | None,
    typer.Option(
        "--to-topic",
        metavar="NAME",
        help="Publish to this topic, for every group that reads it.",
        autocompletion=completion.users_topics,
    ),
]
Rate = Annotated[
    int, typer.Option("--rate", min=0, metavar="N", help="Messages per second; 0 means unlimited.")
]
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class FailureOptions:
    """What was sent and why it failed, as they were typed."""

    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="Originally sent to this topic.",
            autocompletion=completion.users_topics,
        ),
    ] = None
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="With this tag.")] = None
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="One of the message's keys.")
    ] = None
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason",
            "-r",
            metavar="TEXT",
            help="A part of the reason or of its kind, in upper or lower case.",
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Failed for a reason of this kind, as rmqlite dlq list prints it.",
        ),
    ] = None

    @property
    def failure_kind(self) -> str:
        """The kind that was typed, also by one of its reasons; empty if none was."""
        return failure_kind(self.kind) if self.kind else ""


@dataclass(frozen=True, slots=True)
class LetterOptions(FailureOptions):
    """The options as they were typed."""

    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Last failed then or later: '2026-11-20 10:00', epoch ms, "
            "or 2h for two hours ago.",
        ),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Last failed before then.")
    ] = None
    ids: Annotated[
        list[str] | None,
        typer.Option(
            "--id",
            metavar="ID",
            help="A message id, offset message id, or place such as billing:0:1; can be repeated.",
        ),
    ] = None
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB_ID",
            help="Sent by this redrive job, and failed again.",
            autocompletion=completion.jobs,
        ),
    ] = None

    def __post_init__(self) -> None:
        given = [text for _, text in self._given()]
        # In a script, --topic "$TOPIC" with an unset variable must not mean every topic.
        if "" in given:
            raise typer.BadParameter("an option of a filter is empty")
        if _SURROGATE.search("".join(given)):
            raise typer.BadParameter("an option of a filter is no UTF-8 text")

    def filter(self, broker: BrokerView) -> DeadLetterFilter:
        """The filter of the options; a wrong option ends the command."""
        since_ms = past_ms("--since", self.since, broker)
        until_ms = past_ms("--until", self.until, broker)
        if until_ms is not None and until_ms <= (since_ms or 0):
            refuse("--until", self.until, f"later than --since {self.since or 0!r}")
        return DeadLetterFilter(
            self.topic or "",
            self.tag or "",
            self.key or "",
            self.reason or "",
            since_ms or 0,
            until_ms,
            tuple(dict.fromkeys(self.ids or ())),
            self.failure_kind,
            self.job or "",
        )

    def words(self) -> str:
        """The options again, for a shell."""
        return " ".join([f"{name} {shlex.quote(text)}" for name, text in self._given()])

    def _given(self) -> Iterator[tuple[str, str]]:
        """Each option that was given, and its text."""
        for each in dataclasses.fields(self):
            value = getattr(self, each.name)
            for text in value if isinstance(value, list) else [value]:
                if text is not None:
                    yield ("--id" if each.name == "ids" else f"--{each.name}"), text


def past_ms(option: str, text: str | None, broker: BrokerView) -> int | None:
    """A moment, or a time before the broker's clock, in ms; None if it is not given."""
    if text is None:
        return None
    if text == "now":
        return broker.now_ms
    try:
        ago_ms = parse_delay(text)
    except InvalidValue:
        return moment_ms(option, text, f"{MOMENT_RULE}, or 2h for two hours ago")
    return max(0, broker.now_ms - ago_ms)


def checked_group(group: str) -> str:
    """The group's name, also from its topic's name; a wrong name ends the command."""
    name = group.removeprefix(DLQ_PREFIX)
    try:
        check_group(name)
    except InvalidName as error:
        refuse("GROUP", printable(group), error.rule)
    return name


def filter_text(wanted: DeadLetterFilter) -> str:
    """A filter for a person: "topic orders, failed before …"; empty without a condition."""
    return ", ".join(_filter_parts(wanted))


def _filter_parts(wanted: DeadLetterFilter) -> Iterator[str]:
    if wanted.topic:
        yield f"topic {wanted.topic}"
    if wanted.tag:
        yield f"tag {wanted.tag}"
    if wanted.key:
        yield f"key {wanted.key}"
    if wanted.reason:
        yield f"reason with {wanted.reason!r}"
    if wanted.since_ms:
        yield f"failed from {time_text(wanted.since_ms)} on"
    if wanted.until_ms is not None:
        yield f"failed before {time_text(wanted.until_ms)}"
    if wanted.ids:
        yield f"id {' or '.join(wanted.ids)}"
    if wanted.failure_kind:
        yield f"reasons of the kind {wanted.failure_kind!r}"
    if wanted.job_id:
        yield f"sent by job {wanted.job_id}"
