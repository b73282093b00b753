"""The options that choose failed and waiting messages: one class for each noun.

Each makes the filter of its request, and each filter has its sentence for a person.  A time may be
relative to the broker's clock, a level may be named by its delay: the command asks the broker for
these once, and only after it checked the command line.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import BrokerView, level_or_timers, number_in_force
from rmqlite.cli.options import MOMENT_RULE, Key, moment_ms, option, refuse
from rmqlite.cli.output.terminal import printable
from rmqlite.client import DeadLetterFilter, PendingFilter
from rmqlite.features.failure_kinds import failure_kind
from rmqlite.kernel.words.errors import InvalidName, InvalidValue
from rmqlite.kernel.words.levels import parse_delay, wait_ms
from rmqlite.kernel.words.names import DLQ_PREFIX, check_group, group_of, is_retry, retry_topic
from rmqlite.views.levels import levels_text
from rmqlite.views.numbers import time_text

Text = str | None
Texts = list[str] | None
Group = Annotated[
    str,
    typer.Argument(
        metavar="GROUP",
        help="The consumer group whose messages died.",
        autocompletion=completion.dead_letter_groups,
    ),
]
Levels = Annotated[
    Texts,
    option(
        "--level -l LEVEL",
        "This delay level, or the level that has this delay now, such as 10m; timer: "
        "messages of any instant; can be repeated.",
        completion.levels,
    ),
]
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class _Typed:
    """Options as they were typed."""

    def __post_init__(self) -> None:
        if _SURROGATE.search("".join([text for _, text in self._given()])):
            raise typer.BadParameter("an option of a filter is no UTF-8 text")

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


@dataclass(frozen=True, slots=True)
class FailureOptions(_Typed):
    """What was sent, and why it failed."""

    topic: Annotated[
        Text, option("--topic -t NAME", "Originally sent to this topic.", completion.users_topics)
    ] = None
    tag: Annotated[Text, option("--tag TAG", "With this tag.")] = None
    key: Key = None
    reason: Annotated[
        Text,
        option("--reason -r TEXT", "A part of the reason or of its kind, in upper or lower case."),
    ] = None
    kind: Annotated[
        Text,
        option("--kind KIND", "Failed for a reason of this kind, as rmqlite dlq list prints it."),
    ] = None


@dataclass(frozen=True, slots=True)
class DeadLetterOptions(FailureOptions):
    """Which dead letters of a group, or which of its retries to list."""

    since: Annotated[
        Text,
        option(
            "--since TIME",
            "Last failed then or later: '2026-11-20 10:00', epoch ms, or 2h for two hours ago.",
        ),
    ] = None
    until: Annotated[Text, option("--until TIME", "Last failed before then.")] = None
    ids: Annotated[
        Texts,
        option(
            "--id ID",
            "A message id, offset message id, or place such as billing:0:1; can be repeated.",
        ),
    ] = None
    job: Annotated[
        Text, option("--job JOB_ID", "Sent by this redrive job, and failed again.", completion.jobs)
    ] = None

    def filter(self, broker: BrokerView) -> DeadLetterFilter:
        """The filter of the options; a wrong option ends the command."""
        since_ms, until_ms = _span_ms({"--since": self.since, "--until": self.until}, broker, _ago)
        return DeadLetterFilter(
            self.topic or "",
            self.tag or "",
            self.key or "",
            self.reason or "",
            since_ms,
            until_ms,
            _each_once(self.ids),
            _kind(self.kind),
            self.job or "",
        )


@dataclass(frozen=True, slots=True)
class PendingOptions(_Typed):
    """Which waiting messages of the schedule."""

    levels: Levels = None
    topic: Annotated[
        Text, option("--topic -t NAME", "The topic of the delivery.", completion.topics)
    ] = None
    group: Annotated[
        Text, option("--group -g NAME", "The retries of this consumer group.", completion.groups)
    ] = None
    due_from: Annotated[
        Text,
        option(
            "--from TIME",
            "Due at this time or later: '2026-11-20 10:00', 2026-11-20T10:00+01:00, epoch ms, "
            "now, or +1d12h from now.",
        ),
    ] = None
    due_until: Annotated[Text, option("--until TIME", "Due before this time.")] = None
    key: Key = None
    tag: Annotated[Text, option("--tag TAG", "The message's tag.")] = None
    origin_topic: Annotated[
        Text,
        option(
            "--origin-topic NAME", "Retries of messages from this topic.", completion.users_topics
        ),
    ] = None
    reason: Annotated[
        Text,
        option("--reason TEXT", "Retries with this in the last reason or its kind, in any case."),
    ] = None
    kind: Annotated[
        Text,
        option(
            "--kind KIND",
            "Retries whose last reason is of this kind, as rmqlite dlq list prints it.",
        ),
    ] = None
    ids: Texts = None

    def __post_init__(self) -> None:
        super(PendingOptions, self).__post_init__()
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
        only = type(self)(topic=self.topic, group=self.group, key=self.key)
        return bool(self.key) and self == only

    def filter(
        self, broker: BrokerView, due_from: str = "--from", due_until: str = "--until"
    ) -> PendingFilter:
        """The filter of the options; a wrong option ends the command."""
        # Check every option before any makes a call.
        levels = [level_or_timers("--level", each) for each in self.levels or ()]
        due = {due_from: self.due_from, due_until: self.due_until}
        from_ms, until_ms = _span_ms(due, broker, _ahead)
        return PendingFilter(
            tuple(sorted({number_in_force(each, broker) for each in levels})),
            self.destination,
            from_ms,
            until_ms,
            self.key or "",
            _each_once(self.ids),
            self.origin_topic or "",
            self.tag or "",
            self.reason or "",
            _kind(self.kind),
        )


@dataclass(frozen=True, slots=True)
class PendingListOptions(PendingOptions):
    """Messages may be listed by their ids; a change takes ids as arguments."""

    ids: Annotated[Texts, option("--id ID", "This message id; can be repeated.")] = None


@dataclass(frozen=True, slots=True)
class RetryOptions(FailureOptions):
    """Which waiting retries of a group to change."""

    due_from: Annotated[
        Text,
        option(
            "--due-from TIME",
            "Due at this time or later: '2026-11-20 10:00', epoch ms, now, or +30m from now.",
        ),
    ] = None
    due_until: Annotated[Text, option("--due-until TIME", "Due before this time.")] = None

    def pending(self, group: str) -> PendingOptions:
        """The same of the schedule, where the retries of the group wait."""
        return PendingOptions(
            group=group,
            due_from=self.due_from,
            due_until=self.due_until,
            key=self.key,
            tag=self.tag,
            origin_topic=self.topic,
            reason=self.reason,
            kind=self.kind,
        )


def checked_group(group: str) -> str:
    """The group's name, also from its topic's name; a wrong name ends the command."""
    name = group.removeprefix(DLQ_PREFIX)
    try:
        check_group(name)
    except InvalidName as error:
        refuse("GROUP", printable(group), error.rule)
    return name


def pending_text(wanted: PendingFilter) -> str:
    """A filter of waiting messages for a person: "topic orders, level 5, due before …"."""
    is_group = is_retry(wanted.topic)
    place = f"retries of group {group_of(wanted.topic)}" if is_group else f"topic {wanted.topic}"
    text = _listed(
        (wanted.topic, place),
        (wanted.levels, levels_text(wanted.levels)),
        (wanted.key, f"key {wanted.key}"),
        (wanted.tag, f"tag {wanted.tag}"),
        (wanted.origin_topic, f"sent to topic {wanted.origin_topic}"),
        (wanted.reason, f"failed with {wanted.reason!r}"),
        (wanted.failure_kind, f"failed for reasons of the kind {wanted.failure_kind!r}"),
        (wanted.due_from_ms, f"due from {time_text(wanted.due_from_ms)} on"),
        (wanted.due_until_ms is not None, f"due before {time_text(wanted.due_until_ms or 0)}"),
    )
    return text or "everything that waits"


def _listed(*conditions: tuple[object, str]) -> str:
    return ", ".join([text for is_given, text in conditions if is_given])


def _kind(kind: str | None) -> str:
    """The kind that was typed, also by one of its reasons; empty if none was."""
    return failure_kind(kind) if kind else ""


def _each_once(ids: list[str] | None) -> tuple[str, ...]:
    return tuple(dict.fromkeys(ids or ()))


@dataclass(frozen=True, slots=True)
class _FromNow:
    """So far from the broker's now."""

    ms: int


