"""rmqlite schedule cancel, deliver-now and reschedule: change pending messages.

Message ids are changed at once, with an outcome for each.  A key is first looked up, so that each
of its messages has an outcome, like an id.  Messages of a filter are only counted, because there
may be millions; the command asks, or needs --yes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import BrokerView, connected, level_number
from rmqlite.cli.filters import PendingOptions, pending_text
from rmqlite.cli.options import (
    NOT_ALL,
    After,
    At,
    ChangeOptions,
    after_ms,
    moment_ms,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, Either, many, prints
from rmqlite.cli.output.progress import counting
from rmqlite.cli.output.terminal import is_confirmed, note, print_json, printable
from rmqlite.client import (
    CHANGED_IDS_MAX,
    PENDING_PAGE_MAX,
    ChangeByFilter,
    ChangeByIds,
    ChangedId,
    ChangeOutcome,
    MessageQuery,
    MessageState,
    PendingFilter,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.errors import RmqliteError, TopicUnknown
from rmqlite.kernel.words.names import is_retry
from rmqlite.views.numbers import counted, time_text

_CHANGE: Final = Document(
    "Change",
    "A change of waiting messages, or what it would do; a reschedule has one of the times, a burial"
    " a reason.",
    action=str,
    dry_run=bool,
    optional={"delay_level": int, "deliver_at_ms": int, "deliver_after_ms": int, "reason": str},
)
_CHANGED: Final = Document("Changed", "The outcome for an id.", ChangedId, outcome=str)
_BY_IDS: Final = Document(
    "ChangeByIds", "A change of messages by id or key.", _CHANGE, messages=many(_CHANGED)
)
_BY_FILTER: Final = Document(
    "ChangeByFilter", "A change of all messages that match.", _CHANGE, changed=int
)
CHANGES: Final = Either(_BY_IDS, _BY_FILTER)
"""What a command that changes waiting messages prints."""
Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Message ids; - reads them from standard input."),
]
All = Annotated[bool, option("--all", "All waiting messages.")]


@dataclass(frozen=True, slots=True)
class Words:
    """The words for a change; outcomes: longer words for some outcomes.

    verb: also the name in JSON.  order: of the question, before and behind the messages.
    """

    verb: str
    done: str
    outcomes: Mapping[ChangeOutcome, str] = field(default_factory=dict)
    order: tuple[str, str] | None = None


_WORDS: Final = {
    ScheduleAction.CANCEL: Words("cancel", "cancelled"),
    ScheduleAction.FIRE: Words("fire", "delivered now", order=("deliver ", " now")),
    ScheduleAction.RESCHEDULE: Words("reschedule", "rescheduled"),
    ScheduleAction.BURY: Words("bury", "buried"),
}
_FOUND_MAX: Final = 64
"""The most records that a broker finds by a key."""


@dataclass(slots=True)
class PendingChange:
    """A change; to: the level of a reschedule, as it was typed."""

    action: ScheduleAction
    how: ChangeOptions
    to: str = ""
    more: dict[str, Any] = field(default_factory=dict)
    """A further field of ChangeByIds: the new time of a reschedule, the reason of a burial."""
    where_to: str = ""
    words: Words | None = None
    """Words other than the action's own."""

    @property
    def wording(self) -> Words:
        return self.words or _WORDS[self.action]

    @property
    def verb(self) -> str:
        return self.wording.verb

    @property
    def done(self) -> str:
        """The word for a change that was done, or would be done."""
        done = self.wording.done
        return f"would be {done}" if self.how.dry_run else done

    def until(self, text: str, **new_time: int) -> None:
        """Note the new time of a reschedule; text: for a person."""
        self.more, self.where_to = new_time, f" to {text}"


def change_by_ids(
    broker: BrokerView, change: PendingChange, ids: Sequence[str], topic: str
) -> bool:
    """Change these ids and print each outcome; returns whether all were done."""
    if not ids:
        note("no message ids were given")
    changed: list[ChangedId] = []
    try:
        with counting(change.done, len(ids)) as report:
            for answered in _answers(broker, change, ids, topic):
                changed += answered
                report(len(changed))
    except (RmqliteError, KeyboardInterrupt):
        # The changes answered before are done: print them.
        if changed:
            _print_changed(change, changed, len(ids))
        raise
    _print_changed(change, changed, len(ids))
    return all([each.outcome is ChangeOutcome.DONE for each in changed])


def _answers(
    broker: BrokerView, change: PendingChange, ids: Sequence[str], topic: str
) -> Iterator[tuple[ChangedId, ...]]:
    """The answers, call by call."""
    for start in range(0, len(ids), CHANGED_IDS_MAX):
        part = tuple(ids[start : start + CHANGED_IDS_MAX])
        dry_run = change.how.dry_run
        asked = ChangeByIds(change.action, part, topic, dry_run=dry_run, **change.more)
        yield broker.schedule.change_by_ids(asked)


