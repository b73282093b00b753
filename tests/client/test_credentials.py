"""Where a client's account comes from, and what is refused."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from rmqlite.client.credentials import FILE_BYTES_MAX, Credentials, with_environment
from rmqlite.kernel.words.errors import ConfigInvalid, InvalidValue, RmqliteError

PAIR = {"RMQLITE_ACCESS_KEY": "operator", "RMQLITE_SECRET_KEY": "of the environment"}
SECRET = "of the file"
LINES = f"accessKey=reader\nsecretKey={SECRET}\n"


def file_of(folder: Path, text: str | bytes = LINES, mode: int = 0o600) -> dict[str, str]:
    """The environment that names a file with this text."""
    path = folder / "credentials"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return {"RMQLITE_CREDENTIALS": str(path)}


def test_without_a_source_there_are_none() -> None:
    """A broker without accounts is used as before; an empty variable is none."""
    assert with_environment(None, {}) == Credentials()
    empty = {"RMQLITE_ACCESS_KEY": "", "RMQLITE_SECRET_KEY": "", "RMQLITE_CREDENTIALS": ""}
    assert with_environment(None, empty) == Credentials()


def test_the_environment_gives_them() -> None:
    """A process supervisor sets it."""
    assert with_environment(None, PAIR) == Credentials("operator", "of the environment")


def test_a_file_gives_them(tmp_path: Path) -> None:
    """For a person: the environment of a shell is easily printed."""
    assert with_environment(None, file_of(tmp_path)) == Credentials("reader", SECRET)
    blanks = f"\n secretKey = {SECRET}=\r\n\naccessKey=reader"
    assert with_environment(None, file_of(tmp_path, blanks)) == Credentials("reader", f"{SECRET}=")


def test_the_environment_comes_before_the_file(tmp_path: Path) -> None:
    """The file is not even read."""
    wrong = file_of(tmp_path, "nonsense", 0o666)
    assert with_environment(None, PAIR | wrong) == Credentials("operator", "of the environment")


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ("RMQLITE_ACCESS_KEY", "RMQLITE_SECRET_KEY"),
        ("RMQLITE_SECRET_KEY", "RMQLITE_ACCESS_KEY"),
    ],
)
def test_one_variable_alone_is_an_error_that_names_the_other(given: str, missing: str) -> None:
    """Without an error the client would call unsigned, or with the account of the file."""
    with pytest.raises(InvalidValue) as raised:
        with_environment(None, {given: "x y z", "RMQLITE_CREDENTIALS": "/nowhere"})
    assert raised.value.field == missing
    assert given in raised.value.rule
    assert "x y z" not in str(raised.value)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    """Its secret may be known already; the error names file, mode and rule."""
    environment = file_of(tmp_path, mode=mode)
    with pytest.raises(InvalidValue) as raised:
        with_environment(None, environment)
    assert raised.value.field == "RMQLITE_CREDENTIALS"
    assert raised.value.value == environment["RMQLITE_CREDENTIALS"]
    assert "600" in raised.value.rule
    assert f"mode {mode:03o}" in raised.value.rule


def test_only_a_regular_file_is_read(tmp_path: Path) -> None:
    """A link may be moved to another file, a pipe is waited for, a folder has no text."""
    (tmp_path / "link").symlink_to(file_of(tmp_path)["RMQLITE_CREDENTIALS"])
    os.mkfifo(tmp_path / "pipe", 0o600)
    (tmp_path / "folder").mkdir(mode=0o700)
    for name in ("link", "pipe", "folder", "missing"):
        with pytest.raises(InvalidValue, match=r"a regular file|a file that can be read") as raised:
            with_environment(None, {"RMQLITE_CREDENTIALS": str(tmp_path / name)})
        assert raised.value.value == str(tmp_path / name)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "accessKey=reader\n",
        "accessKey=reader\nsecretKey=\n",
        LINES + "accessKey=another\n",
        LINES + "secret=of the file\n",
        f"reader\n{SECRET}\n",
        b"accessKey=reader\nsecretKey=of the file\xff\n",
        LINES + "\n" * FILE_BYTES_MAX,
    ],
)
def test_another_text_is_refused_without_being_shown(tmp_path: Path, text: str | bytes) -> None:
    """Any part of it may be the secret, also in the causes of the error."""
    environment = file_of(tmp_path, text)
    with pytest.raises(RmqliteError) as raised:
        with_environment(None, environment)
    assert environment["RMQLITE_CREDENTIALS"] in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_an_error_in_a_line_names_the_line(tmp_path: Path) -> None:
    """It is not shown, so it must be found."""
    with pytest.raises(ConfigInvalid) as raised:
        with_environment(None, file_of(tmp_path, "accessKey=reader\n\nsecret=x\n"))
    assert raised.value.line == 3


def test_the_secret_is_in_no_repr_and_travels_to_other_processes() -> None:
    """Spark sends the account to its tasks."""
    given = Credentials("reader", SECRET)
    assert SECRET not in f"{given} {given!r}"
    assert pickle.loads(pickle.dumps(given)) == given


def pem_files(folder: Path, mode: int = 0o600) -> dict[str, str]:
    """The environment that names three files of certificates."""
    variables = {"RMQLITE_TLS_CA": "ca", "RMQLITE_TLS_CERTIFICATE": "certificate"}
    variables["RMQLITE_TLS_KEY"] = "key"
    for name in variables.values():
        (folder / name).write_text(f"the {name}")
        (folder / name).chmod(mode if name == "key" else 0o644)
    return {variable: str(folder / name) for variable, name in variables.items()}


def test_files_give_the_certificates_beside_an_account_of_anywhere(tmp_path: Path) -> None:
    """What is given counts; the environment gives what it lacks."""
    environment = pem_files(tmp_path) | PAIR
    found = with_environment(None, environment)
    assert found == Credentials(
        "operator", "of the environment", "the ca", "the certificate", "the key"
    )
    assert with_environment(Credentials("me", "mine"), environment).ca == "the ca"
    mine = with_environment(Credentials(ca="mine"), environment)
    assert (mine.ca, mine.certificate, mine.access_key) == ("mine", "", "operator")
    assert "the key" not in repr(found)


def test_a_private_key_is_its_owners_alone(tmp_path: Path) -> None:
    """As a file with a secret; certificates may be read by everybody."""
    with pytest.raises(InvalidValue, match="600") as raised:
        with_environment(None, pem_files(tmp_path, 0o640))
    assert raised.value.field == "RMQLITE_TLS_KEY"


@pytest.mark.parametrize("lost", ["RMQLITE_TLS_CERTIFICATE", "RMQLITE_TLS_KEY"])
def test_a_certificate_without_its_key_is_an_error(lost: str, tmp_path: Path) -> None:
    """And the reverse: the broker would say only that there is none."""
    environment = pem_files(tmp_path) | {lost: ""}
    with pytest.raises(InvalidValue) as raised:
        with_environment(None, environment)
    assert raised.value.field == lost