def _span_ms(given: dict[str, str | None], broker: BrokerView, read: Any) -> tuple[int, int | None]:
    """The moments of two options, by the broker's clock; 0 and None if they are not given."""
    (begin, begin_text), (end, end_text) = given.items()
    moments = [None if text is None else read(name, text) for name, text in given.items()]
    begin_ms, end_ms = [
        max(0, broker.now_ms + each.ms) if isinstance(each, _FromNow) else each for each in moments
    ]
    if end_ms is not None and end_ms <= (begin_ms or 0):
        refuse(end, end_text, f"later than {begin} {begin_text or 0!r}")
    return begin_ms or 0, end_ms


def _ago(name: str, text: str) -> int | _FromNow | None:
    """A moment; now and 2h mean before the broker's now."""
    if text == "now":
        return _FromNow(0)
    with suppress(InvalidValue):
        return _FromNow(-parse_delay(text))
    return moment_ms(name, text, f"{MOMENT_RULE}, or 2h for two hours ago")


def _ahead(name: str, text: str) -> int | _FromNow | None:
    """A moment; now and +2h mean behind the broker's now."""
    if text == "now":
        return _FromNow(0)
    if not text.startswith("+"):
        return moment_ms(name, text)
    try:
        return _FromNow(wait_ms(name, text[1:]))
    except InvalidValue as error:
        refuse(name, text, f"+ and then {error.rule}")
