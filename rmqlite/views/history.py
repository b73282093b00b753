"""The history of a message in words: each event, and what it waits for now or how it ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from rmqlite.features.dead_letters.requests import EventKind, History, HistoryEvent
from rmqlite.features.operating.requests import GroupStatus
from rmqlite.views.groups import readers_text
from rmqlite.views.levels import TIMER
from rmqlite.views.numbers import (
    counted,
    delay_text,
    instant_text,
    span_text,
    time_text,
    until_text,
)
from rmqlite.views.tables import BAD, DIM, GOOD, WARN

TONES: Final = {
    EventKind.FAILED: WARN,
    EventKind.DEAD: BAD,
    EventKind.UNDELIVERABLE: BAD,
    EventKind.REDRIVEN: GOOD,
    EventKind.CANCELLED: DIM,
}
_TIMED: Final = (EventKind.DELIVERED, EventKind.RETRIED, EventKind.FIRED)
_INTO_A_TOPIC: Final = (*_TIMED, EventKind.REDRIVEN)


_SENTENCES: Final = {
    EventKind.SENT: ("sent to {topic}",),
    EventKind.SCHEDULED: ("scheduled {wait}",),
    EventKind.DELIVERED: ("delivered to {topic}{late}",),
    EventKind.FAILED: ("failed in {group}, attempt {attempt}{why}", "retry {wait}"),
    EventKind.RETRIED: ("given to {group} again{late}",),
    EventKind.DEAD: ("dead in {group}{attempts}{why}",),
    EventKind.CANCELLED: ("cancelled{of_group}: it is not delivered",),
    EventKind.FIRED: ("{fired}{late}",),
    EventKind.RESCHEDULED: ("rescheduled{of_group} {wait}",),
    EventKind.UNDELIVERABLE: ("came due{of_group} and could not be delivered{why}",),
    EventKind.REDRIVEN: ("sent again{again}",),
}


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """An event of a message, as it is shown.

    since_ms: the time since the event before it, None for the first one.
    """

    event: HistoryEvent
    sentences: tuple[str, ...]
    tone: str
    since_ms: int | None


def shown(history: History) -> list[ShownEvent]:
    """Every event in words, the oldest first."""
    sentences = _Sentences(history)
    found = []
    before_ms: int | None = None
    for event in history.events:
        since_ms = None if before_ms is None else max(0, event.at_ms - before_ms)
        found.append(
            ShownEvent(event, tuple(sentences.of(event)), TONES.get(event.kind, ""), since_ms)
        )
        before_ms = event.at_ms
    return found


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts that a history does not contain: the broker's time, and its groups."""

    now_ms: int
    groups: Mapping[str, GroupStatus] = field(default_factory=dict)

    def attempts_max(self, event: HistoryEvent) -> int:
        """The attempts before a message is dead; a sender's limit comes first; 0: unknown."""
        if event.max_reconsume_times is not None:
            return event.max_reconsume_times + 1
        status = self.groups.get(event.group)
        return status.info.max_reconsume_times + 1 if status else 0


def heading(history: History) -> str:
    """How many events, and how long it all took."""
    lasted_ms = history.events[-1].at_ms - history.events[0].at_ms if history.events else 0
    return counted(len(history.events), "event") + (
        f" in {span_text(lasted_ms)}" if lasted_ms > 0 else ""
    )


def place_text(event: HistoryEvent) -> str:
    return f"{event.topic}/{event.queue_id}@{event.queue_offset}"


class _Sentences:
    """Describes each event; it remembers the earlier ones, to avoid repetition."""

    def __init__(self, history: History) -> None:
        self._last = {each.group: each for each in history.events}
        self._due_ms: dict[str, int] = {}
        """The due time of a waiting event, by its group; the message itself has ""."""
        self._reasons: dict[str, str] = {}

    def of(self, event: HistoryEvent) -> Iterator[str]:
        """What happened, in words."""
        if event.level:
            self._due_ms[event.group] = event.due_ms
        words = {
            "topic": event.topic,
            "group": event.group,
            "of_group": _of_group(event),
            "attempt": event.attempt,
            "attempts": f" after {_attempts(event.attempt)}" if event.attempt else "",
            "wait": f"{_level(event)}, {_due(event)}",
            "fired": _fired(event),
            "late": self._lateness(event) if event.kind in _TIMED else "",
            "why": self._why(event),
            "again": _again(event),
        }
        yield from [sentence.format_map(words) for sentence in _SENTENCES[event.kind]]
        if event.kind is EventKind.REDRIVEN and event.level:
            yield f"scheduled {words['wait']}"
        # A group that failed the message has read it, so only its last event names it as a reader.
        has_failed = event.readers == (event.group,) and self._last[event.group] is not event
        if event.readers and not has_failed:
            yield f"read by {', '.join(event.readers)}"

    def _lateness(self, event: HistoryEvent) -> str:
        due_ms = event.due_ms or self._due_ms.pop(event.group, 0)
        if not due_ms:
            return ""
        late_ms = event.at_ms - due_ms
        if late_ms < 0:
            return f", {span_text(-late_ms)} early"
        return f", {span_text(late_ms)} after it was due" if late_ms else ", when it was due"

    def _why(self, event: HistoryEvent) -> str:
        """The reason; a repeated reason is not printed again."""
        if not event.reason:
            return ", no reason given"
        if self._reasons.get(event.group) == event.reason:
            return ", for the same reason"
        self._reasons[event.group] = event.reason
        return f": {event.reason}"


