"""rmqlite retry now and cancel: deliver a group's waiting retries at once, or cancel them.

The machinery is that of `rmqlite schedule`: message ids are changed at once, with an outcome for
each; a filter is counted first, and the command asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import typer

from rmqlite.cli.broker_view import CALL_MS_MAX, BrokerView
from rmqlite.cli.letter_options import FailureOptions, checked_group
from rmqlite.cli.options import ChangeOptions, GroupArgument, with_options
from rmqlite.cli.schedule.change import Ids, carry_out, message_ids
from rmqlite.cli.schedule.changing import Change, Words
from rmqlite.cli.schedule.pending_options import PendingOptions
from rmqlite.names import RETRY_PREFIX
from rmqlite.requests.schedule import ChangeOutcome, ScheduleAction

All = Annotated[bool, typer.Option("--all", help="All waiting retries of this group.")]


@dataclass(frozen=True, slots=True)
class RetryOptions(FailureOptions):
    """The options as they were typed."""

    due_from: Annotated[
        str | None,
        typer.Option(
            "--due-from",
            metavar="TIME",
            help="Due at this time or later: '2026-11-20 10:00', epoch ms, now, or +30m from now.",
        ),
    ] = None
    due_until: Annotated[
        str | None, typer.Option("--due-until", metavar="TIME", help="Due before this time.")
    ] = None

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
    group = checked_group(group.removeprefix(RETRY_PREFIX))
    words = Words("retry", "retried", _outcomes(group))
    _run(Change(ScheduleAction.FIRE, how, words=words), ids, options.pending(group), everything)


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
    group = checked_group(group.removeprefix(RETRY_PREFIX))
    words = Words("cancel", "cancelled", _outcomes(group))
    _run(Change(ScheduleAction.CANCEL, how, words=words), ids, options.pending(group), everything)


def _outcomes(group: str) -> dict[ChangeOutcome, str]:
    given = f"does not wait any more: it was given to {group} already"
    return {
        ChangeOutcome.NOT_FOUND: f"not found: no retry of {group} has this message id",
        ChangeOutcome.ALREADY_DELIVERED: given,
        ChangeOutcome.ALREADY_CANCELLED: "does not wait any more: it was cancelled already",
    }


def _run(
    change: Change,
    given: Sequence[str] | None,
    wanted: PendingOptions,
    everything: bool,
) -> None:
    from rmqlite.client import AdminClient

    is_filtered = not wanted.is_only_a_place
    if given and (everything or is_filtered):
        raise typer.BadParameter("give message ids or a filter, not both")
    if everything and is_filtered:
        raise typer.BadParameter("--all means all waiting retries: it takes no other filter")
    if not (given or everything or is_filtered):
        raise typer.BadParameter("give message ids, a filter such as --reason, or --all")
    if not given:
        change.how.check_can_ask()
    ids = message_ids(given) if given else None
    with AdminClient(change.how.endpoint, timeout_ms=CALL_MS_MAX) as admin:
        # Raise GroupUnknown for an unknown group: it is probably a typing error.
        admin.group(wanted.group or "")
        carry_out(BrokerView(admin), change, ids, wanted, ("--due-from", "--due-until"))
