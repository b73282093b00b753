"""The base of the service's parts, with two rules for each of their methods.

A caller needs the rights that a method names.  A sync that fails inside it ends the
broker.  Only this module has these rules: it wraps a part's public coroutine methods when the
class is made, so a new method cannot forget them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, Protocol, TypeVar

from rmqlite.kernel import Steps
from rmqlite.kernel.broker import Broker
from rmqlite.kernel.config.config import BrokerConfig
from rmqlite.kernel.requests.broker import NameServerStatus
from rmqlite.kernel.service.access import (
    CALLER,
    NOTE,
    Access,
    Limits,
    Rule,
    account_of_caller,
    of_admins,
    rule_of,
)
from rmqlite.kernel.service.group_commit import GroupCommit
from rmqlite.kernel.service.turns import done_in_turns
from rmqlite.kernel.service.waiting import ParkedCalls
from rmqlite.kernel.words.clock import Clock, elapsed_s
from rmqlite.kernel.words.errors import AccessDenied, BrokerClosing, FlushFailed, InvalidValue
from rmqlite.kernel.words.limits import check_note

A = TypeVar("A")


async def _none(_topic: str) -> Mapping[str, int]:
    """Without other brokers."""
    return {}


class Watched(Protocol):
    """Files that are read again when they change.

    name: what they hold, such as "accounts".  warnings: what is wrong with them, a sentence each.
    is_broken: do they hold something else than what is in force?
    """

    name: str
    warnings: tuple[str, ...]
    is_broken: bool

    async def watch(self) -> None:
        """Look at the files again and again."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceParts:
    """What the service works with.  pulls, heartbeats: the calls that wait.

    name_servers: the state of each name server at which the broker registers.  other_queues: how
    many queues of a topic other brokers have, by their names; None if no name server answers.
    """

    config: BrokerConfig
    broker: Broker
    commit: GroupCommit
    pulls: ParkedCalls
    heartbeats: ParkedCalls
    clock: Clock
    access: Access
    limits: Limits | None
    watched: Sequence[Watched] = ()
    name_servers: Callable[[], Sequence[NameServerStatus]] = tuple
    other_queues: Callable[[str], Awaitable[Mapping[str, int] | None]] = _none
    open_ports: Sequence[str] = ()


class Part:
    """Methods over the values of requests.  Each raises RmqliteError."""

    def __init__(self, parts: ServiceParts) -> None:
        self._access = parts.access
        self._limits = parts.limits
        self._config = parts.config
        self._broker = parts.broker
        self._commit = parts.commit
        self._pulls = parts.pulls
        self._heartbeats = parts.heartbeats

    def __init_subclass__(cls) -> None:
        for name, method in list(vars(cls).items()):
            if not name.startswith("_") and iscoroutinefunction(method):
                rule = rule_of(method)
                if rule is None:
                    raise TypeError(f"{cls.__name__}.{name} does not say who may call it")
                setattr(cls, name, _guarded(method, rule))

    async def _durable(self) -> None:
        """Return when everything appended until now is on disk.  Raises FlushFailed."""
        await self._commit.durable(self._broker.store.end)

    async def _saved(self) -> None:
        """Return when every table changed until now is on disk.  Raises FlushFailed."""
        await self._commit.durable(self._broker.store.tables.logged_end)

    async def _stored(self, steps: Steps[A]) -> A:
        """Do steps that append; their answer, when that is on disk."""
        answer = await done_in_turns(steps)
        await self._durable()
        return answer

    def _check_open(self) -> None:
        """Raises BrokerClosing once the broker drains, and what the group commit refuses with."""
        if self._pulls.is_closed:
            raise BrokerClosing
        self._commit.check_open()

    def _wait_end_s(self, wait_ms: int) -> float:
        """When a call ends that finds nothing, by elapsed_s().  Raises InvalidValue."""
        if not 0 <= wait_ms <= self._config.pull_wait_ms_max:
            rule = f"0 to {self._config.pull_wait_ms_max} (maxPullWait)"
            raise InvalidValue("wait_ms", wait_ms, rule)
        return elapsed_s() + wait_ms / 1000

    async def _wait_for(self, key: Hashable, until_s: float) -> None:
        """Wait for a message of this key, at most until then.  Raises Overloaded."""
        account = account_of_caller()
        with nullcontext() if self._limits is None else self._limits.parked(account):
            await self._pulls.wait(key, until_s - elapsed_s(), account)


def _guarded(method: Callable[..., Awaitable[A]], rule: Rule) -> Callable[..., Awaitable[A]]:
    """The same method, for those who may call it; a failed sync in it ends the broker."""
    name = method.__qualname__

    @wraps(method)
    async def asked(part: Part, *args: Any, **more: Any) -> A:
        if part._access.closed_to is not None:
            part._access.closed_to(name)
        if part._access.accounts is not None:
            part._access.check(CALLER.get(), rule(part._broker, *args, **more), name, args)
        coming = method(part, *args, **more)
        # A method that waits for long drops its request; so do those who have called it.
        del args, more
        try:
            return await coming
        except FlushFailed as error:
            if error.is_final:
                # The disk may lack records that the broker has counted: only a recovery finds out.
                part._commit.fail(error)
            raise

    return _audited(asked) if rule is of_admins else asked


def _audited(asked: Callable[..., Awaitable[A]]) -> Callable[..., Awaitable[A]]:
    """The same method, which changes something; its end is a line of the audit log.

    Without accounts only a change with a note has one.
    """

    @wraps(asked)
    async def logged(part: Part, *args: Any, **more: Any) -> A:
        access, note = part._access, NOTE.get().text
        check_note(note)
        is_dry_run = any(getattr(each, "dry_run", False) for each in args)
        if is_dry_run or (access.accounts is None and not note):
            return await asked(part, *args, **more)
        try:
            answer = await asked(part, *args, **more)
        except AccessDenied:
            # It has a line of its own.
            raise
        except BaseException as error:
            access.ended(CALLER.get(), asked.__qualname__, args, error)
            raise
        access.ended(CALLER.get(), asked.__qualname__, args, None)
        return answer

    return logged
