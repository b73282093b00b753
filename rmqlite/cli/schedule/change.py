"""rmqlite schedule cancel, deliver-now and reschedule: change pending messages.

Message ids are changed at once, with an outcome for each.  A filter is counted first, and the
command asks, or needs --yes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from rmqlite.cli import completion
from rmqlite.cli.broker_view import BrokerView, connected, level_number
from rmqlite.cli.filters import PendingOptions
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
from rmqlite.cli.output.documents import prints
from rmqlite.cli.output.terminal import time_text
from rmqlite.cli.schedule.changing import (
    CHANGES,
    PendingChange,
    change_by_filter,
    change_by_ids,
    change_by_key,
)
from rmqlite.kernel.requests.broker import ScheduleAction

Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID", help="Message ids; - reads them from standard input."),
]
All = Annotated[bool, option("--all", "All waiting messages.")]


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
