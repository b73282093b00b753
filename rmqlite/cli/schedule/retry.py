"""rmqlite retry: see and change the retries of failed messages.

A due retry is in the group's retry topic and waits for a consumer; any other waits in the
schedule.  Both are listed, the due ones first.  The machinery of changes is that of `rmqlite
schedule`: message ids are changed at once, with an outcome for each; a filter is counted first, and
the command asks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import DeadLetterOptions, PendingOptions, RetryOptions, checked_group
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    AsJson,
    ChangeOptions,
    Count,
    Cursor,
    Endpoint,
    GroupArgument,
    option,
    with_options,
)
from rmqlite.cli.output.documents import Document, fields_of, many, prints
from rmqlite.cli.output.progress import letters_listed
from rmqlite.cli.output.terminal import fitted, note, print_json, print_tall_table, printable
from rmqlite.cli.schedule.change import CHANGES, Ids, PendingChange, Words, carry_out, checked_ids
from rmqlite.client import (
    ChangeOutcome,
    DeadLetter,
    DeadLettersQuery,
    GroupStatus,
    PendingFilter,
    PendingQuery,
)
from rmqlite.kernel.requests.broker import ScheduleAction
from rmqlite.kernel.words.names import RETRY_PREFIX, retry_topic
from rmqlite.kernel.words.visible import encodable
from rmqlite.views.groups import group_figures, readers_text
from rmqlite.views.messages import NO_REASON, attempt_text, attempts_max, origin_text
from rmqlite.views.numbers import counted, instant_text, until_text

ROWS_DEFAULT: Final = 50
_COLUMNS: Final = ("NEXT ATTEMPT", "ATTEMPT", "FAILING SINCE", "TOPIC", "TAGS", "KEYS")
All = Annotated[bool, option("--all", "All waiting retries of this group.")]
app = typer.Typer(no_args_is_help=True, help="See and change retries of failed messages.")


@dataclass(frozen=True, slots=True)
class Outlook:
    """Counts of all retries of a group.

    waiting: in the schedule.  due: in the retry topic and not consumed.  next_due_ms: of the
    earliest waiting one; 0 if none waits, or if it was not found at once among others.
    attempts_max: how often a message is given to the group before it is dead.
    """

    group: str
    now_ms: int
    attempts_max: int
    waiting: int
    due: int
    next_due_ms: int
    members: int
    can_consume: bool


_RETRY: Final = Document(
    "Retry",
    "A failed message that its group gets again; attempt: the next one.",
    DeadLetter,
    offset_message_id=str,
    **fields_of(int, "attempt attempts_max"),
    is_due=bool,
)
_RETRIES: Final = Document(
    "Retries",
    "The retries of a group; cursor: for the next part of the list, or empty.",
    Outlook,
    letters=many(_RETRY),
    cursor=str,
)


@prints(lambda: _RETRIES)
@with_options
def list_retries(
    *,
    group: GroupArgument,
    options: DeadLetterOptions,
    count: Count = ROWS_DEFAULT,
    cursor: Cursor = "",
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """List the retries of GROUP: next attempt, attempt number, reason of the failure.

    Due retries come first, then waiting ones in due order.
    """
    group = checked_group(group.removeprefix(RETRY_PREFIX))
    with connected(endpoint) as admin:
        broker = BrokerView(admin)
        status = admin.group(group)
        query = DeadLettersQuery(group, options.filter(broker), cursor=cursor)
        noun = "" if as_json else "retry"
        found, more = letters_listed(admin.dead_letters.list_retries, query, count, noun)
        outlook = outlook_of(broker, status)
    if as_json:
        trees = [_tree(each, outlook) for each in found]
        print_json(_RETRIES.tree(outlook, letters=trees, cursor=more))
        return
    for line in summary(outlook):
        sys.stdout.write(f"{printable(line)}\n")
    if found:
        print_tall_table(_COLUMNS, [(_row(each, outlook), [_second_line(each)]) for each in found])
    elif options != DeadLetterOptions() and (outlook.waiting or outlook.due):
        note("no retry matches")
    if more:
        note(f"more: --cursor {more}")


def outlook_of(broker: BrokerView, status: GroupStatus) -> Outlook:
    """Ask the broker for the counts of a group's retries."""
    topic = retry_topic(status.info.group)
    waiting = sum([e.pending for e in broker.schedule.count_pending() if e.topic == topic])
    next_due_ms = 0
    if waiting:
        page = broker.schedule.list_pending(PendingQuery(PendingFilter(topic=topic), "", 1))
        next_due_ms = page.messages[0].deliver_at_ms if page.messages else 0
    return Outlook(
        status.info.group,
        broker.now_ms,
        status.info.max_reconsume_times + 1,
        waiting,
        group_figures(status.info.group, status).due or 0,
        next_due_ms,
        len(status.members),
        status.info.can_consume,
    )


def summary(outlook: Outlook) -> Iterator[str]:
    """A summary of a group's retries in one or two sentences."""
    if not outlook.waiting and not outlook.due:
        yield f"nothing is retried in {outlook.group}"
        return
    if outlook.waiting:
        yield _waiting(outlook)
    if outlook.due:
        due = f"{outlook.due:,}" if outlook.waiting else _retries(outlook.due, outlook.group)
        are = "is" if outlook.due == 1 else "are"
        yield f"{due} {are} due and not consumed yet: {_readers(outlook)}"
    elif not outlook.members or not outlook.can_consume:
        yield _readers(outlook)


