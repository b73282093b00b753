"""A file of accounts in a folder of its own, and a way to load it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqlite.features.accounts.accounts import Accounts
from rmqlite.features.accounts.reading import load_accounts

Load = Callable[..., Accounts]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The path of the file; the folder has it alone."""
    folder = tmp_path / "conf"
    folder.mkdir()
    return folder / "plain_acl.yml"


@pytest.fixture
def load(conf: Path) -> Load:
    """Write the file, for its owner only, and load it."""

    def load(text: str) -> Accounts:
        conf.write_text(text, "utf-8")
        conf.chmod(0o600)
        return load_accounts(conf)

    return load
