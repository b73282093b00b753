"""The life of a message for a person: times, events, and the places of the records.

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
    """Facts that a life does not contain: the broker's time, and its groups."""

    now_ms: int
    groups: Mapping[str, GroupStatus] = field(default_factory=dict)

    def attempts_max(self, hop: HistoryEvent) -> int:
        """The attempts before a message is dead; a sender's limit comes first; 0: unknown."""
        if hop.max_reconsume_times is not None:
            return hop.max_reconsume_times + 1
        status = self.groups.get(hop.group)
        return status.info.max_reconsume_times + 1 if status else 0


def print_life(life: History, around: Around) -> None:
    """The head, a paragraph for each hop, and what comes next."""
    console = out()
    console.print(Text(printable(_head(life)), style="bold"))
    if life.is_cut:
        console.print(Text("older hops are left out", style="dim"))
    told = Told(life)
    day = ""
    before_ms = 0
    for hop in life.hops:
        text = time_text(hop.at_ms)
        if text[:10] != day:
            day = text[:10]
            console.print(Text(day, style="bold"))
        since = f"+{span_text(max(0, hop.at_ms - before_ms))}" if before_ms else ""
        _print_hop(console, f"{text[11:]:>{_TIME_WIDTH}}  {since:>{_SINCE_WIDTH}}  ", hop, told)
        before_ms = hop.at_ms
    console.print()
    for line in outcome(life, around):
        for each in _wrapped(line, shutil.get_terminal_size().columns):
            console.print(Text(each, style="bold"))


def _head(life: History) -> str:
    hops = f"{len(life.hops):,} {'hop' if len(life.hops) == 1 else 'hops'}"
    lasted_ms = life.hops[-1].at_ms - life.hops[0].at_ms
    return f"{life.message_id}  {hops}" + (f" in {span_text(lasted_ms)}" if lasted_ms > 0 else "")


def _print_hop(console: Console, times: str, hop: HistoryEvent, told: Told) -> None:
    columns = shutil.get_terminal_size().columns
    width = min(_TEXT_WIDTH_MAX, max(_TEXT_WIDTH_MIN, columns - len(_INDENT)))
    style = _STYLES.get(hop.kind, "")
    for sentence in told.sentences(hop):
        for line in _wrapped(sentence, width):
            console.print(Text(times) + Text(line, style=style))
            times = _INDENT
    for record in _records(hop, columns - len(_RECORD_INDENT)):
        console.print(Text(_RECORD_INDENT + record, style="dim"))


def _records(hop: HistoryEvent, width: int) -> Iterator[str]:
    """The place of the hop's record, on one line if there is room."""
    place = printable(place_text(hop))
    if len(place) + 2 + len(hop.offset_message_id) <= width:
        yield f"{place}  {hop.offset_message_id}"
        return
    yield place
    yield hop.offset_message_id


def place_text(hop: HistoryEvent) -> str:
    return f"{hop.topic}/{hop.queue_id}@{hop.queue_offset}"