def _waiting(outlook: Outlook) -> str:
    is_one = outlook.waiting == 1
    sentence = f"{_retries(outlook.waiting, outlook.group)} {'waits' if is_one else 'wait'}"
    if outlook.next_due_ms:
        which = "due" if is_one else "the next one"
        sentence += f", {which} {_when(outlook.next_due_ms, outlook.now_ms)}"
    return sentence


def _retries(count: int, group: str) -> str:
    return f"{counted(count, 'retry')} of {group}"


def _readers(outlook: Outlook) -> str:
    return readers_text(outlook.group, outlook.members, can_consume=outlook.can_consume)


def _when(due_ms: int, now_ms: int) -> str:
    return f"{instant_text(due_ms, now_ms)}, {until_text(due_ms, now_ms)}"


def _row(letter: DeadLetter, outlook: Outlook) -> tuple[str, ...]:
    is_due = letter.due_ms <= outlook.now_ms
    when = "due, waits for a consumer" if is_due else _when(letter.due_ms, outlook.now_ms)
    return (
        when,
        attempt_text(letter, outlook.attempts_max),
        instant_text(letter.first_failure_ms, outlook.now_ms),
        origin_text(letter) or "-",
        printable(letter.tags) or "-",
        printable(" ".join(letter.keys)) or "-",
    )


def _second_line(letter: DeadLetter) -> str:
    return fitted(printable(f"{letter.message_id}  {letter.reason or NO_REASON}"))


def _tree(letter: DeadLetter, outlook: Outlook) -> dict[str, Any]:
    """The letter's fields, and its next attempt."""
    return _RETRY.tree(
        letter,
        offset_message_id=letter.offset_message_id,
        attempt=letter.delivery_attempts + 1,
        attempts_max=attempts_max(letter, outlook.attempts_max),
        is_due=letter.due_ms <= outlook.now_ms,
    )


@prints(lambda: CHANGES)
@with_options
def now(
    *,
    group: GroupArgument,
    ids: Ids = None,
    options: RetryOptions,
    everything: All = False,
    how: ChangeOptions,
) -> None:
    """Give waiting retries to GROUP now; their attempts count as if they had been due.

    Choose by message ids, or by options.  Exit code 1: one was not waiting, or none matched.
    """
    _run(ScheduleAction.FIRE, Words("retry", "retried"), how, group, ids, options, everything)


@prints(lambda: CHANGES)
@with_options
def cancel(
    *,
    group: GroupArgument,
    ids: Ids = None,
    options: RetryOptions,
    everything: All = False,
    how: ChangeOptions,
) -> None:
    """Cancel waiting retries of GROUP: it gets them no more, and they are no dead letters.

    Choose by message ids, or by options.  Exit code 1: one was not waiting, or none matched.
    """
    _run(ScheduleAction.CANCEL, Words("cancel", "cancelled"), how, group, ids, options, everything)


@prints(lambda: CHANGES)
@with_options
def bury(
    *,
    group: GroupArgument,
    ids: Ids = None,
    options: RetryOptions,
    everything: All = False,
    because: Annotated[
        str,
        option("--because TEXT", "The reason of the dead letters; else the last failure's stays."),
    ] = "",
    how: ChangeOptions,
) -> None:
    """Make waiting retries of GROUP dead letters now, without another attempt.

    Choose by message ids, or by options.  Exit code 1: one was not waiting, or none matched.
    """
    more = {"reason": encodable(because)} if because else {}
    words = Words("bury", "buried")
    _run(ScheduleAction.BURY, words, how, group, ids, options, everything, **more)


def _outcomes(group: str) -> dict[ChangeOutcome, str]:
    given = f"does not wait any more: it was given to {group} already"
    return {
        ChangeOutcome.NOT_FOUND: f"not found: no retry of {group} has this message id",
        ChangeOutcome.ALREADY_DELIVERED: given,
        ChangeOutcome.ALREADY_CANCELLED: "does not wait any more: it was cancelled or buried",
    }


def _run(
    action: ScheduleAction,
    words: Words,
    how: ChangeOptions,
    group: str,
    given: Sequence[str] | None,
    options: RetryOptions,
    everything: bool,
    **more: str,
) -> None:
    """more: of a burial."""
    group = checked_group(group.removeprefix(RETRY_PREFIX))
    words = replace(words, outcomes=_outcomes(group))
    change = PendingChange(action, how, more=dict(more), words=words)
    wanted, all_of_group = options.pending(group), PendingOptions(group=group)
    ids = checked_ids(change, given, everything, wanted, all_of_group, ", not both", "--reason")
    with connected(change.how.endpoint, note=change.how.note) as admin:
        # Raise GroupUnknown for an unknown group: it is probably a typing error.
        admin.group(group)
        carry_out(BrokerView(admin), change, ids, wanted, "--due-from", "--due-until")


app.command("list")(list_retries)
app.command("now")(now)
app.command("cancel")(cancel)
app.command("bury")(bury)
