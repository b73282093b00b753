"""The options that choose pending messages, and the filter that they make.

A time may be relative to the broker's clock, a level may be named by its delay: the command asks
the broker for these once, and only after it checked the command line.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import BrokerView, level_or_timers, number_in_force
from rmqlite.cli.options import moment_ms, refuse
from rmqlite.cli.output.terminal import time_text
from rmqlite.declared_types.deliver_times import wait_ms
from rmqlite.errors import InvalidValue
from rmqlite.names import group_of, is_retry, retry_topic
from rmqlite.requests.dead_letters import failure_kind
from rmqlite.requests.schedule import PendingFilter
from rmqlite.views.levels import levels_text

DUE_OPTIONS: Final = ("--from", "--until")

Levels = Annotated[
    list[str] | None,
    typer.Option(
        "--level",
        "-l",
        metavar="LEVEL",
        help="This delay level, or the level that has this delay now, such as 10m; timer: "
        "messages of any instant; can be repeated.",
        autocompletion=completion.levels,
    ),
]


@dataclass(frozen=True, slots=True)
class PendingOptions:
    """The options as they were typed."""

    levels: Levels = None
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="NAME",
            help="The topic of the delivery.",
            autocompletion=completion.topics,
        ),
    ] = None
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            metavar="NAME",
            help="The retries of this consumer group.",
            autocompletion=completion.groups,
        ),
    ] = None
    due_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Due at this time or later: '2026-11-20 10:00', 2026-11-20T10:00+01:00, epoch ms, "
            "now, or +1d12h from now.",
        ),
    ] = None
    due_until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Due before this time.")
    ] = None
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="One of the message's keys.")
    ] = None
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="The message's tag.")] = (
        None
    )
    origin_topic: Annotated[
        str | None,
        typer.Option(
            "--origin-topic",
            metavar="NAME",
            help="Retries of messages from this topic.",
            autocompletion=completion.users_topics,
        ),
    ] = None
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason",
            metavar="TEXT",
            help="Retries with this in the last reason or its kind, in any case.",
        ),
    ] = None
    kind: Annotated[
        str | None,
        typer.Option(
            "--kind",
            metavar="KIND",
            help="Retries whose last reason is of this kind, as rmqlite dlq list prints it.",
        ),
    ] = None
    ids: list[str] | None = None

    def __post_init__(self) -> None:
        # In a script, --topic "$TOPIC" with an unset variable must not mean every topic.
        if "" in (*dataclasses.astuple(self), *(self.ids or ())):
            raise typer.BadParameter("an option of a filter is empty")
        if self.topic and self.group:
            raise typer.BadParameter("--topic and --group: give one of them")

    @property
    def destination(self) -> str:
        """The topic of the delivery; empty means any topic."""
        return retry_topic(self.group) if self.group else self.topic or ""

    @property
    def is_only_a_place(self) -> bool:
        """Is there no other filter than a topic or a group?"""
        return self == type(self)(topic=self.topic, group=self.group)

    @property
    def is_only_a_key(self) -> bool:
        """Is there a key, and no other filter than a topic or a group?"""
        return bool(self.key) and self == type(self)(
            topic=self.topic, group=self.group, key=self.key
        )

    def filter(
        self, broker: BrokerView, due_options: tuple[str, str] = DUE_OPTIONS
    ) -> PendingFilter:
        """The filter of the options; a wrong option ends the command."""
        # Check every option before any makes a call.
        levels = [level_or_timers("--level", each) for each in self.levels or ()]
        due_from = _due(due_options[0], self.due_from)
        due_until = _due(due_options[1], self.due_until)
        from_ms = _instant_ms(due_from, broker) or 0
        until_ms = _instant_ms(due_until, broker)
        if until_ms is not None and until_ms <= from_ms:
            rule = f"later than {due_options[0]} {self.due_from or 0!r}"
            refuse(due_options[1], self.due_until, rule)
        return PendingFilter(
            tuple(sorted({number_in_force(each, broker) for each in levels})),
            self.destination,
            from_ms,
            until_ms,
            self.key or "",
            tuple(dict.fromkeys(self.ids or ())),
            origin_topic=self.origin_topic or "",
            tag=self.tag or "",
            reason=self.reason or "",
            failure_kind=failure_kind(self.kind) if self.kind else "",
        )


@dataclass(frozen=True, slots=True)
class PendingListOptions(PendingOptions):
    """Messages may be listed by their ids; a change takes ids as arguments."""

    ids: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="ID", help="This message id; can be repeated."),
    ] = None


def filter_text(wanted: PendingFilter) -> str:
    """A filter for a person: "topic orders, level 5, due before …"."""
    return ", ".join(_filter_parts(wanted)) or "everything that waits"


def _filter_parts(wanted: PendingFilter) -> Iterator[str]:
    if wanted.topic:
        is_group = is_retry(wanted.topic)
        yield f"retries of group {group_of(wanted.topic)}" if is_group else f"topic {wanted.topic}"
    if wanted.levels:
        yield levels_text(wanted.levels)
    if wanted.key:
        yield f"key {wanted.key}"
    if wanted.tag:
        yield f"tag {wanted.tag}"
    if wanted.origin_topic:
        yield f"sent to topic {wanted.origin_topic}"
    if wanted.reason:
        yield f"failed with {wanted.reason!r}"
    if wanted.failure_kind:
        yield f"failed for reasons of the kind {wanted.failure_kind!r}"
    if wanted.due_from_ms:
        yield f"due from {time_text(wanted.due_from_ms)} on"
    if wanted.due_until_ms is not None:
        yield f"due before {time_text(wanted.due_until_ms)}"


@dataclass(frozen=True, slots=True)
class _FromNow:
    ms: int


def _due(option: str, text: str | None) -> int | _FromNow | None:
    if text is None:
        return None
    if text == "now":
        return _FromNow(0)
    if text.startswith("+"):
        try:
            return _FromNow(wait_ms(option, text[1:]))
        except InvalidValue as error:
            refuse(option, text, f"+ and then {error.rule}")
    return moment_ms(option, text)


def _instant_ms(moment: int | _FromNow | None, broker: BrokerView) -> int | None:
    return broker.now_ms + moment.ms if isinstance(moment, _FromNow) else moment
