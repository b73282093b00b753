"""Accounts for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import SecretStr

from rmqlite.features.accounts.accounts import Account, Accounts

SECRET = "a secret of 23 letters"
ADMIN = "the-admin"


def account(key: str, *, secret: str = SECRET, **about: Any) -> Account:
    """about: its role and rights; without any it may do nothing."""
    return Account(access_key=key, secret=SecretStr(secret), **about)


def accounts(*known: Account, **about: Any) -> Accounts:
    return Accounts(accounts={each.access_key: each for each in known}, **about)


def with_admin(folder: Path, key: str = ADMIN) -> dict[str, str]:
    """The keys of broker.conf for accounts of which there is one, an admin."""
    path = folder / "plain_acl.yml"
    path.touch(mode=0o600)
    path.write_text(f"accounts:\n- accessKey: {key}\n  secretKey: {SECRET}\n  admin: true\n")
    return {"aclEnable": "true", "aclFile": str(path)}


def signing(key: str, secret: str = SECRET) -> dict[str, str]:
    """The environment of a client's program that signs as an account."""
    return {"ACCESS_KEY": key, "SECRET_KEY": secret}