class Told:
    """Describes each hop; it remembers the earlier hops, to avoid repetition."""

    def __init__(self, life: History) -> None:
        self._last = {each.group: each for each in life.hops}
        self._due_ms: dict[str, int] = {}
        """The due time of a waiting hop, by its group; the message itself has ""."""
        self._reasons: dict[str, str] = {}

    def sentences(self, hop: HistoryEvent) -> Iterator[str]:
        """The event of a hop, in words."""
        if hop.level:
            self._due_ms[hop.group] = hop.due_ms
        told = {
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
        yield from told[hop.kind](hop)
        # A group that failed the message has read it, so only its last hop names it as a reader.
        has_failed = hop.readers == (hop.group,) and self._last[hop.group] is not hop
        if hop.readers and not has_failed:
            yield f"read by {', '.join(hop.readers)}"

    def _sent(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"sent to {hop.topic}"

    def _scheduled(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"scheduled {_level('at', hop)}, {_due(hop)}"

    def _delivered(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"delivered to {hop.topic}{self._lateness(hop)}"

    def _failed(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"failed in {hop.group}, attempt {hop.attempt}{self._why(hop)}"
        yield f"retry {_level('at', hop)}, {_due(hop)}"

    def _retried(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"given to {hop.group} again{self._lateness(hop)}"

    def _dead(self, hop: HistoryEvent) -> Iterator[str]:
        after = f" after {_attempts(hop.attempt)}" if hop.attempt else ""
        yield f"dead in {hop.group}{after}{self._why(hop)}"

    def _cancelled(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"cancelled{_of_group(hop)}: it is not delivered"

    def _fired(self, hop: HistoryEvent) -> Iterator[str]:
        if hop.group:
            yield f"fired: given to {hop.group} again{self._lateness(hop)}"
        else:
            yield f"fired: delivered to {hop.topic}{self._lateness(hop)}"

    def _rescheduled(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"rescheduled{_of_group(hop)} {_level('to', hop)}, {_due(hop)}"

    def _undeliverable(self, hop: HistoryEvent) -> Iterator[str]:
        yield f"came due{_of_group(hop)} and could not be delivered{self._why(hop)}"

    def _redriven(self, hop: HistoryEvent) -> Iterator[str]:
        by = f" by job {hop.job_id}" if hop.job_id else ""
        to = f" to group {hop.group}" if hop.group else ""
        if hop.level:
            yield f"sent again{by}{to}, as {hop.message_id}"
            yield f"scheduled {_level('at', hop)}, {_due(hop)}"
        else:
            yield f"sent again{by}{to or f' to {hop.topic}'}, as {hop.message_id}"

    def _lateness(self, hop: HistoryEvent) -> str:
        due_ms = hop.due_ms or self._due_ms.pop(hop.group, 0)
        if not due_ms:
            return ""
        late_ms = hop.at_ms - due_ms
        if late_ms < 0:
            return f", {span_text(-late_ms)} early"
        return f", {span_text(late_ms)} after it was due" if late_ms else ", when it was due"

    def _why(self, hop: HistoryEvent) -> str:
        """The reason; a repeated reason is not printed again."""
        if not hop.reason:
            return ", no reason given"
        if self._reasons.get(hop.group) == hop.reason:
            return ", for the same reason"
        self._reasons[hop.group] = hop.reason
        return f": {hop.reason}"


def outcome(life: History, around: Around) -> Iterator[str]:
    """Sentences about what the message waits for now, or about its end."""
    last: dict[tuple[str, str], HistoryEvent] = {}
    for hop in life.hops:
        last[hop.message_id, hop.group] = hop
    for hop in last.values():
        which = "It" if hop.message_id == life.message_id else hop.message_id
        sentence = _waits(hop, around) if hop.is_pending else _end(hop, life, around)
        if sentence:
            yield f"{which} {sentence}"


def _waits(hop: HistoryEvent, around: Around) -> str:
    wait = wait_text(hop.due_ms - around.now_ms)
    wait = f"in {wait}" if hop.due_ms > around.now_ms else wait
    when = f"{instant_text(hop.due_ms, around.now_ms)}, {wait}"
    if not hop.group:
        return f"waits for its delivery: {when}."
    most = around.attempts_max(hop)
    attempt = f"attempt {hop.attempt + 1}" + (f" of {most}" if most else "")
    return f"waits for {attempt} in {hop.group}: {when}.{_nobody(hop.group, around)}"


def _end(hop: HistoryEvent, life: History, around: Around) -> str:
    """The end of a message, in a group or as a whole; empty if other lines say it."""
    if hop.kind is EventKind.DEAD:
        return (
            ""
            if _is_redriven(hop, life)
            else (
                f"is dead in {hop.group}; to send it again:"
                f" rmqlite dlq redrive {hop.group} --id {hop.message_id}"
            )
        )
    if hop.kind is EventKind.CANCELLED:
        return f"was cancelled{_of_group(hop)}."
    if hop.kind is EventKind.UNDELIVERABLE:
        return "could not be delivered, and is a dead letter of the schedule."
    if hop.level:
        return f"does not wait any more{_of_group(hop)}."
    if hop.group and hop.kind in _INTO_A_TOPIC:
        if hop.group in hop.readers:
            return f"was consumed by {hop.group}."
        return f"is not consumed yet by {hop.group}.{_nobody(hop.group, around)}"
    return _read(hop, life)


def _read(hop: HistoryEvent, life: History) -> str:
    """The groups that read a message in its topic, without those that failed it."""
    failing = {each.group for each in life.hops if each.message_id == hop.message_id}
    readers = [each for each in hop.readers if each not in failing]
    if readers:
        return f"was read from {place_text(hop)} by {', '.join(readers)}."
    return "" if failing - {hop.group, ""} else f"is in {place_text(hop)}, not read by any group."


def _is_redriven(dead: HistoryEvent, life: History) -> bool:
    return any(
        [
            each.kind is EventKind.REDRIVEN
            and each.physical_offset > dead.physical_offset
            and each.group in ("", dead.group)
            for each in life.hops
        ]
    )


def _nobody(group: str, around: Around) -> str:
    status = around.groups.get(group)
    if status is None:
        return ""
    if not status.info.can_consume:
        return f" {group} may not consume now."
    return "" if status.members else f" {group} has no member now."


def _level(preposition: str, hop: HistoryEvent) -> str:
    if hop.level < 0:
        return f"as a {TIMER}"
    # The delay that this message got; the level may have another delay now.
    return f"{preposition} level {hop.level} ({delay_text(max(0, hop.due_ms - hop.at_ms))})"


def _due(hop: HistoryEvent) -> str:
    text = time_text(hop.due_ms)
    return f"due {text[11:] if text[:10] == time_text(hop.at_ms)[:10] else text}"


def _of_group(hop: HistoryEvent) -> str:
    return f" in {hop.group}" if hop.group else ""


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
