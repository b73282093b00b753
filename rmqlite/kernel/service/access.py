"""Who calls, and may they?  One decision for every method of the service, whatever the protocol.

A protocol finds out who calls (by a signature, a session) and sets CALLER before it calls a method.
Each method names its needs, beside it (@needs, @touches, @admin …); a method without any is an
error when its class is made.  A feature has the accounts, and decides how many requests and
connections each of them has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from rmqlite.kernel.service import audit
from rmqlite.kernel.words.errors import AccessDenied, RmqliteError
from rmqlite.kernel.words.visible import shortened

M = TypeVar("M", bound=Callable[..., Any])
_RULE: Final = "_needs"
_NO_SECRET: Final = "the secret of no account"
_WRONG: Final = "there is no such access key, or the signature is wrong"


class Right(StrEnum):
    """What an account may do.  Only PUB and SUB are given by name of a topic or a group."""

    PUB = "PUB"
    """Send to a topic."""
    SUB = "SUB"
    """Consume from a topic, or in the name of a group."""
    VIEW = "VIEW"
    """Ours: look at state, messages and figures without consuming."""
    ADMIN = "ADMIN"
    """Change topics, groups, messages that wait, jobs or settings."""


class Need(NamedTuple):
    """One right that a request needs.

    Without a kind it is a right on the broker itself, and name says in RocketMQ's words what is
    asked, such as "request code=17".  asked: what the caller has named instead of a topic: then a
    refusal does not tell it which topic that is.
    """

    right: Right
    kind: Literal["topic", "group", ""] = ""
    name: str = ""
    asked: str = ""

    @property
    def subject(self) -> str:
        if self.asked:
            return shortened(self.asked)
        return shortened(f"{self.kind}:{self.name}" if self.kind else self.name or "the broker")


Rule = Callable[..., Iterable[Need]]
"""The needs of a call with these arguments, behind the broker that is asked.