def _print_changed(change: PendingChange, changed: Sequence[ChangedId], asked: int) -> None:
    if change.how.as_json:
        messages = [_changed_tree(each) for each in changed]
        print_json(_BY_IDS.tree(_tree(change), messages=messages))
    else:
        for each in changed:
            sys.stdout.write(f"{printable(each.message_id)}  {_outcome_text(change, each)}\n")
    done = sum([each.outcome is ChangeOutcome.DONE for each in changed])
    if asked > 1:
        note(f"{done:,} of {asked:,} {change.done}{change.where_to}")


def _outcome_text(change: PendingChange, changed: ChangedId) -> str:
    if changed.outcome is not ChangeOutcome.DONE:
        return change.wording.outcomes.get(changed.outcome) or _word(changed.outcome)
    text = change.done if change.how.dry_run else "done"
    if changed.count > 1:
        text += f", {changed.count:,} messages"
    if change.action is ScheduleAction.RESCHEDULE and changed.deliver_at_ms:
        text += f", due {time_text(changed.deliver_at_ms)}"
    return text


def _word(outcome: ChangeOutcome) -> str:
    return outcome.name.lower().replace("_", " ")


def _tree(change: PendingChange) -> dict[str, Any]:
    dry_run = change.how.dry_run
    return _CHANGE.tree(action=change.verb, dry_run=dry_run, **change.more)


def _changed_tree(changed: ChangedId) -> dict[str, Any]:
    return _CHANGED.tree(changed, outcome=changed.outcome.name.lower())


def change_by_key(broker: BrokerView, change: PendingChange, wanted: PendingFilter) -> bool:
    """Change messages with this key, and print each outcome; returns whether all were done.

    With a topic, its messages that were delivered or cancelled before are listed, too.
    """
    pending = list(broker.schedule.pending(wanted, page=PENDING_PAGE_MAX))
    if not all([each.message_id for each in pending]):
        return change_by_filter(broker, change, wanted)
    ids = dict.fromkeys([*_scheduled_before(broker, wanted), *[m.message_id for m in pending]])
    if not ids:
        return _nothing(change, wanted, messages=[])
    if pending and not _confirmed(change, len(pending), wanted):
        return False
    return change_by_ids(broker, change, tuple(ids), wanted.topic)


def _scheduled_before(broker: BrokerView, wanted: PendingFilter) -> list[str]:
    """The ids of messages with the key that are, or were, scheduled for the topic."""
    if not wanted.topic or is_retry(wanted.topic):
        return []
    query = MessageQuery(wanted.topic, wanted.key, max_messages=_FOUND_MAX, history=True)
    try:
        found = broker.admin.find_messages(query)
    except TopicUnknown:
        return []
    if found.is_cut:
        note(f"only the newest {_FOUND_MAX} records with this key were searched for earlier ends")
    return [
        each.message.message_id
        for each in found.messages
        if each.state is MessageState.SCHEDULED and each.message.message_id
    ]


def change_by_filter(broker: BrokerView, change: PendingChange, wanted: PendingFilter) -> bool:
    """Change all messages that match, and print how many; returns whether there were any."""
    # A dry run only counts; so does a user who may still say no.
    total = _count(broker, change, wanted) if change.how.dry_run or not change.how.yes else None
    if total and not _confirmed(change, total, wanted):
        return False
    changed = total if change.how.dry_run or total == 0 else _change(broker, change, wanted, total)
    if not changed:
        return _nothing(change, wanted, changed=0)
    if change.how.as_json:
        print_json(_BY_FILTER.tree(_tree(change), changed=changed))
    else:
        sys.stdout.write(f"{counted(changed, 'message')} {change.done}{change.where_to}\n")
    return True


def _count(broker: BrokerView, change: PendingChange, wanted: PendingFilter) -> int:
    with counting("counting") as report:
        counted = ChangeByFilter(change.action, wanted, dry_run=True, **change.more)
        return broker.schedule.change_by_filter(counted, report)


def _change(
    broker: BrokerView, change: PendingChange, wanted: PendingFilter, total: int | None
) -> int:
    with counting(change.done, total) as report, _noted_when_interrupted(change) as far:

        def progress(changed: int) -> None:
            far.append(changed)
            report(changed)

        asked = ChangeByFilter(change.action, wanted, **change.more)
        return broker.schedule.change_by_filter(asked, progress)


@contextmanager
def _noted_when_interrupted(change: PendingChange) -> Iterator[list[int]]:
    """After an interruption, print how many were changed; the call under way may be done, too."""
    far = [0]
    try:
        yield far
    except (RmqliteError, KeyboardInterrupt):
        if far[-1]:
            note(f"interrupted: at least {counted(far[-1], 'message')} {change.done}")
        raise


def _nothing(change: PendingChange, wanted: PendingFilter, **tree: Any) -> bool:
    if change.how.as_json:
        print_json((_BY_IDS if "messages" in tree else _BY_FILTER).tree(_tree(change), **tree))
    note(f"nothing that waits fits: {pending_text(wanted)}")
    return False


