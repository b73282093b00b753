"""The history of a message for a person: times, events, and the places of the records.

The time is at the left, the day only where it changes; the event is wrapped beside it, and below,
dim, is the record.  The last lines say what the message waits for now.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.text import Text

from rmqlite.cli.output.spans import delay_text, instant_text, span_text, wait_text
from rmqlite.cli.output.terminal import out, printable, time_text
from rmqlite.requests.dead_letters import EventKind, History, HistoryEvent
from rmqlite.requests.groups import GroupStatus
from rmqlite.views.levels import TIMER

_TIME_WIDTH: Final = 12
_SINCE_WIDTH: Final = 8
_INDENT: Final = " " * (_TIME_WIDTH + _SINCE_WIDTH + 4)
_RECORD_INDENT: Final = " " * (_TIME_WIDTH + 2)
_TEXT_WIDTH_MIN: Final = 36
"""An offset message id has 32 characters, and is never wrapped."""
_TEXT_WIDTH_MAX: Final = 100
_STYLES: Final = {
    EventKind.FAILED: "yellow",
    EventKind.DEAD: "red",
    EventKind.UNDELIVERABLE: "red",
    EventKind.CANCELLED: "magenta",
    EventKind.FIRED: "cyan",
    EventKind.RESCHEDULED: "cyan",
    EventKind.REDRIVEN: "green",
}
_INTO_A_TOPIC: Final = (EventKind.DELIVERED, EventKind.RETRIED, EventKind.FIRED, EventKind.REDRIVEN)


@dataclass(frozen=True, slots=True)
class Around:
    """Facts that a history does not contain: the broker's time, and its groups."""

    now_ms: int
    groups: Mapping[str, GroupStatus] = field(default_factory=dict)

    def attempts_max(self, event: HistoryEvent) -> int:
        """The attempts before a message is dead; a sender's limit comes first; 0: unknown."""
        if event.max_reconsume_times is not None:
            return event.max_reconsume_times + 1
        status = self.groups.get(event.group)
        return status.info.max_reconsume_times + 1 if status else 0


def print_history(history: History, around: Around) -> None:
    """The head, a paragraph for each event, and what comes next."""
    console = out()
    console.print(Text(printable(_head(history)), style="bold"))
    if history.is_cut:
        console.print(Text("older events are left out", style="dim"))
    texts = Events(history)
    day = ""
    before_ms = 0
    for event in history.hops:
        text = time_text(event.at_ms)
        if text[:10] != day:
            day = text[:10]
            console.print(Text(day, style="bold"))
        since = f"+{span_text(max(0, event.at_ms - before_ms))}" if before_ms else ""
        _print_event(
            console, f"{text[11:]:>{_TIME_WIDTH}}  {since:>{_SINCE_WIDTH}}  ", event, texts
        )
        before_ms = event.at_ms
    console.print()
    for line in outcome(history, around):
        for each in _wrapped(line, shutil.get_terminal_size().columns):
            console.print(Text(each, style="bold"))


def _head(history: History) -> str:
    events = f"{len(history.hops):,} {'event' if len(history.hops) == 1 else 'events'}"
    lasted_ms = history.hops[-1].at_ms - history.hops[0].at_ms
    return f"{history.message_id}  {events}" + (
        f" in {span_text(lasted_ms)}" if lasted_ms > 0 else ""
    )


def _print_event(console: Console, times: str, event: HistoryEvent, texts: Events) -> None:
    columns = shutil.get_terminal_size().columns
    width = min(_TEXT_WIDTH_MAX, max(_TEXT_WIDTH_MIN, columns - len(_INDENT)))
    style = _STYLES.get(event.kind, "")
    for sentence in texts.sentences(event):
        for line in _wrapped(sentence, width):
            console.print(Text(times) + Text(line, style=style))
            times = _INDENT
    for record in _records(event, columns - len(_RECORD_INDENT)):
        console.print(Text(_RECORD_INDENT + record, style="dim"))


def _records(event: HistoryEvent, width: int) -> Iterator[str]:
    """The place of the event's record, on one line if there is room."""
    place = printable(place_text(event))
    if len(place) + 2 + len(event.offset_message_id) <= width:
        yield f"{place}  {event.offset_message_id}"
        return
    yield place
    yield event.offset_message_id


def place_text(event: HistoryEvent) -> str:
    return f"{event.topic}/{event.queue_id}@{event.queue_offset}"


