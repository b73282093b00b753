"""The calls of a round: few, and only for visible data.

A round runs in its own thread and returns one value; an error is an answer, too.  Nothing here has
state, and nothing waits longer than the client does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rmqlite.client import AdminClient
from rmqlite.clock import elapsed_s
from rmqlite.errors import RmqliteError, Unavailable
from rmqlite.requests.dead_letters import DeadLetterGroup
from rmqlite.requests.figures import BrokerStatus
from rmqlite.requests.groups import GroupInfo, GroupStatus
from rmqlite.requests.redrive import RedriveJob
from rmqlite.requests.schedule import PendingCount

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Questions:
    """A round always asks for the status.  groups: list them; describe: these in full."""

    groups: bool = False
    describe: tuple[str, ...] = ()
    pending: bool = False
    dead: bool = False
    jobs: bool = False


@dataclass(frozen=True, slots=True)
class Round:
    """The answers to questions, None for one that was not asked; asked_at_s: its start."""

    asked_at_s: float
    answered_at_s: float
    status: BrokerStatus | RmqliteError
    groups: tuple[GroupInfo, ...] | RmqliteError | None = None
    described: tuple[tuple[str, GroupStatus | RmqliteError], ...] = ()
    pending: tuple[PendingCount, ...] | RmqliteError | None = None
    dead: tuple[DeadLetterGroup, ...] | RmqliteError | None = None
    jobs: tuple[RedriveJob, ...] | RmqliteError | None = None


def ask(
    admin: AdminClient, questions: Questions, elapsed: Callable[[], float] = elapsed_s
) -> Round:
    """Ask one after the other; without a status nothing else is asked."""
    asked_at_s = elapsed()
    status = answered(admin.broker_status)
    if isinstance(status, RmqliteError):
        return Round(asked_at_s, elapsed(), status)
    # The counters belong to this moment, however long the rest takes.
    answered_at_s = elapsed()
    return Round(
        asked_at_s,
        answered_at_s,
        status,
        answered(admin.list_groups) if questions.groups else None,
        _described(admin, questions.describe),
        answered(admin.schedule.count_pending) if questions.pending else None,
        answered(admin.letters.groups) if questions.dead else None,
        answered(admin.redrives.jobs) if questions.jobs else None,
    )


def answered(call: Callable[[], T]) -> T | RmqliteError:
    """The result of a call, or the error that it raises."""
    try:
        return call()
    except RmqliteError as error:
        return error


def _described(
    admin: AdminClient, groups: tuple[str, ...]
) -> tuple[tuple[str, GroupStatus | RmqliteError], ...]:
    found: list[tuple[str, GroupStatus | RmqliteError]] = []
    for group in groups:
        try:
            found.append((group, admin.group(group)))
        except Unavailable as error:
            # Each of the other calls would wait as long.
            return (*found, (group, error))
        except RmqliteError as error:
            found.append((group, error))
    return tuple(found)
