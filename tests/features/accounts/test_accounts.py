"""The accounts in force follow their files, and a broken edit changes nothing."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from rmqlite.features.accounts.file import AccountsFile
from rmqlite.features.accounts.gate.exposure import check_exposure
from rmqlite.kernel.service.access import Access
from rmqlite.kernel.words.errors import ConfigInvalid
from tests.support.brokers import small_config

ONE = "accounts:\n- accessKey: first-key\n  secretKey: 12345678\n"
TWO = ONE + "- accessKey: second-key\n  secretKey: 12345678\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "plain_acl.yml"
    write(path, ONE)
    return path


def write(path: Path, text: str) -> None:
    """As an editor does, which leaves another file under the name."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.chmod(0o600)
    os.replace(new, path)


def keys(access: Access) -> set[str]:
    assert access.accounts is not None
    return set(access.accounts.accounts)


def test_accounts_follow_their_file(path: Path) -> None:
    """Also a file that comes later into the folder beside it, and a secret's own file."""
    access = Access()
    file = AccountsFile(path, access)
    file.load()
    assert (keys(access), file.warnings) == ({"first-key"}, ())
    write(path, TWO)
    asyncio.run(file.look())
    assert keys(access) == {"first-key", "second-key"}
    (path.parent / "acl").mkdir()
    secret = path.parent / "acl" / "third.secret"
    write(secret, "87654321\n")
    more = path.parent / "acl" / "more.yml"
    write(more, "accounts:\n- accessKey: third-key\n  secretFile: third.secret\n")
    asyncio.run(file.look())
    assert keys(access) == {"first-key", "second-key", "third-key"}
    write(secret, "another secret\n")
    asyncio.run(file.look())
    assert access.accounts is not None
    third = access.accounts.accounts["third-key"]
    assert third.secret_text == "another secret"


def test_a_broken_edit_keeps_the_accounts_and_says_so_until_it_is_mended(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In rmqlite status, too; a file that is gone is a broken edit."""
    access = Access()
    file = AccountsFile(path, access)
    file.load()
    for broken in ("accounts: 7\n", None):
        if broken is None:
            path.unlink()
        else:
            write(path, broken)
        asyncio.run(file.look())
        assert keys(access) == {"first-key"}
        assert file.is_broken
        (sentence,) = file.warnings
        assert sentence.startswith("the accounts cannot be read again, the former ones stay: ")
        assert str(path) in sentence
        assert sentence in caplog.text
    write(path, TWO)
    asyncio.run(file.look())
    assert (len(keys(access)), file.warnings, file.is_broken) == (2, (), False)


def test_accounts_that_others_can_read_are_a_warning(path: Path) -> None:
    """The broker starts, and says which file it is."""
    path.chmod(0o644)
    access = Access()
    file = AccountsFile(path, access)
    file.load()
    (sentence,) = file.warnings
    assert str(path) in sentence


def test_a_broker_does_not_start_with_accounts_that_it_cannot_read(tmp_path: Path) -> None:
    """Otherwise everybody, or nobody, could use it."""
    with pytest.raises(ConfigInvalid, match=r"plain_acl\.yml"):
        AccountsFile(tmp_path / "plain_acl.yml", Access()).load()


def test_a_broker_with_accounts_may_listen_everywhere(tmp_path: Path) -> None:
    """But for the metrics, which ask for none."""
    check_exposure(small_config(tmp_path, acl_enabled=True, bind_address="0.0.0.0"))
    config = small_config(tmp_path, acl_enabled=True, bind_address="0.0.0.0", metrics_port=9870)
    with pytest.raises(ConfigInvalid, match=r"bindAddress=.0\.0\.0\.0."):
        check_exposure(config)
