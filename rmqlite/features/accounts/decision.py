"""May this account do that?  Pure: an account and what a request needs, to None or a rule.

RocketMQ 4.9's rules, in its words (reference §6.1):

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
from typing import Final

from rmqlite.features.accounts.accounts import Account, Perm
from rmqlite.kernel.words.names import (
    AUTO_CREATE_TOPIC,
    TRACE_TOPIC,
    group_of,
    is_dlq,
    is_system,
    is_system_group,
)
from rmqlite.kernel.words.rights import Need, Right

_FOR_EVERYBODY: Final = frozenset({(Right.PUB, TRACE_TOPIC), (Right.VIEW, AUTO_CREATE_TOPIC)})
"""Rights on system topics that every account has."""


def why_not(account: Account, needs: Iterable[Need]) -> str | None:
    """None if the account has all these rights, else the rule that forbids the first one it lacks.

    The answer depends on names only, so it does not tell whether a topic or a group exists.
    """
    for need in needs:
        refusal = _why_not(account, need)
        if refusal:
            return refusal
    return None


def sends_somewhere(account: Account) -> bool:
    """Has the account the right to send to some topic, other than the one that everybody has?"""
    if account.is_viewer:
        return False
    perms = (account.default_topic_perm, *account.topic_perms.values())
    names_nothing = not account.topic_perms and not account.group_perms
    return (account.is_admin and names_nothing) or any(Right.PUB in perm for perm in perms)


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