class Events:
    """Describes each event; it remembers the earlier events, to avoid repetition."""

    def __init__(self, history: History) -> None:
        self._last = {each.group: each for each in history.hops}
        self._due_ms: dict[str, int] = {}
        """The due time of a waiting event, by its group; the message itself has ""."""
        self._reasons: dict[str, str] = {}

    def sentences(self, event: HistoryEvent) -> Iterator[str]:
        """The event of a event, in words."""
        if event.level:
            self._due_ms[event.group] = event.due_ms
        texts = {
            EventKind.SENT: self._sent,
            EventKind.SCHEDULED: self._scheduled,
            EventKind.DELIVERED: self._delivered,
            EventKind.FAILED: self._failed,
            EventKind.RETRIED: self._retried,
            EventKind.DEAD: self._dead,
            EventKind.CANCELLED: self._cancelled,
            EventKind.FIRED: self._fired,
            EventKind.RESCHEDULED: self._rescheduled,
            EventKind.UNDELIVERABLE: self._undeliverable,
            EventKind.REDRIVEN: self._redriven,
        }
        yield from texts[event.kind](event)
        # A group that failed the message has read it, so only its last event names it as a reader.
        has_failed = event.readers == (event.group,) and self._last[event.group] is not event
        if event.readers and not has_failed:
            yield f"read by {', '.join(event.readers)}"

    def _sent(self, event: HistoryEvent) -> Iterator[str]:
        yield f"sent to {event.topic}"

    def _scheduled(self, event: HistoryEvent) -> Iterator[str]:
        yield f"scheduled {_level('at', event)}, {_due(event)}"

    def _delivered(self, event: HistoryEvent) -> Iterator[str]:
        yield f"delivered to {event.topic}{self._lateness(event)}"

    def _failed(self, event: HistoryEvent) -> Iterator[str]:
        yield f"failed in {event.group}, attempt {event.attempt}{self._why(event)}"
        yield f"retry {_level('at', event)}, {_due(event)}"

    def _retried(self, event: HistoryEvent) -> Iterator[str]:
        yield f"given to {event.group} again{self._lateness(event)}"

    def _dead(self, event: HistoryEvent) -> Iterator[str]:
        after = f" after {_attempts(event.attempt)}" if event.attempt else ""
        yield f"dead in {event.group}{after}{self._why(event)}"

    def _cancelled(self, event: HistoryEvent) -> Iterator[str]:
        yield f"cancelled{_of_group(event)}: it is not delivered"

    def _fired(self, event: HistoryEvent) -> Iterator[str]:
        if event.group:
            yield f"fired: given to {event.group} again{self._lateness(event)}"
        else:
            yield f"fired: delivered to {event.topic}{self._lateness(event)}"

    def _rescheduled(self, event: HistoryEvent) -> Iterator[str]:
        yield f"rescheduled{_of_group(event)} {_level('to', event)}, {_due(event)}"

    def _undeliverable(self, event: HistoryEvent) -> Iterator[str]:
        yield f"came due{_of_group(event)} and could not be delivered{self._why(event)}"

    def _redriven(self, event: HistoryEvent) -> Iterator[str]:
        by = f" by job {event.job_id}" if event.job_id else ""
        to = f" to group {event.group}" if event.group else ""
        if event.level:
            yield f"sent again{by}{to}, as {event.message_id}"
            yield f"scheduled {_level('at', event)}, {_due(event)}"
        else:
            yield f"sent again{by}{to or f' to {event.topic}'}, as {event.message_id}"

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


def outcome(history: History, around: Around) -> Iterator[str]:
    """Sentences about what the message waits for now, or about its end."""
    last: dict[tuple[str, str], HistoryEvent] = {}
    for event in history.hops:
        last[event.message_id, event.group] = event
    for event in last.values():
        which = "It" if event.message_id == history.message_id else event.message_id
        sentence = _waits(event, around) if event.is_pending else _end(event, history, around)
        if sentence:
            yield f"{which} {sentence}"


def _waits(event: HistoryEvent, around: Around) -> str:
    wait = wait_text(event.due_ms - around.now_ms)
    wait = f"in {wait}" if event.due_ms > around.now_ms else wait
    when = f"{instant_text(event.due_ms, around.now_ms)}, {wait}"
    if not event.group:
        return f"waits for its delivery: {when}."
    most = around.attempts_max(event)
    attempt = f"attempt {event.attempt + 1}" + (f" of {most}" if most else "")
    return f"waits for {attempt} in {event.group}: {when}.{_nobody(event.group, around)}"


def _end(event: HistoryEvent, history: History, around: Around) -> str:
    """The end of a message, in a group or as a whole; empty if other lines say it."""
    if event.kind is EventKind.DEAD:
        return (
            ""
            if _is_redriven(event, history)
            else (
                f"is dead in {event.group}; to send it again:"
                f" rmqlite dlq redrive {event.group} --id {event.message_id}"
            )
        )
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
    failing = {each.group for each in history.hops if each.message_id == event.message_id}
    readers = [each for each in event.readers if each not in failing]
    if readers:
        return f"was read from {place_text(event)} by {', '.join(readers)}."
    return (
        "" if failing - {event.group, ""} else f"is in {place_text(event)}, not read by any group."
    )


def _is_redriven(dead: HistoryEvent, history: History) -> bool:
    return any(
        [
            each.kind is EventKind.REDRIVEN
            and each.physical_offset > dead.physical_offset
            and each.group in ("", dead.group)
            for each in history.hops
        ]
    )


def _nobody(group: str, around: Around) -> str:
    status = around.groups.get(group)
    if status is None:
        return ""
    if not status.info.can_consume:
        return f" {group} may not consume now."
    return "" if status.members else f" {group} has no member now."


def _level(preposition: str, event: HistoryEvent) -> str:
    if event.level < 0:
        return f"as a {TIMER}"
    # The delay that this message got; the level may have another delay now.
    return f"{preposition} level {event.level} ({delay_text(max(0, event.due_ms - event.at_ms))})"


def _due(event: HistoryEvent) -> str:
    text = time_text(event.due_ms)
    return f"due {text[11:] if text[:10] == time_text(event.at_ms)[:10] else text}"


def _of_group(event: HistoryEvent) -> str:
    return f" in {event.group}" if event.group else ""


def _attempts(count: int) -> str:
    return "one attempt" if count == 1 else f"{count} attempts"


def _wrapped(text: str, width: int) -> list[str]:
    """Escaped lines of at most `width` columns, continued lines indented."""
    first, *more = [
        line.plain.rstrip()
        for part in text.split("\n")
        for line in Text(printable(part)).wrap(out(), width - 2)
    ]
    return [first, *[f"  {each}" for each in more]]
