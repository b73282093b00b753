"""rmqlite retry list and show: the retries of a group, and the history of one message.

A due retry is in the group's retry topic and waits for a consumer; any other waits in the
schedule.  Both are listed, the due ones first.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import DeadLetterOptions, checked_group
from rmqlite.cli.options import (
    DEFAULT_ENDPOINT,
    NOT_ALL,
    AsJson,
    Count,
    Cursor,
    Endpoint,
    GroupArgument,
    with_options,
)
from rmqlite.cli.output.progress import letters_listed
from rmqlite.cli.output.spans import instant_text, wait_text
from rmqlite.cli.output.terminal import fitted, note, print_json, print_tall_table, printable
from rmqlite.cli.retry.life_text import Around, print_history
from rmqlite.errors import GroupUnknown
from rmqlite.names import RETRY_PREFIX, retry_topic
from rmqlite.requests.dead_letters import (
    DeadLetter,
    DeadLettersQuery,
    EventKind,
    History,
    HistoryEvent,
)
from rmqlite.requests.groups import GroupStatus
from rmqlite.requests.schedule import PendingFilter, PendingQuery
from rmqlite.views.group_figures import group_figures

if TYPE_CHECKING:
    from rmqlite.client import AdminClient

ROWS_DEFAULT: Final = 50
_COLUMNS: Final = ("NEXT ATTEMPT", "ATTEMPT", "FAILING SINCE", "TOPIC", "TAGS", "KEYS")


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
        found, more = letters_listed(admin.letters.list_retries, query, count)
        outlook = outlook_of(broker, status)
    if as_json:
        trees = [_tree(each, outlook) for each in found]
        print_json(dataclasses.asdict(outlook) | {"letters": trees, "cursor": more})
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
    return f"{count:,} {'retry' if count == 1 else 'retries'} of {group}"


def _readers(outlook: Outlook) -> str:
    if not outlook.can_consume:
        return f"{outlook.group} may not consume now"
    if not outlook.members:
        return f"{outlook.group} has no member now"
    members = "1 member" if outlook.members == 1 else f"{outlook.members:,} members"
    return f"{outlook.group} has {members} now"


def _is_due(letter: DeadLetter, now_ms: int) -> bool:
    return letter.due_ms <= now_ms


def _when(due_ms: int, now_ms: int) -> str:
    wait = wait_text(due_ms - now_ms)
    return f"{instant_text(due_ms, now_ms)}, {f'in {wait}' if due_ms > now_ms else wait}"


def _attempts_max(letter: DeadLetter, outlook: Outlook) -> int:
    """The sender's limit comes before the group's."""
    limit = letter.max_reconsume_times
    return outlook.attempts_max if limit is None else limit + 1


def _row(letter: DeadLetter, outlook: Outlook) -> tuple[str, ...]:
    is_due = _is_due(letter, outlook.now_ms)
    when = "due, waits for a consumer" if is_due else _when(letter.due_ms, outlook.now_ms)
    return (
        when,
        f"{letter.delivery_attempts + 1} of {_attempts_max(letter, outlook)}",
        instant_text(letter.first_failure_ms, outlook.now_ms),
        printable(letter.origin_topic) or "-",
        printable(letter.tags) or "-",
        printable(" ".join(letter.keys)) or "-",
    )


def _second_line(letter: DeadLetter) -> str:
    return fitted(printable(f"{letter.message_id}  {letter.reason or 'no reason given'}"))


def _tree(letter: DeadLetter, outlook: Outlook) -> dict[str, Any]:
    """The letter's fields, and its next attempt."""
    return dataclasses.asdict(letter) | {
        "offset_message_id": letter.offset_message_id,
        "attempt": letter.delivery_attempts + 1,
        "attempts_max": _attempts_max(letter, outlook),
        "is_due": _is_due(letter, outlook.now_ms),
    }


def show(
    message_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="The message id, or the offset message id of any of its records."
        ),
    ],
    endpoint: Endpoint = DEFAULT_ENDPOINT,
    as_json: AsJson = False,
) -> None:
    """Show the whole history of a message, event by event, and what happens to it next.

    Exit code 1 if there is no such message.
    """
    if not message_id.strip():
        raise typer.BadParameter("a message id is empty")
    with connected(endpoint) as admin:
        history = admin.letters.life(message_id)
        around = _around(admin, history) if history.hops else Around(0)
    if as_json:
        hops = [_event_tree(each) for each in history.hops]
        tree: dict[str, Any] = {"message_id": history.message_id, "now_ms": around.now_ms}
        print_json(tree | {"hops": hops, "is_cut": history.is_cut})
    elif history.hops:
        print_history(history, around)
    if not history.hops:
        note(f"no message with the id {message_id}")
        raise typer.Exit(NOT_ALL)


def _around(admin: AdminClient, history: History) -> Around:
    """The broker's clock, and the status of the groups in the history."""
    groups = {}
    for name in {each.group for each in history.hops if each.group}:
        try:
            groups[name] = admin.group(name)
        except GroupUnknown:
            continue
    return Around(admin.broker_status().now_ms, groups)


def _event_tree(event: HistoryEvent) -> dict[str, Any]:
    return dataclasses.asdict(event) | {"kind": EventKind(event.kind).name.lower()}
