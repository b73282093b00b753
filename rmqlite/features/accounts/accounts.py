"""Accounts and their rights, as plain values.

Field for field RocketMQ 4.x's plain_acl.yml (reading.py reads it), and one role that RocketMQ
does not have: a viewer may look at everything and change nothing.  A right that is not given is
refused.  The secret is in no text that an account is turned into.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, InstanceOf, SecretStr

from rmqlite.kernel.config.addresses import NO_ADDRESS, AddressPattern
from rmqlite.kernel.words.limits import ACCESS_KEY_CHARS_MAX, ACCESS_KEY_CHARS_MIN
from rmqlite.kernel.words.rights import Right
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
