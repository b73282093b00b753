"""rmqlite retry now and cancel: deliver a group's waiting retries at once, or cancel them.

The machinery is that of `rmqlite schedule`: message ids are changed at once, with an outcome for
each; a filter is counted first, and the command asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from rmqlite.cli.broker_view import BrokerView, connected
from rmqlite.cli.filters import PendingOptions, RetryOptions, checked_group
from rmqlite.cli.options import ChangeOptions, GroupArgument, option, with_options
from rmqlite.cli.output.documents import prints
from rmqlite.cli.schedule.change import Ids, carry_out, checked_ids
from rmqlite.cli.schedule.changing import CHANGES, PendingChange, Words
from rmqlite.client import ChangeOutcome
from rmqlite.kernel.requests.schedule import ScheduleAction
from rmqlite.kernel.words.names import RETRY_PREFIX

All = Annotated[bool, option("--all", "All waiting retries of this group.")]


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
    group = checked_group(group.removeprefix(RETRY_PREFIX))
    words = Words("retry", "retried", _outcomes(group))
    _run(
        PendingChange(ScheduleAction.FIRE, how, words=words),
        ids,
        options.pending(group),
        everything,
    )


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
    group = checked_group(group.removeprefix(RETRY_PREFIX))
    words = Words("cancel", "cancelled", _outcomes(group))
    _run(
        PendingChange(ScheduleAction.CANCEL, how, words=words),
        ids,
        options.pending(group),
        everything,
    )


def _outcomes(group: str) -> dict[ChangeOutcome, str]:
    given = f"does not wait any more: it was given to {group} already"
    return {
        ChangeOutcome.NOT_FOUND: f"not found: no retry of {group} has this message id",
        ChangeOutcome.ALREADY_DELIVERED: given,
        ChangeOutcome.ALREADY_CANCELLED: "does not wait any more: it was cancelled already",
    }


def _run(
    change: PendingChange,
    given: Sequence[str] | None,
    wanted: PendingOptions,
    everything: bool,
) -> None:
    all_of_group = PendingOptions(group=wanted.group)
    ids = checked_ids(change, given, everything, wanted, all_of_group, ", not both", "--reason")
    with connected(change.how.endpoint, note=change.how.note) as admin:
        # Raise GroupUnknown for an unknown group: it is probably a typing error.
        admin.group(wanted.group or "")
        carry_out(BrokerView(admin), change, ids, wanted, "--due-from", "--due-until")