def outcome(history: History, around: Surroundings) -> Iterator[str]:
    """Sentences about what the message waits for now, or about its end."""
    last: dict[tuple[str, str], HistoryEvent] = {}
    for event in history.events:
        last[event.message_id, event.group] = event
    for event in last.values():
        which = "It" if event.message_id == history.message_id else event.message_id
        sentence = _waits(event, around) if event.is_pending else _end(event, history, around)
        if sentence:
            yield f"{which} {sentence}"


def _waits(event: HistoryEvent, around: Surroundings) -> str:
    when = f"{instant_text(event.due_ms, around.now_ms)}, {until_text(event.due_ms, around.now_ms)}"
    if not event.group:
        return f"waits for its delivery: {when}."
    most = around.attempts_max(event)
    attempt = f"attempt {event.attempt + 1}" + (f" of {most}" if most else "")
    return f"waits for {attempt} in {event.group}: {when}.{_nobody(event.group, around)}"


def _end(event: HistoryEvent, history: History, around: Surroundings) -> str:
    """The end of a message, in a group or as a whole; empty if other lines say it."""
    if event.kind is EventKind.DEAD:
        if _is_redriven(event, history):
            return ""
        again = f"rmqlite dlq redrive {event.group} --id {event.message_id}"
        return f"is dead in {event.group}; to send it again: {again}"
    if event.kind is EventKind.CANCELLED:
        return f"was cancelled{_of_group(event)}."
    if event.kind is EventKind.UNDELIVERABLE:
        return "could not be delivered, and is a dead letter of the schedule."
    if event.level:
        return f"does not wait any more{_of_group(event)}."
    if event.group and event.kind in _INTO_A_TOPIC:
        if event.group in event.readers:
            return f"was consumed by {event.group}."
        return f"is not consumed yet by {event.group}.{_nobody(event.group, around)}"
    return _read(event, history)


def _read(event: HistoryEvent, history: History) -> str:
    """The groups that read a message in its topic, without those that failed it."""
    failing = {each.group for each in history.events if each.message_id == event.message_id}
    readers = [each for each in event.readers if each not in failing]
    if readers:
        return f"was read from {place_text(event)} by {', '.join(readers)}."
    if failing - {event.group, ""}:
        return ""
    return f"is in {place_text(event)}, not read by any group."


def _is_redriven(dead: HistoryEvent, history: History) -> bool:
    return any(
        [
            each.kind is EventKind.REDRIVEN
            and each.physical_offset > dead.physical_offset
            and each.group in ("", dead.group)
            for each in history.events
        ]
    )


def _nobody(group: str, around: Surroundings) -> str:
    status = around.groups.get(group)
    if status is None or (status.members and status.info.can_consume):
        return ""
    text = readers_text(group, len(status.members), can_consume=status.info.can_consume)
    return f" {text}."


def _again(event: HistoryEvent) -> str:
    """How a dead letter was sent again."""
    to = f" to group {event.group}" if event.group else f" to {event.topic}" * (not event.level)
    return f"{f' by job {event.job_id}' if event.job_id else ''}{to}, as {event.message_id}"


def _fired(event: HistoryEvent) -> str:
    if event.group:
        return f"delivered now: given to {event.group} again"
    return f"delivered now to {event.topic}"


def _level(event: HistoryEvent) -> str:
    if event.level < 0:
        return f"as a {TIMER}"
    preposition = "to" if event.kind is EventKind.RESCHEDULED else "at"
    # The delay that this message got; the level may have another delay now.
    return f"{preposition} level {event.level} ({delay_text(max(0, event.due_ms - event.at_ms))})"


def _due(event: HistoryEvent) -> str:
    text = time_text(event.due_ms)
    return f"due {text[11:] if text[:10] == time_text(event.at_ms)[:10] else text}"


def _of_group(event: HistoryEvent) -> str:
    return f" in {event.group}" if event.group else ""


def _attempts(count: int) -> str:
    return "one attempt" if count == 1 else f"{count} attempts"