def _confirmed(change: PendingChange, count: int, wanted: PendingFilter) -> bool:
    if change.how.dry_run or change.how.yes:
        return True
    before, behind = change.wording.order or (f"{change.verb} ", change.where_to)
    what = f"{before}{counted(count, 'message')}{behind}: {pending_text(wanted)}?"
    return is_confirmed(what)


@prints(lambda: CHANGES)
@with_options
def cancel(
    *,
    ids: Ids = None,
    wanted: PendingOptions,
    everything: All = False,
    how: ChangeOptions,
) -> None:
    """Cancel pending messages: they are not delivered.

    Message ids, or what fits all options.  Exit code 1: one was not pending, or none fitted.
    """
    _run(PendingChange(ScheduleAction.CANCEL, how), ids, wanted, everything)


@prints(lambda: CHANGES)
@with_options
def deliver_now(
    *,
    ids: Ids = None,
    wanted: PendingOptions,
    everything: All = False,
    how: ChangeOptions,
) -> None:
    """Deliver pending messages now.

    Message ids, or what fits all options.  Exit code 1: one was not pending, or none fitted.
    """
    _run(PendingChange(ScheduleAction.FIRE, how), ids, wanted, everything)


@prints(lambda: CHANGES)
@with_options
def reschedule(
    *,
    to: Annotated[
        str, option("--to LEVEL", "The new level, or its delay, such as 10m.", completion.delays)
    ] = "",
    at: At = "",
    after: After = "",
    ids: Ids = None,
    wanted: PendingOptions,
    everything: All = False,
    how: ChangeOptions,
) -> None:
    """Reschedule pending messages: from now on they wait at another level, or for an instant.

    Message ids, or what fits all options.  Exit code 1: one was not pending, or none fitted.
    """
    if sum(map(bool, (to, at, after))) != 1:
        raise typer.BadParameter("give --to, --at or --after, one of them")
    change = PendingChange(ScheduleAction.RESCHEDULE, how, to=to)
    instant_ms = moment_ms("--at", at)
    if instant_ms is not None:
        change.until(time_text(instant_ms), deliver_at_ms=instant_ms)
    if after:
        change.until(f"{after} from now", deliver_after_ms=after_ms(after))
    _run(change, ids, wanted, everything)


def _run(
    change: PendingChange,
    given: Sequence[str] | None,
    wanted: PendingOptions,
    everything: bool,
) -> None:
    only = "; only --topic or --group may narrow ids down"
    ids = checked_ids(change, given, everything, wanted, PendingOptions(), only, "--topic")
    with connected(change.how.endpoint, note=change.how.note) as admin:
        carry_out(BrokerView(admin), change, ids, wanted)


def checked_ids(
    change: PendingChange,
    given: Sequence[str] | None,
    everything: bool,
    wanted: PendingOptions,
    all_of_them: PendingOptions,
    not_both: str,
    such_as: str,
) -> tuple[str, ...] | None:
    """The message ids that were given, each once; None if a filter chooses the messages.

    Ends the command if its arguments contradict each other, or if nobody can be asked.
    """
    is_filtered = wanted != all_of_them
    if given and (everything or not wanted.is_only_a_place):
        raise typer.BadParameter(f"give message ids or a filter{not_both}")
    if given:
        return _message_ids(given)
    if everything and is_filtered:
        noun = "retries" if all_of_them.group else "messages"
        raise typer.BadParameter(f"--all means all waiting {noun}: it takes no other filter")
    if not everything and not is_filtered:
        raise typer.BadParameter(f"give message ids, a filter such as {such_as}, or --all")
    change.how.check_can_ask()
    return None


def carry_out(
    broker: BrokerView,
    change: PendingChange,
    ids: Sequence[str] | None,
    wanted: PendingOptions,
    *due_options: str,
) -> None:
    """Change these messages, or without ids all that match; ends the command unless all was done.

    due_options: the names of the options for due times, if not the schedule's.
    """
    fitting = wanted.filter(broker, *due_options)
    if change.to:
        level = level_number("--to", change.to, broker)
        change.until(f"level {level} ({broker.table.name(level)})", delay_level=level)
    if ids is not None:
        all_done = change_by_ids(broker, change, ids, wanted.destination)
    elif wanted.is_only_a_key:
        all_done = change_by_key(broker, change, fitting)
    else:
        all_done = change_by_filter(broker, change, fitting)
    if not all_done:
        raise typer.Exit(NOT_ALL)


def _message_ids(given: Iterable[str]) -> tuple[str, ...]:
    """Each id once, in the given order: a repeated id changes its message once."""
    ids: list[str] = []
    for each in given:
        ids += sys.stdin.buffer.read().decode("utf-8", "replace").split() if each == "-" else [each]
    return tuple(dict.fromkeys(ids))
