"""Accounts and their rights, as plain values.

Field for field RocketMQ 4.x's plain_acl.yml (reading.py reads it), and one role that RocketMQ
does not have: a viewer may look at everything and change nothing.  A right that is not given is
refused.  The secret is in no text that an account is turned into.

May an account do that?  RocketMQ 4.9's rules, in its words (reference §6.1):

- A topic or group that the account names explicitly has the rights given there; any other one
  has the account's default, and without a default none.
- An admin passes everything, if no topic and no group is named for it.  An admin with such names
  still may administrate and look, but sends and consumes by its names and defaults.

Beyond RocketMQ:

- %RETRY%g and %DLQ%g follow group g: who may SUB as g may read and write them.  Only a %DLQ%
  topic that is named explicitly has rights of its own.
- A default does not reach what is the broker's own, unless the account is an admin: system
  topics; and system groups, since the dead letters of SCHEDULE_CONSUMER come from every topic.
  RocketMQ has no such rule; who must read, say, RMQ_SYS_TRACE_TOPIC gets it by name.
- Two exceptions, so that a client works whatever its rights: everybody with an account may send
  traces to RMQ_SYS_TRACE_TOPIC (as in RocketMQ; an explicit DENY counts here), and look at
  TBW102, whose route a producer asks for before its first send to a topic that does not exist.
  Nobody can send to TBW102, so there are no messages to be seen.
- VIEW, looking without consuming, is for viewers and admins; who may SUB may also look.  A pull
  as TOOLS_CONSUMER, the group of tools, is looking.  A viewer has VIEW on everything and no other
  right.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, SecretStr

from rmqlite.kernel.config.addresses import NO_ADDRESS, AddressPattern
from rmqlite.kernel.service.access import Need, Right
from rmqlite.kernel.words.limits import ACCESS_KEY_CHARS_MAX, ACCESS_KEY_CHARS_MIN
from rmqlite.kernel.words.names import (
    AUTO_CREATE_TOPIC,
    TRACE_TOPIC,
    group_of,
    is_dlq,
    is_system,
    is_system_group,
)
from rmqlite.kernel.words.visible import did_you_mean

"""RocketMQ refuses an access key or a secret of six characters or fewer."""
ACCOUNTS_MAX: Final = 10_000
PERMS_MAX: Final = 10_000
"""How many topics, and how many groups, one account may name."""
WHITE_ADDRESSES_MAX: Final = 10_000


class Role(StrEnum):
    USER = "user"
    ADMIN = "admin"
    VIEWER = "viewer"


Perm = frozenset[Right]
"""PUB and SUB, one of them, or none."""
DENY: Final[Perm] = frozenset()
PERMS: Final[Mapping[str, Perm]] = {
    "DENY": DENY,
    "PUB": frozenset({Right.PUB}),
    "SUB": frozenset({Right.SUB}),
    "PUB|SUB": frozenset({Right.PUB, Right.SUB}),
    "SUB|PUB": frozenset({Right.PUB, Right.SUB}),
}


def parse_perm(text: str) -> Perm:
    """The rights that a text stands for.  Raises ValueError with the rule.

    RocketMQ takes every other text for DENY, without a word.
    """
    perm = PERMS.get(text.strip())
    if perm is None:
        raise ValueError(f"DENY or PUB or SUB or PUB|SUB{did_you_mean(text.strip(), PERMS)}")
    return perm


def perm_text(perm: Perm) -> str:
    """The rights as the file spells them."""
    return "|".join(sorted(perm)) or "DENY"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Account(_Value):
    access_key: Annotated[
        str, Field(min_length=ACCESS_KEY_CHARS_MIN, max_length=ACCESS_KEY_CHARS_MAX)
    ]
    secret: Annotated[SecretStr, Field(min_length=ACCESS_KEY_CHARS_MIN, exclude=True, repr=False)]
    role: Role = Role.USER
    white_remote_address: InstanceOf[AddressPattern] = NO_ADDRESS
    default_topic_perm: Perm = DENY
    default_group_perm: Perm = DENY
    topic_perms: Annotated[Mapping[str, Perm], Field(max_length=PERMS_MAX)] = {}
    group_perms: Annotated[Mapping[str, Perm], Field(max_length=PERMS_MAX)] = {}

    @property
    def is_admin(self) -> bool:
        return self.role is Role.ADMIN

    @property
    def is_viewer(self) -> bool:
        return self.role is Role.VIEWER

    @property
    def secret_text(self) -> str:
        return self.secret.get_secret_value()

    def named_groups(self) -> Iterable[str]:
        return self.group_perms

    def is_trusted_at(self, host: str) -> bool:
        """Needs nobody at this host a signature?"""
        return self.white_remote_address.matches(host)

    def why_not(self, wanted: Iterable[Need]) -> str | None:
        """None if the account has all these rights, else the rule that forbids the first it lacks.

        The answer depends on names only, so it does not tell whether a topic or a group exists.
        """
        for need in wanted:
            refusal = _why_not(self, need)
            if refusal:
                return refusal
        return None

    def sends_somewhere(self) -> bool:
        """Has it the right to send to some topic, other than the one that everybody has?"""
        if self.is_viewer:
            return False
        perms = (self.default_topic_perm, *self.topic_perms.values())
        names_nothing = not self.topic_perms and not self.group_perms
        return (self.is_admin and names_nothing) or any(Right.PUB in perm for perm in perms)


class Accounts(_Value):
    """What a file of accounts says.

    warnings: sentences for the operator.  files: every file that was read, also of secrets.
    """

    accounts: Annotated[Mapping[str, Account], Field(max_length=ACCOUNTS_MAX)] = {}
    """By access key."""
    global_white_remote_addresses: Annotated[
        tuple[InstanceOf[AddressPattern], ...], Field(max_length=WHITE_ADDRESSES_MAX)
    ] = ()
    """Whoever comes from there may do everything, without an account."""
    warnings: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    def is_trusted_at(self, host: str) -> bool:
        """May whoever comes from this host do everything, without an account?"""
        return any(each.matches(host) for each in self.global_white_remote_addresses)


_FOR_EVERYBODY: Final = frozenset({(Right.PUB, TRACE_TOPIC), (Right.VIEW, AUTO_CREATE_TOPIC)})
"""Rights on system topics that every account has."""


def _why_not(account: Account, wanted: Need) -> str | None:
    need = _of_the_group(account, wanted)
    key = account.access_key
    if account.is_viewer:
        if need.right is Right.VIEW:
            return None
        return f"Viewers change nothing: {need.right} on {need.subject}, and accessKey={key} is one"
    names_nothing = not account.topic_perms and not account.group_perms
    if account.is_admin and (names_nothing or need.right in (Right.ADMIN, Right.VIEW)):
        return None
    if need.right is Right.ADMIN:
        return f"Need admin permission for {need.subject}, but accessKey={key} is not"
    if not need.kind:
        return f"Need viewer or admin permission for {need.subject}, but accessKey={key} is not"
    if _has(account, need):
        return None
    # RocketMQ's words, also if the right was refused explicitly.
    return f"No default permission for {need.subject}"


def _of_the_group(account: Account, need: Need) -> Need:
    """For a retry or dead-letter topic, what is needed of its group instead."""
    group = group_of(need.name) if need.kind == "topic" else None
    if group is None or (is_dlq(need.name) and need.name in account.topic_perms):
        return need
    right = Right.SUB if need.right is Right.PUB else need.right
    return need._replace(right=right, kind="group", name=group)


def _has(account: Account, need: Need) -> bool:
    if need.kind == "topic":
        perms: Mapping[str, Perm] = account.topic_perms
        default, is_own = account.default_topic_perm, is_system(need.name)
    else:
        perms = account.group_perms
        default, is_own = account.default_group_perm, is_system_group(need.name)
    right = Right.SUB if need.right is Right.VIEW else need.right
    explicit = perms.get(need.name)
    if explicit is not None:
        return right in explicit
    if need.kind == "topic" and (need.right, need.name) in _FOR_EVERYBODY:
        return True
    return right in default and (account.is_admin or not is_own)