They are looked at one by one: what comes behind a right that is missing is not even asked."""


class CallerAccount(Protocol):
    """Who calls, and what they may do."""

    @property
    def access_key(self) -> str: ...

    @property
    def secret_text(self) -> str: ...

    def is_trusted_at(self, host: str) -> bool:
        """Needs nobody at this host a signature?"""
        ...

    def why_not(self, wanted: Iterable[Need]) -> str | None:
        """Why the account may not do this; None if it may."""
        ...

    def sends_somewhere(self) -> bool:
        """Is there any topic that the account may send to?"""
        ...

    def named_groups(self) -> Iterable[str]:
        """The groups of which its rights are named."""
        ...


class AccountsInForce(Protocol):
    """The accounts in force, by access key."""

    @property
    def accounts(self) -> Mapping[str, CallerAccount]: ...

    def is_trusted_at(self, host: str) -> bool:
        """May whoever comes from this host do everything, without an account?"""
        ...


class Caller(NamedTuple):
    """account: None if the caller's address is trusted (a white list), or it is the broker.

    protocol: by which it came, for the audit log.
    """

    account: CallerAccount | None
    address: str
    protocol: str = ""

    @property
    def access_key(self) -> str:
        return self.account.access_key if self.account else ""


BROKER: Final = Caller(None, "the broker itself", "own")
_NOBODY: Final = Caller(None, "")
CALLER: Final[ContextVar[Caller | None]] = ContextVar("caller", default=None)
"""Whom the running call belongs to.  With accounts in force, nobody (None) may do nothing."""


def account_of_caller() -> str:
    """The access key of the running call, for what is counted of each account; "" for none."""
    caller = CALLER.get()
    return caller.access_key if caller else ""


class Note(NamedTuple):
    """Why a change is made, in the caller's words.

    address, protocol: of the caller, for the audit log of a broker without accounts.  They are no
    Caller, which might be trusted.
    """

    text: str = ""
    address: str = ""
    protocol: str = ""


NO_NOTE: Final = Note()
NOTE: Final[ContextVar[Note]] = ContextVar("note", default=NO_NOTE)
"""The note of the running call."""


def needs(rule: Callable[..., Iterable[Need]]) -> Callable[[M], M]:
    """Mark a method of the service: who calls it has the rights that rule(arguments) returns."""
    return touches(lambda _, *args, **more: rule(*args, **more))


def touches(rule: Rule) -> Callable[[M], M]:
    """The same for a method that reaches more than its arguments name: rule(broker, arguments).

    An offset names no topic, but the record there lies in one.
    """

    def marked(method: M) -> M:
        setattr(method, _RULE, rule)
        return method

    return marked


def rule_of(method: Callable[..., Any]) -> Rule | None:
    """The rule that a method was marked with."""
    rule: Rule | None = getattr(method, _RULE, None)
    return rule


def topic_right(right: Right, topic: str) -> Need:
    return Need(right, "topic", topic)


def group_right(right: Right, group: str) -> Need:
    return Need(right, "group", group)


def host_of(address: str) -> str:
    """The host of "10.0.0.7:5000" or "[::1]:5000"."""
    return address.rpartition(":")[0].strip("[]")


def of_admins(*_: object, **__: object) -> tuple[Need, ...]:
    """The rule of what an admin changes; each such call is a line of the audit log."""
    return (Need(Right.ADMIN, "", ""),)


anyone = needs(lambda *_, **__: ())
"""Every account."""
view = needs(lambda *_, **__: (Need(Right.VIEW, "", ""),))
"""Who may look at everything."""
admin = touches(of_admins)


def of_topic(right: Right) -> Callable[[M], M]:
    """Of a method whose first argument is a topic."""
    return needs(lambda topic, *_, **__: [topic_right(right, topic)])


def of_group(right: Right) -> Callable[[M], M]:
    """Of a method whose first argument is a group."""
    return needs(lambda group, *_, **__: [group_right(right, group)])


class Access:
    """The accounts in force."""

    def __init__(self, accounts: AccountsInForce | None = None) -> None:
        self.accounts = accounts
        """None: there are none, and everybody may do everything."""
        self.closed_to: Callable[[str], None] | None = None
        """Raises what refuses a method to everybody, by its name: this broker is no master."""
        self.refusals = audit.Refusals()

    @property
    def refused(self) -> int:
        """How many calls were refused."""
        return self.refusals.total

    def is_trusted(self, address: str) -> bool:
        """May whoever comes from this address do everything, without an account?"""
        assert self.accounts is not None
        return self.accounts.is_trusted_at(host_of(address))

    def caller(
        self,
        address: str,
        key: str,
        is_signed: Callable[[str], bool],
        *,
        protocol: str,
        call: object = "",
        wrong: str = _WRONG,
    ) -> Caller:
        """Who calls from an address with an access key; is_signed: with the secret it is given?

        protocol, call: by which protocol, and what; both only for the audit log.

        RocketMQ's order: trusted addresses, the key, the account's trusted addresses, and then
        the signature.  Raises AccessDenied, which does not say whether the account exists; wrong
        is its rule.
        """
        assert self.accounts is not None
        trusted = Caller(None, address, protocol)
        if self.is_trusted(address):
            return trusted
        account = self.accounts.accounts.get(key)
        if account is not None and account.is_trusted_at(host_of(address)):
            return trusted
        # Of no account, too: otherwise the time would show which accounts exist.
        secret = account.secret_text if account else _NO_SECRET
        if is_signed(secret) and account is not None:
            return Caller(account, address, protocol)
        rule = wrong if key else "the call has no access key"
        raise self.denied(trusted, rule, call, access_key=key)

    def check(
        self,
        caller: Caller | None,
        wanted: Iterable[Need],
        call: object = "",
        args: Iterable[object] = (),
    ) -> None:
        """Raises AccessDenied unless this caller has all these rights.

        call, args: what is called, for the audit log.
        """
        if self.accounts is None:
            return
        if caller is None:
            raise self.denied(_NOBODY, "the call has no account", call, args)
        if caller.account is None:
            return
        reason = caller.account.why_not(wanted)
        if reason is not None:
            raise self.denied(caller, reason, call, args)

    def check_again(self, wanted: Iterable[Need], call: str) -> None:
        """check() for a call that has waited: its account may be another one now, or deleted."""
        caller = CALLER.get()
        if self.accounts is None or caller is None or caller.account is None:
            return
        account = self.accounts.accounts.get(caller.access_key)
        if account is caller.account:
            return
        if account is None or account.secret_text != caller.account.secret_text:
            raise self.denied(caller, _WRONG, call)
        self.check(caller._replace(account=account), wanted, call)

    def denied(
        self,
        caller: Caller,
        rule: str,
        call: object = "",
        args: Iterable[object] = (),
        *,
        access_key: str = "",
    ) -> AccessDenied:
        """The error for a call that is refused, which is counted and logged.

        access_key: that the caller has named, if it is not the account's.
        """
        error = AccessDenied(f"access denied: {rule}", rule=rule)
        key = shortened(access_key or caller.access_key)
        if self.refusals.note(key, caller.address):
            what = _name(call), _target(args), error.code, rule
            audit.refused(audit.Event("refused", caller.protocol, key, caller.address, *what))
        return error

    def ended(
        self, caller: Caller | None, call: str, args: Iterable[object], error: BaseException | None
    ) -> None:
        """Log the end of a call that changes something; error: in which it ended."""
        outcome = "ok" if error is None else type(error).__name__
        if isinstance(error, RmqliteError):
            outcome = error.code
        note = NOTE.get()
        who = caller or Caller(None, note.address, note.protocol)
        by = who.protocol, who.access_key, who.address
        what = call, _target(args), outcome
        audit.changed(audit.Event("changes", *by, *what, note=note.text))


def _name(call: object) -> str:
    """A call as text; a number is a code of RocketMQ's protocol."""
    return f"request code={call}" if isinstance(call, int) else shortened(call)


def _target(args: Iterable[object]) -> str:
    """The topic, group or job that a call with these arguments is about; "" if it names none."""
    for each in args:
        if isinstance(each, str):
            return shortened(each)
        for name in ("topic", "group", "job_id"):
            value = getattr(getattr(each, "spec", each), name, "")
            if isinstance(value, str) and value:
                return shortened(value)
    return ""


class CountedRequest(NamedTuple):
    """What is counted of a request.  requests: 0 if it was counted before, without its bytes."""

    requests: int
    size: int
    keeps_member: bool = False


class Limits(Protocol):
    """The limits of one broker.  account "": none, so only limits of the connection count."""

    def of_connection(self, address: str, request: CountedRequest) -> None:
        """Count a request on a connection.  Raises Overloaded."""
        ...

    def of_account(self, account: str, request: CountedRequest) -> None:
        """Count a request of an account.  Raises Overloaded."""
        ...

    def own(self, connection: Hashable, account: str) -> None:
        """A connection has brought a request of an account, whose it is from now on.

        Raises Overloaded; the connection then belongs to whom it belonged before.
        """
        ...

    def ended(self, connection: Hashable) -> None:
        """A connection has ended."""
        ...

    def parked(self, account: str) -> AbstractContextManager[None]:
        """Inside it a pull of the account waits.  Raises Overloaded."""
        ...
