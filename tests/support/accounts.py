"""Accounts for tests."""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from rmqlite.access.accounts import Account, Accounts

SECRET = "a secret of 23 letters"


def account(key: str, *, secret: str = SECRET, **about: Any) -> Account:
    """about: its role and rights; without any it may do nothing."""
    return Account(access_key=key, secret=SecretStr(secret), **about)


def accounts(*known: Account, **about: Any) -> Accounts:
    return Accounts(accounts={each.access_key: each for each in known}, **about)
